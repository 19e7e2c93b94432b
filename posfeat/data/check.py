"""Whether poses are right: SIFT matches of a pair must lie on the epipolar lines that its poses say.

Per pair, matches that survive the ratio test are compared with the poses, and with the best fundamental matrix that they support by
themselves. A pair is ``confirmed`` when the poses explain them, ``refuted`` when some other geometry does and the poses do not,
and ``unsupported`` when there are too few to tell (no common content, or content that SIFT cannot match).
A view most of whose judged pairs are refuted has a wrong pose. Confirmed matches also give depths, which tell overlap far better
than a guess; so the pairs of scenes without points are chosen twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
import torch

from posfeat.data.distortion import is_distorted, undistort_pixels
from posfeat.data.images import read_image
from posfeat.data.pairs import PairOptions, choose_pairs, limit_pairs
from posfeat.geometry.camera import infinite_homography
from posfeat.geometry.epipolar import fundamental_from_cameras, symmetric_epipolar_distance
from posfeat.geometry.homography import warp_points
from posfeat.geometry.pose import relative_pose
from posfeat.options import check_options, described
from posfeat.types import Array, Array32, Pair, View

Verdict = Literal["confirmed", "refuted", "unsupported"]
Progress = Callable[[int, int], None]

_PARALLAX_PERCENTILE = 90
_DEPTH_PERCENTILES = (5, 95)
_MIN_RAY_ANGLE_DEG = 0.3
_TONE_PERCENTILES = (1, 99)
_PALE_LEVELS = 128


@dataclass(frozen=True)
class CheckOptions:
    """How pairs are matched and judged. Shares of the side are shares of a photo's longer side."""

    max_keypoints: int = described(1500, "SIFT keypoints of a photo", low=8)
    longest_px: int = described(800, "photos are shrunk to this for SIFT", low=64)
    ratio: float = described(0.8, "ratio test between nearest and second-nearest descriptor", low=0, high=1)
    min_matches: int = described(15, "matches on their lines that confirm a pair", low=8)
    min_agreeing_share: float = described(0.3, "share of matches on their lines that confirms a pair", low=0, high=1)
    min_contradicting: int = described(25, "matches of another geometry that refute a pair", low=8)
    max_error_share: float = described(0.005, "distance from the line as a share of the side", low=0)
    min_parallax_share: float = described(0.003, "least parallax of a baseline as a share of the side", low=0)
    max_pairs_per_scene: int = described(2000, "pairs of one scene that are matched", low=1)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class PairCheck:
    """What the matches of one pair say. Pixels are those of the undistorted photos at full size."""

    pair: Pair
    verdict: Verdict
    num_matches: int
    num_agreeing: int  # matches on the poses' epipolar lines, in front of both cameras
    num_consistent: int  # matches that the best fundamental matrix explains
    median_error_px: float  # symmetric epipolar distance of all ratio-test matches
    agreeing_error_px: float  # median of those that agree
    parallax_px: float  # how far agreeing matches lie from where rotation alone sends them (90th percentile)
    planar_share: float  # share of agreeing matches that one homography explains
    depth_range0: tuple[float, float] | None
    depth_range1: tuple[float, float] | None
    xy0: Array32  # agreeing matches first, then the others
    xy1: Array32


@dataclass(frozen=True)
class SceneCheck:
    """The checked pairs of one scene, its views with measured depths, and the views whose poses are wrong."""

    views: list[View]
    checks: list[PairCheck]
    wrong_views: list[str]
    pairs: list[Pair]  # usable for training


def usable_pairs(
    views: list[View], pair_options: PairOptions, check_options: CheckOptions, progress: Progress | None = None
) -> list[Pair]:
    """Pairs for training of any number of scenes, without those that matching speaks against."""
    scenes = [list(group) for _, group in groupby(sorted(views, key=lambda v: v.scene), key=lambda v: v.scene)]
    return [pair for scene in scenes for pair in check_scene(scene, pair_options, check_options, None, progress).pairs]


def check_scene(
    views: list[View],
    pair_options: PairOptions,
    check_options: CheckOptions,
    listed: list[Pair] | None = None,
    progress: Progress | None = None,
) -> SceneCheck:
    """Choose (unless ``listed``), match and judge the pairs of one scene.

    Usable are confirmed pairs, and unsupported ones whose overlap is known otherwise (listed, or from common points). Where depths
    were only guessed, pairs are chosen again with those that the matches of the first choice gave.
    """
    matcher = _Matcher(check_options)
    limit = min(check_options.max_pairs_per_scene, pair_options.max_pairs_per_scene)
    limited = replace(pair_options, max_pairs_per_scene=limit)
    guessed = listed is None and any(view.depth_range is None for view in views)
    if listed is not None:
        chosen = limit_pairs(listed, limited)
    else:
        first = replace(limited, min_overlap=limited.min_overlap / 2) if guessed else limited
        chosen = choose_pairs(views, first)
    checks = matcher.check([*chosen, *(_neighbours(views, chosen) if guessed else [])], progress)
    wrong = wrong_views(checks)
    right = [view for view in with_measured_depths(views, checks) if view.name not in wrong]
    if guessed:
        chosen = choose_pairs(right, limited)
        known = {_key(check.pair) for check in checks}
        checks += matcher.check([pair for pair in chosen if _key(pair) not in known], progress)
    by_key = {_key(check.pair): check for check in checks}
    kept = [pair for pair in chosen if pair.view0.name not in wrong and pair.view1.name not in wrong]
    judged = [_usable(pair, by_key[_key(pair)], listed is not None, check_options) for pair in kept]
    pairs = [pair for pair in judged if pair is not None and (pair.has_baseline or pair_options.rotation_only)]
    return SceneCheck(views=right, checks=checks, wrong_views=wrong, pairs=pairs)


def check_pairs(pairs: list[Pair], options: CheckOptions, progress: Progress | None = None) -> list[PairCheck]:
    """Match and judge given pairs."""
    return _Matcher(options).check(pairs, progress)


def wrong_views(checks: list[PairCheck], min_judged: int = 3) -> list[str]:
    """Names of views most of whose judged pairs are refuted, worst first; each verdict is blamed on one view only.

    A wrong view refutes pairs of right ones too, so the worst view is taken out with its pairs before the next is sought.
    """
    judged = [check for check in checks if check.verdict != "unsupported"]
    wrong: list[str] = []
    while True:
        refuted, total = Counter[str](), Counter[str]()
        for check in judged:
            for view in (check.pair.view0, check.pair.view1):
                total[view.name] += 1
                refuted[view.name] += check.verdict == "refuted"
        suspects = [name for name in total if total[name] >= min_judged and refuted[name] > total[name] / 2]
        if not suspects:
            return wrong
        worst = max(suspects, key=lambda name: (refuted[name] / total[name], refuted[name], name))
        wrong.append(worst)
        judged = [c for c in judged if worst not in (c.pair.view0.name, c.pair.view1.name)]


def with_measured_depths(views: list[View], checks: list[PairCheck]) -> list[View]:
    """The views with the depths of their confirmed matches, where nothing better was known."""
    measured: dict[str, list[tuple[float, float]]] = {}
    for check in checks:
        if check.verdict == "confirmed":
            for view, depths in ((check.pair.view0, check.depth_range0), (check.pair.view1, check.depth_range1)):
                if depths is not None:
                    measured.setdefault(view.name, []).append(depths)
    return [
        replace(view, depth_range=_median_range(measured[view.name]))
        if view.depth_range is None and view.name in measured
        else view
        for view in views
    ]


def _median_range(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    near, far = np.median(np.array(ranges), axis=0)
    return float(near), float(far)


def _key(pair: Pair) -> tuple[str, str]:
    return pair.view0.name, pair.view1.name


def _neighbours(views: list[View], chosen: list[Pair]) -> list[Pair]:
    """Views that follow one another in the data set and are not chosen: where a video's poses jump, they tell.

    Their overlap is guessed from the poses, so poses that are off may hide that they see the same.
    """
    known = {_key(pair) for pair in chosen}
    near = [Pair(view0, view1) for step in (1, 2) for view0, view1 in zip(views, views[step:], strict=False)]
    return [pair for pair in near if _key(pair) not in known]


def _usable(pair: Pair, check: PairCheck, listed: bool, options: CheckOptions) -> Pair | None:
    """The pair if it can be trained on, marked as without baseline where its matches show no parallax."""
    if check.verdict == "confirmed":
        side = max(pair.view0.camera.width, pair.view0.camera.height)
        return replace(pair, has_baseline=pair.has_baseline and check.parallax_px >= options.min_parallax_share * side)
    known = listed or (pair.view0.point_ids is not None and pair.view1.point_ids is not None)
    return pair if known and check.verdict == "unsupported" else None


@dataclass(frozen=True)
class _Sift:
    xy: Array  # (N, 2) in undistorted pixels at full size
    descriptors: Array32  # (N, 128) RootSIFT


class _Matcher:
    """Extracts every photo once, then matches pairs."""

    def __init__(self, options: CheckOptions) -> None:
        self._options = options
        self._features: dict[tuple[str, str], _Sift] = {}

    def check(self, pairs: list[Pair], progress: Progress | None = None) -> list[PairCheck]:
        checks = []
        for done, pair in enumerate(pairs, start=1):
            checks.append(self._check(pair))
            if progress is not None:
                progress(done, len(pairs))
        return checks

    def _check(self, pair: Pair) -> PairCheck:
        xy0, xy1 = self._match(self._sift(pair.view0), self._sift(pair.view1))
        return judge_pair(pair, xy0, xy1, self._options)

    def _sift(self, view: View) -> _Sift:
        key = (view.scene, view.name)
        if key not in self._features:
            self._features[key] = _extract_sift(view, self._options)
        return self._features[key]

    def _match(self, sift0: _Sift, sift1: _Sift) -> tuple[Array, Array]:
        """Mutual nearest neighbours that pass the ratio test."""
        if min(len(sift0.xy), len(sift1.xy)) < 2:
            return np.zeros((0, 2)), np.zeros((0, 2))
        similarity = torch.from_numpy(sift0.descriptors) @ torch.from_numpy(sift1.descriptors).T
        best, nearest = similarity.topk(2, dim=1)
        distance = (2 - 2 * best).clamp(min=0).sqrt()
        mutual = similarity.argmax(dim=0)[nearest[:, 0]] == torch.arange(len(sift0.xy))
        kept = (mutual & (distance[:, 0] < self._options.ratio * distance[:, 1])).numpy()
        return sift0.xy[kept], sift1.xy[nearest[:, 0].numpy()[kept]]


def judge_pair(pair: Pair, xy0: Array, xy1: Array, options: CheckOptions) -> PairCheck:
    """What matched positions (of undistorted photos) say about the poses of a pair."""
    camera0, camera1 = pair.view0.camera, pair.view1.camera
    limit_px = options.max_error_share * max(camera0.width, camera0.height, camera1.width, camera1.height)
    k0, k1 = (torch.from_numpy(camera.matrix) for camera in (camera0, camera1))
    cam1_from_cam0 = relative_pose(*(torch.from_numpy(v.cam_from_world) for v in (pair.view0, pair.view1)))
    points0, points1 = torch.from_numpy(xy0), torch.from_numpy(xy1)
    fundamental = fundamental_from_cameras(k0, k1, cam1_from_cam0)
    errors = (sum(symmetric_epipolar_distance(fundamental, points0, points1)) / 2).numpy()  # type: ignore[union-attr]
    moved = (warp_points(infinite_homography(k0, k1, cam1_from_cam0), points0) - points1).norm(dim=-1).numpy()
    depth0, depth1, angle = _triangulate(k0.numpy(), k1.numpy(), cam1_from_cam0.numpy(), xy0, xy1)
    in_front = ((depth0 > 0) & (depth1 > 0)) | (angle < _MIN_RAY_ANGLE_DEG)
    agreeing = ((errors < limit_px) & in_front) | (moved < limit_px)
    # matches most of which the poses explain cannot speak for another geometry
    undecided = 2 * agreeing.sum() < len(xy0)
    consistent = _num_consistent(xy0, xy1, limit_px) if undecided else int(agreeing.sum())
    measured = agreeing & (angle >= _MIN_RAY_ANGLE_DEG)
    order = np.argsort(~agreeing, kind="stable")
    return PairCheck(
        pair=pair,
        verdict=_verdict(errors[agreeing], len(xy0), consistent, limit_px, options),
        num_matches=len(xy0),
        num_agreeing=int(agreeing.sum()),
        num_consistent=consistent,
        median_error_px=_median(errors),
        agreeing_error_px=_median(errors[agreeing]),
        parallax_px=float(np.percentile(moved[agreeing], _PARALLAX_PERCENTILE)) if agreeing.any() else float("nan"),
        planar_share=_planar_share(xy0[agreeing], xy1[agreeing], limit_px),
        depth_range0=_range(depth0[measured], options),
        depth_range1=_range(depth1[measured], options),
        xy0=xy0[order].astype(np.float32),
        xy1=xy1[order].astype(np.float32),
    )


def _verdict(
    agreeing_errors: Array, num_matches: int, num_consistent: int, limit_px: float, options: CheckOptions
) -> Verdict:
    num_agreeing, error_px = len(agreeing_errors), _median(agreeing_errors)
    enough = num_agreeing >= options.min_matches and num_agreeing >= options.min_agreeing_share * num_matches
    # matches that lie anywhere within the limit do not agree; beside repetitive content, where many matches follow
    # another geometry, those that agree must do so closely
    if enough and error_px < limit_px / (2 if num_agreeing >= num_consistent / 2 else 4):
        return "confirmed"
    if num_consistent >= options.min_contradicting and num_consistent >= options.min_agreeing_share * num_matches:
        return "refuted"
    return "unsupported"


def _extract_sift(view: View, options: CheckOptions) -> _Sift:
    grey = _stretched(np.asarray(cv2.cvtColor(read_image(view.image_path), cv2.COLOR_RGB2GRAY), dtype=np.uint8))
    height, width = grey.shape
    scale = min(1.0, options.longest_px / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA) if scale < 1 else grey
    keypoints, descriptors = cv2.SIFT.create(options.max_keypoints).detectAndCompute(small, None)
    if descriptors is None:
        return _Sift(np.zeros((0, 2)), np.zeros((0, 128), dtype=np.float32))
    xy = (np.array([keypoint.pt for keypoint in keypoints]) + 0.5) * [width / size[0], height / size[1]] - 0.5
    if is_distorted(view.camera):
        xy = undistort_pixels(view.camera, xy, replace(view.camera, model="PINHOLE", distortion=()))
    root = np.sqrt(descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-12)).astype(np.float32)
    seen = np.isfinite(xy).all(axis=1)
    return _Sift(xy[seen], root[seen])


def _stretched(grey: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A pale picture (haze, turbid water, thermal cameras) over the whole range: SIFT's threshold is one of contrast."""
    low, high = np.percentile(grey, _TONE_PERCENTILES)
    if high - low >= _PALE_LEVELS or high <= low:
        return grey
    return np.clip((grey - low) * (255 / (high - low)), 0, 255).astype(np.uint8)


def _num_consistent(xy0: Array, xy1: Array, limit_px: float) -> int:
    """Matches that the best fundamental matrix explains, whatever the poses."""
    if len(xy0) < 8:
        return 0
    _, inliers = cv2.findFundamentalMat(xy0, xy1, cv2.FM_RANSAC, limit_px, 0.999, 2000)
    return 0 if inliers is None else int(inliers.sum())


def _planar_share(xy0: Array, xy1: Array, limit_px: float) -> float:
    if len(xy0) < 8:
        return float("nan")
    _, inliers = cv2.findHomography(xy0, xy1, cv2.RANSAC, limit_px, None, 500, 0.999)
    return 0.0 if inliers is None else float(inliers.mean())


def _triangulate(k0: Array, k1: Array, cam1_from_cam0: Array, xy0: Array, xy1: Array) -> tuple[Array, Array, Array]:
    """Depths in both cameras of the points where rays come closest, and the angle between the rays in degrees."""
    ones = np.ones((len(xy0), 1))
    rotation = cam1_from_cam0[:3, :3]
    centre1 = -rotation.T @ cam1_from_cam0[:3, 3]
    ray0 = np.c_[xy0, ones] @ np.linalg.inv(k0).T
    ray1 = np.c_[xy1, ones] @ np.linalg.inv(k1).T @ rotation
    a, b, c = ((p * q).sum(axis=1) for p, q in ((ray0, ray0), (ray0, ray1), (ray1, ray1)))
    along0, along1 = ray0 @ centre1, ray1 @ centre1
    determinant = np.maximum(a * c - b * b, 1e-12 * a * c)
    angle = np.degrees(np.arctan2(np.sqrt(determinant), b))
    return (c * along0 - b * along1) / determinant, (b * along0 - a * along1) / determinant, angle


def _range(depths: Array, options: CheckOptions) -> tuple[float, float] | None:
    if len(depths) < options.min_matches:
        return None
    near, far = np.percentile(depths, _DEPTH_PERCENTILES)
    return (float(near), float(far)) if near > 0 else None


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")
