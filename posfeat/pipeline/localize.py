"""A photo and a map -> where the photo was taken, in memory; the map is only read.

The map's images that look most like the photo are matched with it; matches of keypoints that have a 3D point lead to a pose by
RANSAC and least squares. Without known intrinsics several guesses of the camera are tried, and the best supported one stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from posfeat.data.images import RGB, shown
from posfeat.interop.absolute_pose import (
    AbsolutePose,
    AbsolutePoseOptions,
    FocalLength,
    estimate_absolute_pose,
    reprojection_errors,
)
from posfeat.interop.colmap import exif_camera, unknown_camera
from posfeat.matching import MatchOptions, match, own_matching
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions, read_pixels
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested, options_from_mapping
from posfeat.pipeline.chance import CERTAIN, log10_chance_poses
from posfeat.pipeline.extract import Extractor, NetworkExtractor, RootSiftExtractor
from posfeat.pipeline.localization_map import LocalizationMap
from posfeat.pipeline.pose_uncertainty import pose_covariance
from posfeat.pipeline.rootsift import NAME as ROOTSIFT
from posfeat.types import Array, Camera, Features, OptionsError, ReconstructionError

UNKNOWN_MODEL = "SIMPLE_RADIAL"
_FOCAL_FACTOR = 1.2  # of the longer side, where nothing is known
_MOST_MAP_CAMERAS = 3
_CLEARLY_LESS = 0.8
_SAME_FOCAL = 0.01


@dataclass(frozen=True)
class LocalizationOptions:
    """How a photo is matched with a map, and when a pose is believed; ``matching`` of None leaves it to the features."""

    retrieved: int = described(20, "so many images of the map are matched with the photo", low=1)
    matching: MatchOptions | None = None
    pose: AbsolutePoseOptions = nested(AbsolutePoseOptions, "how the pose is estimated")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Localization:
    """Where a photo was taken, and how good that is."""

    cam_from_world: Array  # (4, 4)
    camera: Camera  # as given, or as estimated
    keypoints: Array  # (K, 2) positions in the photo that support the pose
    points: Array  # (K, 3) their points in the map
    num_matches: int  # of keypoints with points of the map, right or wrong
    reprojection_error_px: float  # median over the supporting keypoints
    covariance: Array  # (6, 6) of turn (radians, camera's axes) and centre (world's unit)
    images: tuple[str, ...] = field(default=())  # of the map that were looked at, the most similar first

    @property
    def num_inliers(self) -> int:
        """How many matches support the pose."""
        return len(self.keypoints)

    @property
    def centre(self) -> Array:
        """The camera's place in the map's frame."""
        place: Array = -self.cam_from_world[:3, :3].T @ self.cam_from_world[:3, 3]
        return place

    @property
    def centre_deviation(self) -> float:
        """Standard deviation of the centre in its least certain direction, in the world's unit."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[3:, 3:]).max()))


class Localizer:
    """Localizes photos in a map: ``Localizer("map/").localize("photo.jpg").cam_from_world``.

    ``model`` extracts the photos' features; by default that is what the map's own features say they were extracted with.
    """

    def __init__(
        self,
        map_folder: str | os.PathLike[str],
        model: PoSFeat | Extractor | None = None,
        *,
        features: str | os.PathLike[str] | None = None,
        options: LocalizationOptions | None = None,
    ) -> None:
        self.map = LocalizationMap(Path(map_folder), None if features is None else Path(features))
        self.options = options or LocalizationOptions()
        self.network = model if isinstance(model, PoSFeat) else None
        self._extractor = None if isinstance(model, PoSFeat) else model

    def __enter__(self) -> Localizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the map's feature file."""
        self.map.close()

    def localize(self, image: str | os.PathLike[str] | RGB, camera: Camera | None = None) -> Localization:
        """Where a photo (a file, or RGB pixels) was taken; ReconstructionError says why that is not known.

        ``camera`` are its intrinsics, where they are known; else EXIF and the map's cameras are tried.
        """
        rgb, _ = read_pixels(image, None)
        features = self.extractor.extract(rgb, None)
        if not isinstance(image, (str, os.PathLike)):
            return self.localize_features(features, camera)
        focal = exif_camera(Path(image))[1] if camera is None else None
        return self.localize_features(features, camera, focal, shown(image))

    @property
    def extractor(self) -> Extractor:
        """What extracts the photos' features."""
        if self._extractor is None:
            self._extractor = _extractor_like(self.map.store.settings, self.network)
        return self._extractor

    @property
    def needs_network(self) -> bool:
        """Whether ``network`` has a say in what the photos' features are: not where the map's are RootSIFT."""
        return self._extractor is None and not _is_rootsift(self.map.store.settings)

    def localize_features(
        self, features: Features, camera: Camera | None = None, focal_px: float | None = None, name: str = "the photo"
    ) -> Localization:
        """The same for features of a photo; ``focal_px`` is a good guess of an unknown camera's focal length."""
        if camera is not None and (camera.width, camera.height) != features.image_size:
            width, height = features.image_size
            raise OptionsError(
                f"{name} is of {width}x{height} pixels, its known camera of {camera.width}x{camera.height}; scale the camera"
            )
        images = self._similar(features)
        rows, points = self._matches(features, images)
        if len(rows) < self.options.pose.min_inliers:
            raise ReconstructionError(
                f"{name} is not localized: {len(features)} keypoints, {len(rows)} of which match points of the map, and "
                f"{self.options.pose.min_inliers} are needed; does the map show that place?"
            )
        xy, xyz = features.keypoints.numpy().astype(np.float64)[rows], self.map.points[points]
        best: tuple[AbsolutePose, FocalLength] | None = None
        for guess, focal in self._guesses(features.image_size, camera, focal_px, images):
            pose = estimate_absolute_pose(xy, xyz, guess, focal, self.options.pose)
            # guesses come in the order of trust
            if pose is not None and (best is None or _clearly_better(pose, best[0], xy, xyz, self.options.pose)):
                best = pose, focal
        if best is None or _chance(best[0], self.options.pose) > CERTAIN:
            raise ReconstructionError(
                f"{name} is not localized: of its {len(rows)} matches with the map no more agree on a pose than by chance"
            )
        return _result(*best, xy, xyz, images)

    def _similar(self, features: Features) -> tuple[str, ...]:
        if len(self.map.names) <= self.options.retrieved:
            return tuple(self.map.names)
        index = self.map.index
        rows, _ = index.nearest(index.vector_of(features)[None], self.options.retrieved)
        return tuple(index.names[row] for row in rows[0].tolist())

    def _matches(
        self, features: Features, images: tuple[str, ...]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of the photo's keypoints and of the map's points that match, each keypoint and each point once.

        Where images of the map disagree, the point that more of them, or more similar keypoints, speak for stays.
        """
        matching = self.options.matching or _own_matching(self._extractor, self.map.store.settings)
        found, weights = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
        for name in images:
            observed = self.map.observed(name)
            matches = match(features, observed.features, matching)
            indices = matches.indices.numpy()
            points = observed.points[indices[:, 1]]
            found.append(np.stack([indices[:, 0], points], axis=1)[points >= 0])
            weights.append(matches.scores.numpy()[points >= 0])
        pairs, which = np.unique(np.concatenate(found), axis=0, return_inverse=True)
        votes = np.bincount(which.ravel(), weights=np.concatenate(weights), minlength=len(pairs))
        pairs = pairs[np.argsort(-votes, kind="stable")]
        for column in (0, 1):
            _, first = np.unique(pairs[:, column], return_index=True)
            pairs = pairs[np.sort(first)]
        return pairs[:, 0], pairs[:, 1]

    def _guesses(
        self, size: tuple[int, int], camera: Camera | None, focal_px: float | None, images: tuple[str, ...]
    ) -> Iterator[tuple[Camera, FocalLength]]:
        """What the photo's camera may be, the most trustworthy guess first."""
        if camera is not None:
            yield camera, "known"
            return
        if focal_px is not None:
            yield unknown_camera(UNKNOWN_MODEL, *size, focal_px), "about"
        cameras = [self.map.cameras[name] for name in images]
        for guess in _different([guess for guess in cameras if (guess.width, guess.height) == size]):
            yield guess, "known"
            yield guess, "about"
        scaled = [float(guess.matrix[0, 0]) * max(size) / max(guess.width, guess.height) for guess in cameras]
        for guess in _different([unknown_camera(UNKNOWN_MODEL, *size, focal) for focal in scaled]):
            yield guess, "about"
        yield unknown_camera(UNKNOWN_MODEL, *size, _FOCAL_FACTOR * max(size)), "unknown"


def _different(cameras: Sequence[Camera]) -> list[Camera]:
    """The first few that differ by more than a hundredth of the focal length."""
    found: list[Camera] = []
    for camera in cameras:
        if all(abs(camera.matrix[0, 0] / other.matrix[0, 0] - 1) > _SAME_FOCAL for other in found):
            found.append(camera)
    return found[:_MOST_MAP_CAMERAS]


def _clearly_better(
    pose: AbsolutePose, other: AbsolutePose, xy: Array, points: Array, options: AbsolutePoseOptions
) -> bool:
    """Whether it leaves clearly less of the matches that support one of the two unexplained.

    Numbers of matches would not tell: with a wrong focal length nearly as many come near their places from farther away.
    """
    either = pose.inliers | other.inliers
    limit = options.limit_px(pose.camera)
    left, left_by_other = (
        np.square(reprojection_errors(one.cam_from_world, one.camera, xy[either], points[either]).clip(max=limit)).sum()
        for one in (pose, other)
    )
    return bool(left < _CLEARLY_LESS * left_by_other)


def _chance(pose: AbsolutePose, options: AbsolutePoseOptions) -> float:
    camera = pose.camera
    limit = options.limit_px(camera)
    return log10_chance_poses(len(pose.inliers), pose.num_inliers, limit, camera.width, camera.height)


def _result(pose: AbsolutePose, focal: FocalLength, xy: Array, points: Array, images: tuple[str, ...]) -> Localization:
    xy_in, points_in = xy[pose.inliers], points[pose.inliers]
    errors = reprojection_errors(pose.cam_from_world, pose.camera, xy_in, points_in)
    return Localization(
        cam_from_world=pose.cam_from_world,
        camera=pose.camera,
        keypoints=xy_in,
        points=points_in,
        num_matches=len(xy),
        reprojection_error_px=float(np.median(errors)),
        covariance=pose_covariance(pose.cam_from_world, pose.camera, xy_in, points_in, focal != "known"),
        images=images,
    )


def _own_matching(extractor: Extractor | None, settings: dict[str, Any]) -> MatchOptions:
    """How these features are matched unless somebody says otherwise."""
    if extractor is not None:
        return extractor.own_matching
    return (
        RootSiftExtractor(1).own_matching if _is_rootsift(settings) else own_matching(str(settings.get("weights", "")))
    )


def _is_rootsift(settings: dict[str, Any]) -> bool:
    return str(settings.get("weights", "")).startswith(ROOTSIFT)


def _extractor_like(settings: dict[str, Any], model: PoSFeat | None) -> Extractor:
    """What the features of a map were extracted with; a model is checked against what the feature file says."""
    made_with = str(settings.get("weights", ""))
    extraction = settings.get("extraction", {})
    if _is_rootsift(settings):
        return RootSiftExtractor(int(extraction["selection"]["max_keypoints"]))
    options = options_from_mapping(ExtractionOptions, extraction)
    extractor = NetworkExtractor(model or load(), options)
    if made_with and extractor.settings["weights"] != made_with:
        raise OptionsError(
            f"the map's features were extracted with weights {made_with}, these are {extractor.settings['weights']}; "
            "load the same weights"
        )
    return extractor
