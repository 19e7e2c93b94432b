"""Features, matches and photos -> a COLMAP database of cameras, keypoints and verified matches. Goes on where it stopped.

Which matches count is COLMAP's own judgement: a pair's matches must agree on one geometry (essential or fundamental matrix,
or homography), and more of them than wrong matches would by chance. Pairs are written and verified in groups, and each is
done once, however often the work is interrupted.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posfeat.geometry.epipolar import symmetric_epipolar_distance
from posfeat.interop.colmap_database import ColmapDatabase, PairSummary
from posfeat.interop.colmap_mapping import VerificationOptions, verify_database
from posfeat.options import options_to_mapping
from posfeat.pipeline.chance import CERTAIN, log10_chance_geometries, log10_chance_poses
from posfeat.pipeline.choose_cameras import CameraOptions, choose_cameras
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.types import Camera, DataError, StoreError, TwoViewConfiguration, TwoViewGeometry

PAIRS_AT_ONCE = 200
NOTHING = TwoViewGeometry(TwoViewConfiguration.DEGENERATE, np.zeros((0, 2), np.int64), None, None)
_ROOM_FOR_SQLITE = 4 * 2**20
_BYTES_A_KEYPOINT = 8
_BYTES_A_MATCH = 16  # matched, and verified

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class VerificationReport:
    """What became of the pairs; a line for each that could not be used."""

    num_images: int
    num_cameras: int
    num_pairs: int  # that were matched
    num_verified: int  # whose matches agree on a geometry
    num_known: int  # that the database had already
    failures: tuple[str, ...]


def verify_pairs(
    features_path: Path,
    matches_path: Path,
    image_folder: Path,
    database_path: Path,
    options: VerificationOptions | None = None,
    cameras: CameraOptions | None = None,
    *,
    images: Collection[str] | None = None,
    known_cameras: Mapping[str, Camera] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> VerificationReport:
    """Fill a database with images of a feature store, all or those named, and the verified matches of a match store.

    A database that was made with other settings, photos or matches is made anew. ``pairs`` leaves out all other pairs.
    """
    options, cameras = options or VerificationOptions(), cameras or CameraOptions()
    failures: list[str] = []
    with FeatureStore(features_path) as features, MatchStore(matches_path) as matches:
        names = [name for name in features.names() if images is None or name in images]
        wanted = _usable_pairs(features, matches, names, pairs, failures)
        settings = {
            "features": features.settings,
            "images": _digest(names),
            "matches": matches.settings,
            "cameras": options_to_mapping(cameras),
            "known_cameras": _digest([f"{name} {camera}" for name, camera in sorted((known_cameras or {}).items())]),
            "verification": {key: v for key, v in options_to_mapping(options).items() if key != "threads"},
        }
        prepare_database(database_path, settings)
        _require_room(database_path, features, names, len(wanted))
        with ColmapDatabase(database_path) as database:
            write_images(database, features, names, image_folder, cameras, known_cameras)
            todo = [pair for pair in wanted if not database.has_matches(*pair)]
        for line in failures:
            if on_failure:
                on_failure(line)
        for start in range(0, len(todo), PAIRS_AT_ONCE):
            with ColmapDatabase(database_path) as database:
                for name0, name1 in todo[start : start + PAIRS_AT_ONCE]:
                    database.write_matches(name0, name1, matches.read(name0, name1).indices.numpy())
            verify_database(database_path, options)
            if progress:
                progress(len(wanted) - len(todo) + min(start + PAIRS_AT_ONCE, len(todo)), len(wanted))
        verify_database(database_path, options)  # pairs whose matches were written just before an interruption
        with ColmapDatabase(database_path) as database:
            discard_chance(database, options.max_error_px)
    return _report(database_path, len(wanted) - len(todo), failures)


def discard_chance(database: ColmapDatabase, max_error_px: float) -> None:
    """Take back the geometry of pairs whose matches would agree on one as well if all were wrong."""
    with database.transaction():
        for pair in database.pairs():
            if pair.num_inliers and _log10_chance(database, pair, max_error_px) > CERTAIN:
                database.write_geometry(pair.name0, pair.name1, NOTHING)


def _log10_chance(database: ColmapDatabase, pair: PairSummary, max_error_px: float) -> float:
    geometry = database.geometry(pair.name0, pair.name1)
    flat = pair.configuration.startswith(("PLANAR", "PANORAMIC"))
    if flat or geometry is None or geometry.fundamental is None:
        size = min((database.size(name) for name in (pair.name0, pair.name1)), key=math.prod)
        return log10_chance_poses(pair.num_matches, pair.num_inliers, max_error_px, *size)
    matches = database.matches(pair.name0, pair.name1)
    xy0, xy1 = database.keypoints(pair.name0)[matches[:, 0]], database.keypoints(pair.name1)[matches[:, 1]]
    to_line0, to_line1 = symmetric_epipolar_distance(*map(torch.from_numpy, (geometry.fundamental, xy0, xy1)))
    # how far both points must be moved to lie on each other's lines (Sampson's distance), as COLMAP has it
    moved = to_line0 * to_line1 / torch.hypot(to_line0, to_line1).clamp(min=torch.finfo(torch.float64).tiny)
    return log10_chance_geometries(moved.numpy(), xy0, xy1, max_error_px)


def _require_room(path: Path, features: FeatureStore, names: Sequence[str], num_pairs: int) -> None:
    """Say that a disk is too full before SQLite finds out: it may end the process then."""
    keypoints = sum(features.num_keypoints(name) for name in names)
    matches = num_pairs * keypoints / max(len(names), 1) / 2
    needed = _ROOM_FOR_SQLITE + _BYTES_A_KEYPOINT * keypoints + _BYTES_A_MATCH * matches
    have = shutil.disk_usage(path.parent).free + (path.stat().st_size if path.is_file() else 0)
    if have < needed:
        raise StoreError(
            f"cannot write {path}: about {needed / 2**20:.1f} MiB are needed and {have / 2**20:.1f} are free; make room, "
            "or choose another place"
        )


def prepare_database(path: Path, settings: Mapping[str, Any]) -> None:
    """Keep a database that was made with these settings; remove any other, so that it is made anew."""
    beside = path.with_suffix(".json")
    text = json.dumps(settings, indent=1, sort_keys=True)
    try:
        if beside.is_file() and beside.read_text(encoding="utf-8") == text:
            return
        for leftover in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            leftover.unlink(missing_ok=True)
        beside.parent.mkdir(parents=True, exist_ok=True)
        part = beside.with_name(beside.name + ".part")
        part.write_text(text, encoding="utf-8")
        os.replace(part, beside)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another place, or make room") from None


def write_images(
    database: ColmapDatabase,
    features: FeatureStore,
    names: Sequence[str],
    image_folder: Path,
    options: CameraOptions,
    known_cameras: Mapping[str, Camera] | None = None,
) -> None:
    """Write cameras, images and keypoints of images of a store, those that the database does not have."""
    there = database.image_ids()
    if not there:
        sizes = {name: features.image_size(name) for name in names}
        if not sizes:
            raise DataError(f"{features.path} holds no images; extract features first")
        groups = choose_cameras(sizes, image_folder, options, known_cameras)
        with database.transaction():
            for group in groups:
                camera_id = database.add_camera(group.camera, group.focal_is_known)
                for name in group.names:
                    database.add_image(name, camera_id)
    for name in names:
        if not database.has_keypoints(name):
            database.write_keypoints(name, features.read(name).keypoints.numpy())


def _usable_pairs(
    features: FeatureStore,
    matches: MatchStore,
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]] | None,
    failures: list[str],
) -> list[tuple[str, str]]:
    """The pairs of named images that were matched; a line for each other pair that is listed."""
    usable, wanted = [], set(names)
    flat = {name.replace("/", "-"): name for name in names}  # as other tools' match files name images
    for listed in matches.pairs() if pairs is None else pairs:
        name0, name1 = (name if name in wanted else flat.get(name, name) for name in listed)
        unknown = [name for name in (name0, name1) if name not in features]
        if unknown:
            failures.append(f"{matches.path} has matches of {unknown[0]}, of which {features.path} has no features")
        elif {name0, name1} <= wanted:
            if (name0, name1) in matches or (name1, name0) in matches:
                usable.append((name0, name1))
            else:
                failures.append(f"{matches.path} has no matches of {name0} and {name1}; match them first")
    return usable


def _report(database_path: Path, num_known: int, failures: Sequence[str]) -> VerificationReport:
    with ColmapDatabase(database_path) as database:
        pairs = database.pairs()
        return VerificationReport(
            num_images=len(database.image_ids()),
            num_cameras=len(set(database.camera_ids().values())),
            num_pairs=len(pairs),
            num_verified=sum(pair.num_inliers > 0 for pair in pairs),
            num_known=num_known,
            failures=tuple(failures),
        )


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
