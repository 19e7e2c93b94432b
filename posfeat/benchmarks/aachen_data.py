"""Aachen Day-Night as it lies on disk, v1 and v1.1 alike: the reference model, the queries with intrinsics, the pairs to match.

ROOT/images/images_upright/{db,query}/...      (v1.1 may have ROOT/images_upright)
ROOT/database.db, database_v1_1.db                                   images and intrinsics, as the challenge hands them out
ROOT/image_pairs_to_match.txt, image_pairs_to_match_v1_1.txt         the same
ROOT/3D-models/aachen_cvpr2018_db.nvm, aachen_v_1_1/aachen_v_1_1.nvm poses of the database images, and beside them or above
               database_intrinsics.txt, database_intrinsics_v1_1.txt their intrinsics; or a COLMAP model in place of both
ROOT/queries/night_time_queries_with_intrinsics.txt                  the queries
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posfeat.benchmarks.camera_files import read_database_cameras, read_intrinsics, read_names, read_nvm_poses
from posfeat.data.colmap import is_colmap_model, read_colmap
from posfeat.pipeline.match import read_pairs
from posfeat.types import Camera, DataError, View

Version = Literal["v1", "v1.1"]
Part = Literal["night", "day", "all"]

HOW_TO_GET = (
    "the long-term visual localization benchmark's page names the archives of Aachen Day-Night (v1.1 adds to v1), and its "
    "repository visuallocalizationbenchmark holds database.db and image_pairs_to_match.txt (v1.1: database_v1_1.db and "
    "image_pairs_to_match_v1_1.txt): put these into ROOT beside images/, 3D-models/ and queries/"
)


@dataclass(frozen=True)
class _Layout:
    """Names of files, in the order in which they are looked for."""

    models: tuple[str, ...]
    intrinsics: tuple[str, ...]
    database: str
    pairs: str


_MODELS = "3D-models"
_LAYOUTS: dict[Version, _Layout] = {
    "v1": _Layout(
        (f"{_MODELS}/aachen_cvpr2018_db.nvm",),
        (f"{_MODELS}/database_intrinsics.txt",),
        "database.db",
        "image_pairs_to_match.txt",
    ),
    "v1.1": _Layout(
        (f"{_MODELS}/aachen_v_1_1/aachen_v_1_1.nvm", f"{_MODELS}/aachen_v_1_1"),
        tuple(
            f"{_MODELS}/{folder}database_intrinsics{end}.txt"
            for folder in ("aachen_v_1_1/", "")
            for end in ("_v1_1", "")
        ),
        "database_v1_1.db",
        "image_pairs_to_match_v1_1.txt",
    ),
}
_IMAGES = ("images/images_upright", "images_upright", "images")
_QUERIES: dict[Part, tuple[str, ...]] = {"night": ("night",), "day": ("day",), "all": ("day", "night")}


@dataclass(frozen=True)
class AachenData:
    """Everything that the challenge hands out, read."""

    version: Version
    images: Path
    views: dict[str, View]  # database images with their poses
    queries: dict[str, Camera]
    pairs: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]  # all of the above that was read, without the images

    @property
    def names(self) -> tuple[str, ...]:
        """Every image that a pair names."""
        return tuple(sorted({name for pair in self.pairs for name in pair}))


def versions_of(root: Path) -> list[Version]:
    """The versions of which the pair list is there."""
    return [version for version, layout in _LAYOUTS.items() if (root / layout.pairs).is_file()]


def read_aachen(root: Path, version: Version | None = None, part: Part = "night") -> AachenData:
    """One version, the newest by default, with its night or day queries; DataError says what is missing and where from."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. {HOW_TO_GET}")
    found = versions_of(root)
    if version is None:
        if not found:
            names = " nor ".join(layout.pairs for layout in _LAYOUTS.values())
            raise DataError(f"{root}: there is neither {names}. {HOW_TO_GET}")
        version = found[-1]
    layout = _LAYOUTS[version]
    images = _first(root, _IMAGES, f"the images of {version}")
    files: list[Path] = []
    listed = _database_cameras(root / layout.database, files)
    views = _reference_views(root, layout, images, listed, files)
    queries = _queries(root, part, listed, files)
    pairs_file = _first(root, (layout.pairs,), f"the pair list of {version}")
    known = [*views, *queries]
    wanted = set(known)
    pairs = [pair for pair in read_pairs(pairs_file, [*known, *listed]) if wanted.issuperset(pair)]
    if not pairs:
        raise DataError(
            f"{pairs_file} has no pair of images of which pose or intrinsics are known; check that versions agree"
        )
    return AachenData(version, images, views, queries, tuple(pairs), (*files, pairs_file))


def check_aachen(root: Path) -> tuple[list[str], list[str]]:
    """What was found of each version, and what is wrong, as sentences."""
    found, problems = [], []
    for version in versions_of(root) or ["v1"]:
        try:
            data = read_aachen(root, version, "all")
        except DataError as error:
            problems.append(f"Aachen {version}: {error}")
            continue
        found.append(
            f"Aachen {version}: {len(data.views)} database images, {len(data.queries)} queries, {len(data.pairs)} pairs, "
            "for posfeat evaluate aachen"
        )
        missing = [name for name in data.names if not (data.images / name).is_file()]
        if missing:
            problems.append(
                f"Aachen {version}: {len(missing)} images are missing in {data.images}, the first is {missing[0]}"
            )
        alone = sorted(set(data.queries) - set(data.names))
        if alone:
            problems.append(f"Aachen {version}: {len(alone)} queries stand in no pair, the first is {alone[0]}")
    return found, problems


def _reference_views(
    root: Path, layout: _Layout, images: Path, listed: dict[str, Camera], files: list[Path]
) -> dict[str, View]:
    model = _first(root, layout.models, "the reference model")
    files.append(model if model.is_file() else next(model.glob("images.*"), model))
    if model.is_dir():
        if not is_colmap_model(model):
            raise DataError(f"{model} holds neither {Path(layout.models[0]).name} nor a COLMAP model. {HOW_TO_GET}")
        return {view.name: view for view in read_colmap(model, images)}
    intrinsics = next((root / name for name in layout.intrinsics if (root / name).is_file()), None)
    cameras = listed
    if intrinsics is not None:
        files.append(intrinsics)
        cameras = listed | read_intrinsics(intrinsics)
    views = {}
    for name, pose in read_nvm_poses(model).items():
        if name not in cameras:
            where = layout.database if intrinsics is None else intrinsics.name
            raise DataError(
                f"{model.name} has a pose of {name}, but {where} has no intrinsics of it; check that versions agree"
            )
        views[name] = View(images / name, cameras[name], pose, name=name)
    return views


def _queries(root: Path, part: Part, listed: dict[str, Camera], files: list[Path]) -> dict[str, Camera]:
    """Queries with their intrinsics: those of their list, else those of the database."""
    queries: dict[str, Camera] = {}
    for time in _QUERIES[part]:
        path = root / "queries" / f"{time}_time_queries_with_intrinsics.txt"
        if part == "all" and not path.is_file():
            continue
        if not path.is_file():
            raise DataError(f"{path} is missing: the {time} queries and their intrinsics. {HOW_TO_GET}")
        files.append(path)
        names = read_names(path)
        with_intrinsics = all(name in listed for name in names)
        queries |= {name: listed[name] for name in names} if with_intrinsics else read_intrinsics(path)
    if not queries:
        raise DataError(f"{root}/queries holds no list of queries with intrinsics. {HOW_TO_GET}")
    return queries


def _database_cameras(path: Path, files: list[Path]) -> dict[str, Camera]:
    """The challenge's own intrinsics, where its database is there."""
    if not path.is_file():
        return {}
    files.append(path)
    return {name: listed.camera for name, listed in read_database_cameras(path).items()}


def _first(root: Path, names: Iterable[str], what: str) -> Path:
    candidates = [root / name for name in names]
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise DataError(f"{root}: {what} should be {' or '.join(map(str, names))}, which is not there. {HOW_TO_GET}")
    return found
