"""Whether posed photos can teach anything: right poses, a baseline, different pictures, enough of them; else the reason why not.

Photos whose poses are wrong, and pairs without baseline, are left out and counted. Where too little is left, adaptation is
refused: weights tuned to wrong lines are worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from posfeat.data.check import CheckOptions, PairCheck, Progress, SceneCheck, check_scene
from posfeat.data.pairs import PairOptions, choose_pairs, pair_table
from posfeat.types import Array, DataError, Pair, View

FEWEST_PAIRS = 30
_LEAST_OVERLAP, _LEAST_COVISIBLE = 0.2, 0.005  # with less, matching confirms hardly any pair
_CONFIRMED = 0.1  # what a pair that matching confirms has in common at least
_MOST_REFUTED = 0.5
_CLEAR = 2.0  # SIFT's own errors look like the least parallax now and then
_SOME = 0.1


@dataclass(frozen=True)
class Material:
    """What is usable of somebody's posed photos, and what is to be said of the rest."""

    views: list[View]
    pairs: list[Pair]
    common: Array  # (N, N): how much two views show in common, 0..1
    warnings: list[str]


def examine(
    views: Sequence[View],
    pair_options: PairOptions,
    check_options: CheckOptions,
    fewest_photos: int,
    trust_poses: bool = False,
    progress: Progress | None = None,
) -> Material:
    """Judge the poses by matching and keep what is right; DataError says why there is too little."""
    require_photos(len(views), fewest_photos, "")
    scenes = [list(group) for _, group in groupby(sorted(views, key=lambda v: v.scene), key=lambda v: v.scene)]
    if trust_poses:
        results = [_unchecked(scene, pair_options) for scene in scenes]
    else:
        results = [check_scene(scene, pair_options, check_options, None, progress) for scene in scenes]
        _require_right_poses(results, check_options)
    pairs = [pair for result in results for pair in result.pairs if pair.has_baseline]
    paired = {view.name for pair in pairs for view in (pair.view0, pair.view1)}
    if len(pairs) < FEWEST_PAIRS:
        raise DataError(
            f"only {len(pairs)} pairs of these photos have enough in common, and a baseline; {FEWEST_PAIRS} are needed: "
            "take more photos, that overlap by half, from positions some steps apart"
        )
    usable = [[view for view in result.views if view.name in paired] for result in results]
    kept = [view for scene in usable for view in scene]
    require_photos(len(kept), fewest_photos, " that are in a usable pair")
    common = _block_diagonal([common_content(v, r.checks) for v, r in zip(usable, results, strict=True)])
    return Material(kept, pairs, common, _warnings(list(views), results, kept, check_options))


def require_photos(count: int, fewest: int, which: str) -> None:
    """Refuse too few photos."""
    if count < fewest:
        raise DataError(
            f"{count} photos{which} are too few to learn from and to tell whether it helped; give at least {fewest}"
        )


def common_content(views: Sequence[View], checks: Sequence[PairCheck]) -> Array:
    """How much every two views of one scene show in common: of a model's points, else of their fields of view.

    What matching confirmed counts whatever the poses say of the fields of view.
    """
    count = len(views)
    common = np.zeros((count, count))
    table = pair_table(list(views))
    by_points = np.where(table.covisible >= _LEAST_COVISIBLE, table.covisible, 0)
    by_view = np.where(table.overlap >= _LEAST_OVERLAP, table.overlap, 0)
    common[table.index0, table.index1] = np.where(np.isnan(table.covisible), by_view, by_points)
    place = {view.name: number for number, view in enumerate(views)}
    for check in checks:
        name0, name1 = check.pair.view0.name, check.pair.view1.name
        if check.verdict == "confirmed" and name0 in place and name1 in place:
            low, high = sorted((place[name0], place[name1]))
            common[low, high] = max(common[low, high], _CONFIRMED)
    return np.asarray(np.maximum(common, common.T))


def _unchecked(views: list[View], options: PairOptions) -> SceneCheck:
    return SceneCheck(views=views, checks=[], wrong_views=[], pairs=choose_pairs(views, options))


def _require_right_poses(results: Sequence[SceneCheck], options: CheckOptions) -> None:
    """Refuse poses that matching contradicts or cannot support, and photos that were all taken from one place."""
    checks = [check for result in results for check in result.checks]
    confirmed = [check for check in checks if check.verdict == "confirmed"]
    refuted = len([check for check in checks if check.verdict == "refuted"])
    if refuted > _MOST_REFUTED * (refuted + len(confirmed)):
        raise DataError(
            f"the poses are wrong: SIFT matches of {refuted} of {refuted + len(confirmed)} pairs agree on another "
            "geometry; `posfeat data check` draws them, and docs/data.md tells of axes and directions"
        )
    if len(confirmed) < FEWEST_PAIRS:
        raise DataError(
            f"the poses cannot be verified: SIFT confirms {len(confirmed)} of {len(checks)} pairs, {FEWEST_PAIRS} are "
            "needed; if the photos overlap and the poses are known to be right, give --trust-poses"
        )
    turning = sum(shows_no_parallax(check, options, _CLEAR) for check in confirmed)
    if len(confirmed) - turning < FEWEST_PAIRS:
        raise DataError(
            f"the photos were taken from one place: {turning} of {len(confirmed)} pairs show hardly any parallax, so that "
            "poses tell nothing of where a point is; move the camera between photos"
        )


def shows_no_parallax(check: PairCheck, options: CheckOptions, factor: float = 1.0) -> bool:
    """Whether the matches of a confirmed pair show less than so many times the least parallax of a baseline."""
    camera = check.pair.view0.camera
    return check.parallax_px < factor * options.min_parallax_share * max(camera.width, camera.height)


def _warnings(views: list[View], results: Sequence[SceneCheck], kept: list[View], options: CheckOptions) -> list[str]:
    wrong = [name for result in results for name in result.wrong_views]
    confirmed = [check for result in results for check in result.checks if check.verdict == "confirmed"]
    turning = sum(shows_no_parallax(check, options) for check in confirmed)
    lines = []
    if not confirmed:
        lines.append("the poses were not verified, as asked; with wrong ones these numbers mean nothing")
    if wrong:
        lines.append(f"{len(wrong)} photos have wrong poses and are left out: {_some(wrong)}")
    alone = len(views) - len(kept) - len(wrong)
    if alone > 0:
        lines.append(f"{alone} photos are in no usable pair and are left out")
    if turning > _SOME * len(confirmed):
        lines.append(f"{turning} of {len(confirmed)} pairs show no parallax and are left out")
    return lines


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def _block_diagonal(blocks: Sequence[Array]) -> Array:
    size = sum(len(block) for block in blocks)
    whole, start = np.zeros((size, size)), 0
    for block in blocks:
        whole[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return whole
