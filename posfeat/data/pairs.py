"""Which two views make a training pair: enough common content, not too much turning, a real baseline.

Overlap is the smaller of the two shares of a view that the other also sees. Where a structure-from-motion model gives points, it
counts shared points; elsewhere it casts a grid of rays from each view to a ladder of depths and counts those that the other
view sees. The ladder spans the view's own depths where they are known, and otherwise a wide guess from how far apart
the scene's cameras stand: then overlap ranks pairs but proves nothing, and ``posfeat data check`` verifies them by matching.
Two photos taken from (almost) one place have no epipolar lines; such pairs are marked, and left out unless asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch

from posfeat.geometry.pose import rotation_angle_deg
from posfeat.options import check_options, described
from posfeat.types import Array, Pair, View

_GRID = 8
_NUM_DEPTHS = 6
_GUESSED_DEPTHS = (0.3, 30.0)
"""Depths of a scene without points, as multiples of the median distance of its cameras from their middle."""

_OVERLAP_BINS = 10
_POINTS_AT_ONCE = 16384


@dataclass(frozen=True)
class PairOptions:
    """What a usable pair is, and how many a scene may give."""

    min_overlap: float = described(0.2, "least overlap of the fields of view", low=0, high=1)
    min_covisible: float = described(0.05, "least share of common points, where a model has points", low=0, high=1)
    max_overlap: float = described(1.0, "greatest overlap", low=0, high=1)
    max_rotation_deg: float = described(80.0, "greatest relative rotation (the paper's 80)", low=0, high=180)
    min_parallax_deg: float = described(0.5, "angle under which the nearest content sees the baseline", low=0, high=180)
    max_parallax_deg: float = described(60.0, "same angle for content at middle depth, where known", low=0, high=180)
    rotation_only: bool = described(False, "also take pairs without baseline, marked as such")
    max_pairs_per_scene: int = described(5000, "most pairs of one scene (the paper's 5000)", low=1)
    max_imbalance: float = described(10.0, "most pairs of one scene as a multiple of the median scene's", low=1)
    seed: int = described(0, "which pairs stay where a limit leaves some out", low=0)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class PairTable:
    """What is known of the pairs of one scene's views; one row a pair, first index below second."""

    index0: npt.NDArray[np.int64]
    index1: npt.NDArray[np.int64]
    overlap: Array  # of the fields of view
    covisible: Array  # share of common points, NaN where a view has none
    rotation_deg: Array
    baseline: Array  # in the world's unit
    near_parallax_deg: Array  # of the nearest content
    parallax_deg: Array  # of content at middle depth, NaN where depths are only guessed


def choose_pairs(views: list[View], options: PairOptions) -> list[Pair]:
    """Usable pairs of views of the same scene, balanced over scenes and, within a scene, over overlap."""
    chosen: list[Pair] = []
    for _, group in groupby(sorted(views, key=lambda view: view.scene), key=lambda view: view.scene):
        chosen += _scene_pairs(list(group), options)
    return _balanced(chosen, options)


def limit_pairs(pairs: list[Pair], options: PairOptions) -> list[Pair]:
    """Pairs that somebody else chose, held to the limits that need poses only: rotation, baseline and number."""
    rotations = [_rotation_deg(pair.view0.cam_from_world, pair.view1.cam_from_world[None])[0] for pair in pairs]
    turned = [pair for pair, angle in zip(pairs, rotations, strict=True) if angle <= options.max_rotation_deg]
    scenes = groupby(sorted(turned, key=lambda pair: pair.view0.scene), key=lambda pair: pair.view0.scene)
    marked = [pair for _, scene in scenes for pair in _marked_baselines(list(scene), options)]
    return _balanced([pair for pair in marked if pair.has_baseline or options.rotation_only], options)


def pair_table(views: list[View]) -> PairTable:
    """Measure every pair of one scene's views."""
    count = len(views)
    if count < 2:
        return PairTable(*(np.zeros(0, dtype=np.int64),) * 2, *(np.zeros(0),) * 6)
    poses = np.stack([view.cam_from_world for view in views])
    depths, known = _depth_ladders(views, poses)
    projections = np.stack([view.camera.matrix @ view.cam_from_world[:3] for view in views])
    sizes = np.array([[view.camera.width, view.camera.height] for view in views])
    shares = np.stack([_seen_share(i, views, poses, depths, projections, sizes) for i in range(count)])
    index0, index1 = np.triu_indices(count, k=1)
    centres = _centres(poses)
    baseline = np.linalg.norm(centres[index0] - centres[index1], axis=1)
    rotation = np.concatenate([_rotation_deg(poses[i], poses[i + 1 :]) for i in range(count - 1)])
    middle = np.sqrt(depths[:, 0] * depths[:, -1])
    guessed = ~(known[index0] & known[index1])
    return PairTable(
        index0=index0,
        index1=index1,
        overlap=np.minimum(shares[index0, index1], shares[index1, index0]),
        covisible=_covisible_shares(views)[index0, index1],
        rotation_deg=rotation,
        baseline=baseline,
        near_parallax_deg=_parallax_deg(baseline, np.minimum(depths[index0, 0], depths[index1, 0])),
        parallax_deg=np.where(guessed, np.nan, _parallax_deg(baseline, np.minimum(middle[index0], middle[index1]))),
    )


def usable_rows(table: PairTable, options: PairOptions) -> npt.NDArray[np.bool_]:
    """Which rows keep the limits on overlap, rotation and too wide a baseline; a baseline may still be missing."""
    has_points = np.isfinite(table.covisible)
    enough = np.where(has_points, table.covisible >= options.min_covisible, table.overlap >= options.min_overlap)
    narrow = ~(table.parallax_deg > options.max_parallax_deg)
    return enough & (table.overlap <= options.max_overlap) & (table.rotation_deg <= options.max_rotation_deg) & narrow


def _scene_pairs(views: list[View], options: PairOptions) -> list[Pair]:
    table = pair_table(views)
    has_baseline = table.near_parallax_deg >= options.min_parallax_deg
    rows = np.flatnonzero(usable_rows(table, options) & (has_baseline | options.rotation_only))
    return [
        Pair(
            view0=views[table.index0[row]],
            view1=views[table.index1[row]],
            overlap=float(table.overlap[row] if np.isnan(table.covisible[row]) else table.covisible[row]),
            has_baseline=bool(has_baseline[row]),
        )
        for row in rows
    ]


def _marked_baselines(pairs: list[Pair], options: PairOptions) -> list[Pair]:
    """The pairs of one scene, those marked whose nearest content hardly sees their baseline."""
    views = list({view.image_path: view for pair in pairs for view in (pair.view0, pair.view1)}.values())
    poses = np.stack([view.cam_from_world for view in views])
    near, centres = _depth_ladders(views, poses)[0][:, 0], _centres(poses)
    row = {view.image_path: index for index, view in enumerate(views)}
    ends = np.array([[row[pair.view0.image_path], row[pair.view1.image_path]] for pair in pairs])
    baseline = np.linalg.norm(centres[ends[:, 0]] - centres[ends[:, 1]], axis=1)
    real = _parallax_deg(baseline, near[ends].min(axis=1)) >= options.min_parallax_deg
    return [
        replace(pair, has_baseline=pair.has_baseline and bool(is_real))
        for pair, is_real in zip(pairs, real, strict=True)
    ]


def _balanced(pairs: list[Pair], options: PairOptions) -> list[Pair]:
    """Cut the scenes (which stand one after another) to their limits."""
    scenes = [list(group) for _, group in groupby(pairs, key=lambda pair: pair.view0.scene)]
    if not scenes:
        return []
    median = float(np.median([len(scene) for scene in scenes]))
    limit = min(options.max_pairs_per_scene, int(np.ceil(options.max_imbalance * median)))
    rng = np.random.default_rng(options.seed)
    return [pair for scene in scenes for pair in _spread(scene, limit, rng)]


def _spread(pairs: list[Pair], limit: int, rng: np.random.Generator) -> list[Pair]:
    """At most ``limit`` pairs, taken in turn from bins of overlap, so that easy and hard ones stay alike."""
    if len(pairs) <= limit:
        return pairs
    overlaps = np.nan_to_num(np.array([pair.overlap for pair in pairs]), nan=0.0)
    bins = np.minimum((overlaps * _OVERLAP_BINS).astype(np.int64), _OVERLAP_BINS - 1)
    shuffled = rng.permutation(len(pairs))
    turn = np.zeros(len(pairs), dtype=np.int64)  # how manieth of its bin
    for number in np.unique(bins):
        members = shuffled[bins[shuffled] == number]
        turn[members] = np.arange(len(members))
    first = shuffled[np.argsort(turn[shuffled], kind="stable")][:limit]
    return [pairs[row] for row in np.sort(first)]


def _rotation_deg(pose: Array, others: Array) -> Array:
    return rotation_angle_deg(torch.from_numpy(others[:, :3, :3] @ pose[:3, :3].T)).numpy()


def _centres(poses: Array) -> Array:
    """Camera positions (N, 3)."""
    return -np.einsum("nji,nj->ni", poses[:, :3, :3], poses[:, :3, 3])


def _parallax_deg(baseline: Array, depth: Array) -> Array:
    """Angle between two rays to a point before the middle of the baseline."""
    return np.degrees(2 * np.arctan2(baseline, 2 * depth))


def _depth_ladders(views: list[View], poses: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Depths (N, K) to cast each view's rays to, from near to far, and whether they are known."""
    known = np.array([view.depth_range is not None for view in views])
    ranges = [view.depth_range for view in views if view.depth_range is not None]
    typical: Iterable[float] = np.median(np.array(ranges), axis=0) if ranges else _guessed_range(poses)
    ends = np.array([view.depth_range or tuple(typical) for view in views])
    steps = np.linspace(0, 1, _NUM_DEPTHS)
    return ends[:, :1] ** (1 - steps) * ends[:, 1:] ** steps, known


def _guessed_range(poses: Array) -> Array:
    centres = _centres(poses)
    spread = float(np.median(np.linalg.norm(centres - np.median(centres, axis=0), axis=1)))
    return np.array(_GUESSED_DEPTHS) * (spread if spread > 0 else 1.0)


def _seen_share(
    index: int, views: list[View], poses: Array, depths: Array, projections: Array, sizes: npt.NDArray[np.int64]
) -> Array:
    """The share of this view's content that every view of the scene has in its picture (N)."""
    camera = views[index].camera
    x = (np.arange(_GRID) + 0.5) / _GRID * camera.width - 0.5
    y = (np.arange(_GRID) + 0.5) / _GRID * camera.height - 0.5
    pixels = np.stack([*np.meshgrid(x, y), np.ones((_GRID, _GRID))], axis=-1).reshape(-1, 3)
    rays = pixels @ np.linalg.inv(camera.matrix).T
    points = (rays[None] * depths[index][:, None, None]).reshape(-1, 3)
    world = (points - poses[index][:3, 3]) @ poses[index][:3, :3]
    image = (world @ projections[:, :, :3].reshape(-1, 3).T).reshape(len(world), -1, 3) + projections[:, :, 3]
    in_front = image[..., 2] > 0
    xy = image[..., :2] / np.where(in_front, image[..., 2], 1.0)[..., None]
    inside = (xy >= -0.5).all(axis=-1) & (xy <= sizes - 0.5).all(axis=-1)
    return np.asarray((in_front & inside).mean(axis=0))


def _covisible_shares(views: list[View]) -> Array:
    """Common points as a share of the larger view's (N, N); NaN where a view has no points."""
    counts = np.array([0 if view.point_ids is None else len(view.point_ids) for view in views])
    shares = np.full((len(views), len(views)), np.nan)
    if not counts.any():
        return shares
    ids = np.concatenate([view.point_ids for view in views if view.point_ids is not None])
    _, column = np.unique(ids, return_inverse=True)
    row = np.repeat(np.arange(len(views)), counts)
    common = np.zeros_like(shares)
    for start in range(0, int(column.max()) + 1, _POINTS_AT_ONCE):
        here = (column >= start) & (column < start + _POINTS_AT_ONCE)
        seen = np.zeros((len(views), _POINTS_AT_ONCE), dtype=np.float32)
        seen[row[here], column[here] - start] = 1
        common += seen @ seen.T
    larger = np.maximum(counts[:, None], counts[None])
    both = (counts[:, None] > 0) & (counts[None] > 0)
    shares[both] = common[both] / larger[both]
    return shares
