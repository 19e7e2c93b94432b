"""A feature store -> a list of pairs worth matching.

All pairs of a few images; neighbours in the order of names for videos, with loops closed by similarity; the most similar
images of a large set; near neighbours among known poses; images that share points of a model; or somebody's own list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from posfeat.options import check_options, described
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.known_cameras import known_views
from posfeat.pipeline.match import all_pairs, read_pairs, write_pairs
from posfeat.pipeline.retrieval import index_images
from posfeat.pipeline.shards import Shards
from posfeat.types import Array, DataError, OptionsError, View

Method = Literal["auto", "exhaustive", "sequential", "retrieval", "poses", "covisibility", "list"]
Pairs = list[tuple[str, str]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PairSelectionOptions:
    """Which pairs of images are matched."""

    method: Method = described("auto", "how pairs are chosen; auto takes all pairs of few images, else retrieval")
    max_exhaustive: int = described(60, "auto takes all pairs of so many images at most", low=2)
    neighbours: int = described(20, "partners of an image, by retrieval, poses, or shared points", low=1)
    overlap: int = described(10, "sequential: so many images that follow, and then twice, four times ... as far", low=1)
    loop_closure: bool = described(True, "sequential: also similar images from elsewhere in the sequence")
    max_turn_deg: float = described(60.0, "poses: cameras look in directions at most so far apart", low=0, high=180)
    min_shared_points: int = described(15, "covisibility: so many points of the model are seen by both", low=1)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class PairsReport:
    """What was chosen, by which method, out of how many images."""

    method: Method
    num_images: int
    num_pairs: int
    without_features: tuple[str, ...]  # images that have no keypoints, so that no pair would help


def select_pairs(
    features_path: Path | Shards,
    output: Path,
    options: PairSelectionOptions | None = None,
    *,
    images: Collection[str] | None = None,
    cameras: Path | None = None,
    pair_list: Path | None = None,
    progress: Progress | None = None,
) -> PairsReport:
    """Choose pairs among images of a feature store, all or those named, and write them to a text file.

    ``cameras`` are posed photos in any layout that the package reads (poses, covisibility), ``pair_list`` is for ``list``.
    """
    options = options or PairSelectionOptions()
    with FeatureStore(features_path) as store:
        wanted = [name for name in store.names() if images is None or name in images]
        names = sorted((name for name in wanted if store.num_keypoints(name)), key=natural_order)
        empty = sorted(set(wanted) - set(names))
        method = _method(options, len(names), cameras, pair_list)
        if method == "exhaustive":
            pairs = all_pairs(names)
        elif method == "sequential":
            pairs = sequential_pairs(names, options.overlap)
            if options.loop_closure:
                pairs += _loops(store, names, options, progress)
        elif method == "retrieval":
            pairs = similar_pairs(store, names, options.neighbours, progress)
        elif method == "list":
            assert pair_list is not None
            pairs = read_pairs(pair_list, names)
        else:
            assert cameras is not None
            pairs = _pairs_of_views(cameras, names, method, options)
    chosen = _each_once(pairs)
    write_pairs(output, chosen)
    return PairsReport(method, len(names), len(chosen), tuple(empty))


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sorts ``2.jpg`` before ``10.jpg``."""
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(re.split(r"(\d+)", name))]


def sequential_pairs(names: Sequence[str], overlap: int) -> Pairs:
    """Each name with those up to ``overlap`` places on, and with those twice, four times ... as far."""
    far, step = [], 2 * overlap
    while step < len(names):
        far.append(step)
        step *= 2
    steps = [*range(1, overlap + 1), *far]
    return [(names[i], names[i + step]) for i in range(len(names)) for step in steps if i + step < len(names)]


def similar_pairs(
    store: FeatureStore, names: Sequence[str], neighbours: int, progress: Progress | None = None, apart: int = 0
) -> Pairs:
    """Each image with its most similar ones, of those that stand more than ``apart`` places from it."""
    if len(names) < 2:
        return []
    index = index_images(store, names, progress)
    # an image itself and its neighbours in the sequence are most similar to it, and do not count
    rows, _ = index.nearest(index.vectors, neighbours + 2 * apart + 1)
    found: Pairs = []
    for i, similar in enumerate(rows.tolist()):
        others = [j for j in similar if abs(i - j) > apart][:neighbours]
        found += [(names[i], names[j]) for j in others]
    return found


def near_pairs(views: Sequence[View], neighbours: int, max_turn_deg: float) -> Pairs:
    """Each view with the nearest others that look the same way."""
    centres = np.array([-view.cam_from_world[:3, :3].T @ view.cam_from_world[:3, 3] for view in views])
    directions = np.array([view.cam_from_world[2, :3] for view in views])
    found: Pairs = []
    for i, view in enumerate(views):
        distance = np.linalg.norm(centres - centres[i], axis=1)
        distance[directions @ directions[i] < np.cos(np.radians(max_turn_deg))] = np.inf
        distance[i] = np.inf
        nearest = np.argsort(distance, kind="stable")[:neighbours]
        found += [(view.name, views[j].name) for j in nearest if np.isfinite(distance[j])]
    return found


def covisible_pairs(views: Sequence[View], neighbours: int, min_shared_points: int) -> Pairs:
    """Each view with those that share the most points of the model with it."""
    seen = [view.point_ids if view.point_ids is not None else np.zeros(0, np.int64) for view in views]
    ids = np.concatenate([*seen, np.zeros(0, np.int64)])
    viewers = np.repeat(np.arange(len(views)), [len(points) for points in seen])
    order = np.argsort(ids, kind="stable")
    ids, viewers = ids[order], viewers[order]
    found: Pairs = []
    for i, points in enumerate(seen):
        shared = _count_viewers(points, ids, viewers, len(views))
        shared[i] = 0
        most = np.argsort(-shared, kind="stable")[:neighbours]
        found += [(views[i].name, views[j].name) for j in most if shared[j] >= min_shared_points]
    return found


def _count_viewers(
    points: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], viewers: npt.NDArray[np.int64], num_views: int
) -> Array:
    """How many of the points each view sees; ``ids`` are sorted, and ``viewers`` says who sees each."""
    first, end = np.searchsorted(ids, points, "left"), np.searchsorted(ids, points, "right")
    counts = end - first
    rows = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
    return np.bincount(viewers[rows], minlength=num_views).astype(np.float64)


def _method(options: PairSelectionOptions, num_images: int, cameras: Path | None, pair_list: Path | None) -> Method:
    """The method asked for, or the one that fits the number of images; what it needs must be given."""
    method = options.method
    if method == "auto":
        method = "list" if pair_list else "exhaustive" if num_images <= options.max_exhaustive else "retrieval"
    if method in ("poses", "covisibility") and cameras is None:
        raise OptionsError(f"pairs by {method} need posed photos; name their folder with --cameras")
    if method == "list" and pair_list is None:
        raise OptionsError("pairs from a list need the list; name it with --list")
    return method


def _loops(
    store: FeatureStore, names: Sequence[str], options: PairSelectionOptions, progress: Progress | None
) -> Pairs:
    if len(names) <= options.overlap + 1:
        return []
    return similar_pairs(store, names, max(2, options.neighbours // 4), progress, apart=options.overlap)


def _pairs_of_views(cameras: Path, names: Sequence[str], method: Method, options: PairSelectionOptions) -> Pairs:
    known = known_views(cameras, set(names))
    views = [known[name] for name in names if name in known]
    if method == "poses":
        return near_pairs(views, options.neighbours, options.max_turn_deg)
    pairs = covisible_pairs(views, options.neighbours, options.min_shared_points)
    if not pairs:
        raise DataError(f"no two images share points in {cameras}; choose pairs by poses instead")
    return pairs


def _each_once(pairs: Collection[tuple[str, str]]) -> Pairs:
    """Pairs without repetitions, turned or not, and without images paired with themselves."""
    names = sorted({name for pair in pairs for name in pair}, key=lambda name: (natural_order(name), name))
    place = {name: number for number, name in enumerate(names)}  # of millions of pairs, none is cut into its digits
    unique = {pair if place[pair[0]] < place[pair[1]] else pair[::-1] for pair in pairs if pair[0] != pair[1]}
    return sorted(unique, key=lambda pair: (place[pair[0]], place[pair[1]]))
