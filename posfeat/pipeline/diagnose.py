"""Why there is no model, or why a photo is not in it: too few matches, no baseline, wrong intrinsics, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from posfeat.interop.colmap import Model, from_colmap_camera, registered_images
from posfeat.interop.colmap_database import ColmapDatabase, PairSummary

ENOUGH_MATCHES = 15  # COLMAP looks at no pair with fewer
LEAST_PARALLAX_DEG = 1.0
SAME_PLACE_PX = 1.0  # median movement of the matches of a photo and its copy
_PAIRS_LOOKED_AT = 10
_MOST = 0.9
_FOCAL_CHANGE = 1.25  # a known focal length that is off by more than this was not known
_OVERLAP_REMEDY = "take photos that overlap by more than half, or extract more keypoints"


def why_no_model(database: ColmapDatabase) -> str:
    """One line: what keeps the photos of a database from giving a model, and what to do."""
    num_images, pairs = len(database.image_ids()), database.pairs()
    if num_images < 2:
        return f"a model needs at least two photos, and there is {num_images}; add photos from other places"
    if all(len(database.keypoints(name)) < ENOUGH_MATCHES for name in database.image_ids()):
        return "no photo has keypoints enough: all are blank, blurred or masked; take sharper photos of textured things"
    best = max(pairs, key=lambda pair: pair.num_matches, default=None)
    if best is None or best.num_matches < ENOUGH_MATCHES:
        found = "no pair has matches" if best is None else f"the best pair, {_names(best)}, has {best.num_matches}"
        return f"too few matches: {found}, and {ENOUGH_MATCHES} are needed; {_OVERLAP_REMEDY}"
    verified = sorted((pair for pair in pairs if pair.num_inliers), key=lambda pair: -pair.num_inliers)
    if not verified:
        return (
            f"no matches can be trusted: those of the best pair, {_names(best)} ({best.num_matches}), agree on no "
            f"geometry; {_OVERLAP_REMEDY}"
        )
    return _why_no_start(database, verified)


def doubts(database: ColmapDatabase, model: Model) -> list[str]:
    """Lines on what speaks against a model although there is one."""
    found = []
    verified = [pair for pair in database.pairs() if pair.num_inliers]
    inliers = sum(pair.num_inliers for pair in verified)
    flat = sum(pair.num_inliers for pair in verified if pair.configuration.startswith(("PLANAR", "PANORAMIC")))
    if flat > _MOST * inliers:
        found.append(
            "homographies explain nearly all matches: the scene is flat, or the camera was only turned; depths and focal "
            "lengths of this model may mean nothing"
        )
    known = [pair for pair in verified if all(map(database.focal_is_known, (pair.name0, pair.name1)))]
    if known and sum(pair.configuration == "UNCALIBRATED" for pair in known) > len(known) / 2:
        found.append("matches contradict the known focal lengths; check them, or leave them out to have them estimated")
    images = registered_images(model)
    changes = [_focal_change(database, image) for image in images if database.focal_is_known(str(image.name))]
    changed = sum(max(change, 1 / change) > _FOCAL_CHANGE for change in changes)
    if changed:
        found.append(
            f"the known focal length of {changed} of {len(images)} photos turned out to be off by more than a quarter"
        )
    num_photos = len(database.image_ids())
    if len(images) < num_photos / 2:
        found.append(f"only {len(images)} of {num_photos} photos are in the largest model")
    return found


def why_left_out(database: ColmapDatabase, in_model: Collection[str]) -> dict[str, str]:
    """A line for every photo that is not in the model."""
    pairs_of: dict[str, list[PairSummary]] = {name: [] for name in database.image_ids()}
    for pair in database.pairs():
        pairs_of[pair.name0].append(pair)
        pairs_of[pair.name1].append(pair)
    return {
        name: _why_not_placed(database, name, pairs, in_model)
        for name, pairs in pairs_of.items()
        if name not in in_model
    }


def _why_not_placed(
    database: ColmapDatabase, name: str, pairs: Sequence[PairSummary], in_model: Collection[str]
) -> str:
    num_keypoints = len(database.keypoints(name))
    if num_keypoints < ENOUGH_MATCHES:
        return f"{num_keypoints} keypoints: it is blank, blurred or masked"
    if not pairs:
        return "no pair with it was matched"
    best = max(pairs, key=lambda pair: pair.num_matches)
    if best.num_matches < ENOUGH_MATCHES:
        return f"at most {best.num_matches} matches, with {_other(best, name)}: it shows something else"
    verified = [pair for pair in pairs if pair.num_inliers]
    if not verified:
        return f"its {best.num_matches} matches with {_other(best, name)} agree on no geometry"
    joined = [pair for pair in verified if _other(pair, name) in in_model]
    if not joined:
        others = ", ".join(sorted({_other(pair, name) for pair in verified})[:3])
        return f"it is connected only with photos outside the model ({others})"
    best = max(joined, key=lambda pair: pair.num_inliers)
    return f"its {best.num_inliers} verified matches with {_other(best, name)} lead to too few 3D points to place it"


def _why_no_start(database: ColmapDatabase, verified: Sequence[PairSummary]) -> str:
    """Pairs are verified, and still nothing can be built on any of them; most inliers first."""
    looked_at = verified[:_PAIRS_LOOKED_AT]
    if max(_movement_px(database, pair) for pair in looked_at) < SAME_PLACE_PX:
        return "no baseline: the photos are copies of each other; take photos from different places"
    known = [pair for pair in looked_at if all(map(database.focal_is_known, (pair.name0, pair.name1)))]
    if known and sum(pair.configuration == "UNCALIBRATED" for pair in known) > len(known) / 2:
        return (
            f"wrong intrinsics: matches agree on one geometry ({_names(known[0])}: {known[0].num_inliers}), but not with the "
            "known focal lengths; check them, or leave them out to have them estimated"
        )
    widest = max(database.parallax_deg(pair.name0, pair.name1) for pair in looked_at)
    if widest < LEAST_PARALLAX_DEG:
        return (
            f"no baseline: in the best pairs rays meet at {widest:.2f} degrees at most, so that depth cannot be seen; move "
            "the camera sideways between photos instead of turning it"
        )
    best = looked_at[0]
    return (
        f"no pair is good enough to begin with: the best, {_names(best)}, has {best.num_inliers} verified matches, and rays meet "
        f"at {widest:.1f} degrees at most; {_OVERLAP_REMEDY}, and check known focal lengths"
    )


def _focal_change(database: ColmapDatabase, image: Any) -> float:
    """The model's focal length over the one that was known before."""
    return float(from_colmap_camera(image.camera).matrix[0, 0] / database.camera(str(image.name)).matrix[0, 0])


def _movement_px(database: ColmapDatabase, pair: PairSummary) -> float:
    geometry = database.geometry(pair.name0, pair.name1)
    if geometry is None:
        return float("inf")
    xy0, xy1 = database.keypoints(pair.name0), database.keypoints(pair.name1)
    moved = xy0[geometry.inliers[:, 0]] - xy1[geometry.inliers[:, 1]]
    return float(np.median(np.linalg.norm(moved, axis=1)))


def _names(pair: PairSummary) -> str:
    return f"{pair.name0} and {pair.name1}"


def _other(pair: PairSummary, name: str) -> str:
    return pair.name1 if pair.name0 == name else pair.name0
