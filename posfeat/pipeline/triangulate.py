"""Photos with known poses, their features and matches -> a COLMAP model with points. Poses stay as they are.

A match counts where both keypoints lie near each other's epipolar line, which the known poses give; no geometry is estimated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from posfeat.data.distortion import is_distorted, undistort_pixels
from posfeat.geometry.epipolar import fundamental_from_cameras, has_baseline, symmetric_epipolar_distance
from posfeat.geometry.pose import relative_pose
from posfeat.interop.colmap import Model, cam_from_world, model_of_views, registered_images, write_model
from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_triangulation import TriangulationOptions, triangulate_database
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.known_cameras import known_views
from posfeat.pipeline.map import ModelSummary, summarise
from posfeat.types import (
    Array,
    Camera,
    DataError,
    Matches,
    ReconstructionError,
    StoreError,
    TwoViewConfiguration,
    TwoViewGeometry,
    View,
)

Progress = Callable[[int, int], None]

_CREDIBLE_SHARE = 0.2  # of matches that agree with the poses; without matching at all it is some 0.05


@dataclass(frozen=True)
class TriangulationReport:
    """The model in numbers, what it was made of, and the images that could not be used."""

    model: ModelSummary
    num_pairs: int  # with matches that agree with the poses
    num_matches: int
    num_inliers: int  # matches that agree with the poses
    without_pose: tuple[str, ...]  # images of the feature file that nothing is known of

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against the model, in words."""
        share = self.num_inliers / max(self.num_matches, 1)
        if share >= _CREDIBLE_SHARE:
            return ()
        return (f"only {share:.0%} of the matches agree with the poses; check poses, intrinsics and names",)


def triangulate(
    posed: Path,
    features_path: Path,
    matches_path: Path,
    output: Path,
    options: TriangulationOptions | None = None,
    *,
    image_folder: Path | None = None,
    progress: Progress | None = None,
) -> TriangulationReport:
    """Write a model of ``posed`` (posed photos of any layout, or a COLMAP model) with points into ``output``.

    ``image_folder`` gives the points the colours of the photos. ReconstructionError says why if there are no points.
    """
    with FeatureStore(features_path) as features:
        views = known_views(posed, set(features.names()))
    return triangulate_views(
        views, features_path, matches_path, output, options, image_folder=image_folder, progress=progress
    )


def triangulate_views(
    views: Mapping[str, View],
    features_path: Path,
    matches_path: Path,
    output: Path,
    options: TriangulationOptions | None = None,
    *,
    image_folder: Path | None = None,
    progress: Progress | None = None,
) -> TriangulationReport:
    """The same for posed photos by the names that the feature file has for them."""
    options = options or TriangulationOptions()
    part = output.with_name(output.name + ".part")
    with FeatureStore(features_path) as features, MatchStore(matches_path) as matches:
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            counts = fill_database(part / "database.db", features, matches, views, options, progress)
            model = _triangulated(part / "database.db", views, image_folder or part, options)
            if model.num_points3D() == 0:
                raise ReconstructionError(f"no points from {matches_path}: {counts.why_no_points()}")
            if image_folder is not None:
                model.extract_colors_for_all_images(image_folder)
            write_model(model, part / "model")
            shutil.rmtree(output, ignore_errors=True)
            (part / "model").rename(output)
        except OSError as error:
            raise StoreError(f"cannot write {output}: {error.strerror}; choose another place, or make room") from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
        without = tuple(name for name in features.names() if name not in views)
    return TriangulationReport(summarise(model), counts.pairs, counts.matches, counts.inliers, without)


@dataclass
class _Counts:
    """What was found on the way."""

    pairs: int = 0
    pairs_without_baseline: int = 0
    matches: int = 0
    inliers: int = 0

    def why_no_points(self) -> str:
        """In words."""
        if self.matches == 0:
            return "none of the images with known poses are matched; match them, or check their names"
        if self.pairs_without_baseline and not self.pairs:
            return "no baseline: all matched images were taken from one place, so that depth cannot be seen"
        if self.inliers < 0.1 * self.matches:
            return (
                f"wrong poses or matches: {self.inliers} of {self.matches} matches lie near the epipolar lines of the known "
                "poses; check poses, intrinsics and image sizes"
            )
        return (
            f"{self.inliers} of {self.matches} matches agree with the poses, but their rays meet at too small angles, or "
            "only two images see each point; lower triangulation.min_angle_deg, or set triangulation.two_view_points=true"
        )


def fill_database(
    path: Path,
    features: FeatureStore,
    matches: MatchStore,
    views: Mapping[str, View],
    options: TriangulationOptions,
    progress: Progress | None = None,
) -> _Counts:
    """Write posed images, their keypoints, and the matches that agree with the poses."""
    straight = _StraightKeypoints(features, views)
    pairs = _pairs_of(matches, views)
    counts = _Counts()
    with ColmapDatabase(path) as database, database.transaction():
        for name, camera_id in _camera_ids(database, views).items():
            database.add_image(name, camera_id)
            database.write_keypoints(name, features.read(name).keypoints.numpy())
        for done, (name0, name1) in enumerate(pairs, start=1):
            found = matches.read(name0, name1)
            counts.matches += len(found)
            geometry = _known_geometry(views[name0], views[name1], found, straight, options)
            if geometry is None:
                counts.pairs_without_baseline += 1
            elif len(geometry.inliers):
                database.write_matches(name0, name1, found.indices.numpy())
                database.write_geometry(name0, name1, geometry)
                counts.pairs += 1
                counts.inliers += len(geometry.inliers)
            if progress:
                progress(done, len(pairs))
    return counts


def _triangulated(database: Path, views: Mapping[str, View], images: Path, options: TriangulationOptions) -> Model:
    with ColmapDatabase(database) as opened:
        empty = model_of_views(views.values(), opened.camera_ids(), opened.image_ids())
    model = triangulate_database(empty, database, images, options)
    for image in registered_images(model):
        moved = np.abs(cam_from_world(image) - views[str(image.name)].cam_from_world).max()
        assert moved < 1e-6, f"{image.name} moved by {moved}"
    return model


def _camera_ids(database: ColmapDatabase, views: Mapping[str, View]) -> dict[str, int]:
    """The id of each view's camera; views with equal cameras share one."""
    ids: dict[tuple[object, ...], int] = {}
    found = {}
    for name, view in sorted(views.items()):
        camera = view.camera
        key = (camera.model, camera.width, camera.height, camera.matrix.tobytes(), camera.distortion)
        if key not in ids:
            ids[key] = database.add_camera(camera, focal_is_known=True)
        found[name] = ids[key]
    return found


def _pairs_of(matches: MatchStore, views: Mapping[str, View]) -> list[tuple[str, str]]:
    """The matched pairs of posed images; other tools' files have '-' in names where we have '/'."""
    flat = {name.replace("/", "-"): name for name in views}
    pairs = ((flat.get(a.replace("/", "-")), flat.get(b.replace("/", "-"))) for a, b in matches.pairs())
    return [(a, b) for a, b in pairs if a is not None and b is not None]


class _StraightKeypoints:
    """Keypoints as they would be without the lens's distortion, kept at hand."""

    def __init__(self, features: FeatureStore, views: Mapping[str, View]) -> None:
        self._features, self._views = features, views
        self._known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            found, camera = self._features.read(name), self._views[name].camera
            if found.image_size != (camera.width, camera.height):
                raise DataError(
                    f"{name} has features of a photo of {found.image_size[0]}x{found.image_size[1]} pixels, but its camera is "
                    f"of {camera.width}x{camera.height}; scale the camera, or extract from photos of its size"
                )
            xy = found.keypoints.numpy().astype(np.float64)
            pinhole = Camera(camera.width, camera.height, camera.matrix)
            self._known[name] = undistort_pixels(camera, xy, pinhole) if is_distorted(camera) else xy
        return self._known[name]


def _known_geometry(
    view0: View, view1: View, matches: Matches, straight: _StraightKeypoints, options: TriangulationOptions
) -> TwoViewGeometry | None:
    """The matches that agree with two known poses; None where both images were taken from one place."""
    pose = relative_pose(torch.from_numpy(view0.cam_from_world), torch.from_numpy(view1.cam_from_world))
    if not bool(has_baseline(pose, minimum_ratio=1e-12)):
        return None
    matrix0, matrix1 = torch.from_numpy(view0.camera.matrix), torch.from_numpy(view1.camera.matrix)
    indices = matches.indices.numpy()
    xy0, xy1 = straight[view0.name][indices[:, 0]], straight[view1.name][indices[:, 1]]
    distances = symmetric_epipolar_distance(
        fundamental_from_cameras(matrix0, matrix1, pose), torch.from_numpy(xy0), torch.from_numpy(xy1)
    )
    near = _all_within([distance.numpy() for distance in distances], options.max_epipolar_error_px)
    unit = pose.numpy().copy()
    unit[:3, 3] /= np.linalg.norm(unit[:3, 3])
    return TwoViewGeometry(TwoViewConfiguration.CALIBRATED, indices[near], cam1_from_cam0=unit)


def _all_within(distances: Sequence[Array], limit: float) -> npt.NDArray[np.bool_]:
    """Not-a-number, which a position outside the lens has, is not within."""
    return np.logical_and.reduce([distance <= limit for distance in distances])
