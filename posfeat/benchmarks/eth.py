"""ETH's local feature benchmark: the scenes as they lie on disk, and a method's sparse model of a scene in the paper's numbers.

A scene is a folder with ``images/`` and, where the benchmark hands one out, ``database.db`` with the cameras to begin with. All
pairs are matched, or those of a list that lies in the scene's folder; then COLMAP verifies and maps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.benchmarks.camera_files import read_database_cameras
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.metrics import TrackStatistics, track_statistics
from posfeat.benchmarks.work_files import Progress, WorkFiles, extract_and_match
from posfeat.interop.colmap import Model, read_model
from posfeat.interop.colmap_mapping import MappingOptions, VerificationOptions
from posfeat.matching import MatchOptions
from posfeat.pipeline.extract import list_images
from posfeat.pipeline.map import map_scene, model_folders
from posfeat.pipeline.match import all_pairs, read_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import Camera, DataError, ReconstructionError

HOW_TO_GET = (
    "the local feature benchmark of ETH's computer vision group names the archives (South-Building, Madrid_Metropolis, "
    "Gendarmenmarkt, Tower_of_London, Fountain, Herzjesu; Databases.tar.gz holds their database.db): unpack them so that ROOT "
    "holds South-Building/images/ and South-Building/database.db"
)
KEYPOINTS = 20_000
MATCHING = MatchOptions(ratio=0.8)


@dataclass(frozen=True)
class EthScene:
    """One scene: its images by name, the pairs to match, and the cameras that are known."""

    name: str
    images: Path
    image_names: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    cameras: dict[str, Camera]
    files: tuple[Path, ...]  # everything that was read


@dataclass(frozen=True)
class SceneScore:
    """The largest model of a scene in numbers."""

    scene: str
    images: int
    registered: int
    reprojection_error_px: float
    tracks: TrackStatistics
    pairs: int
    verified_pairs: int
    models: int
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class MappedScene:
    """A scene's score and where its model and its features lie; no model where mapping failed."""

    score: SceneScore
    model: Path | None
    files: WorkFiles


def read_scenes(root: Path, pair_list: str | None = None) -> list[EthScene]:
    """The scene that a folder is, or the scenes in it; ``pair_list`` is a file's name in each scene's folder."""
    folders = _scene_folders(root)
    if not folders:
        raise DataError(f"{root}: no scene with images/ here. {HOW_TO_GET}")
    return [read_scene(folder, pair_list) for folder in folders]


def holds_scenes(root: Path) -> bool:
    """Whether a folder looks like ETH's benchmark: scenes with images and a database."""
    return any((folder / "database.db").is_file() for folder in _scene_folders(root))


def read_scene(folder: Path, pair_list: str | None = None) -> EthScene:
    """One scene."""
    names = list_images(folder / "images")
    if len(names) < 2:
        raise DataError(f"{folder}/images holds {len(names)} images; a scene needs at least two")
    files = [folder / "images" / name for name in names]
    cameras = {}
    if (folder / "database.db").is_file():
        listed = read_database_cameras(folder / "database.db")
        cameras = {name: one.camera for name, one in listed.items() if one.focal_is_known and name in set(names)}
        files.append(folder / "database.db")
    pairs = all_pairs(names)
    if pair_list is not None:
        pairs = read_pairs(folder / pair_list, names)
        files.append(folder / pair_list)
        unknown = sorted({name for pair in pairs for name in pair} - set(names))
        if unknown:
            raise DataError(f"{folder / pair_list} names the image {unknown[0]}, which is not in {folder}/images")
    return EthScene(folder.resolve().name, folder / "images", tuple(names), tuple(pairs), cameras, tuple(files))


def check_scenes(root: Path) -> tuple[list[str], list[str]]:
    """What was found, and what is wrong, as sentences."""
    found, problems = [], []
    for folder in _scene_folders(root):
        try:
            scene = read_scene(folder)
            missing = sorted(set(read_database_cameras(folder / "database.db")) - set(scene.image_names))
        except DataError as error:
            problems.append(str(error))
            continue
        found.append(
            f"scene {scene.name}: {len(scene.image_names)} images, {len(scene.cameras)} known cameras, for posfeat evaluate eth"
        )
        if missing:
            problems.append(
                f"scene {scene.name}: {len(missing)} images of its database are missing, the first is {missing[0]}"
            )
    return found, problems


def map_eth_scene(
    scene: EthScene,
    source: FeatureSource,
    matching: MatchOptions,
    work: Path,
    mapping: MappingOptions | None = None,
    progress: Progress | None = None,
) -> MappedScene:
    """Extract, match, verify, map; a scene of which nothing can be made scores nothing and says why."""
    begun = time.perf_counter()
    files = extract_and_match(
        source, scene.images, scene.image_names, scene.pairs, matching, work / scene.name, scene.cameras, progress
    )
    verified = verify_pairs(
        files.features,
        files.matches,
        scene.images,
        files.database,
        VerificationOptions(),
        known_cameras=scene.cameras,
        progress=progress,
    )
    numbers = (verified.num_pairs, verified.num_verified)
    try:
        map_scene(files.database, scene.images, files.models, mapping, progress=progress)
    except ReconstructionError as error:
        nothing = track_statistics(torch.zeros(0, dtype=torch.int64))
        seconds = files.add_seconds(time.perf_counter() - begun)
        count = len(scene.image_names)
        return MappedScene(
            SceneScore(scene.name, count, 0, 0.0, nothing, *numbers, 0, seconds, str(error)), None, files
        )
    folders = model_folders(files.models)
    seconds = files.add_seconds(time.perf_counter() - begun)
    return MappedScene(_score(scene, read_model(folders[0]), numbers, len(folders), seconds), folders[0], files)


def track_lengths_of(model: Model) -> torch.Tensor:
    """How many images see each point of a model."""
    return torch.tensor([point.track.length() for point in model.points3D.values()], dtype=torch.int64)


def _score(scene: EthScene, model: Model, numbers: Sequence[int], models: int, seconds: float) -> SceneScore:
    return SceneScore(
        scene=scene.name,
        images=len(scene.image_names),
        registered=int(model.num_reg_images()),
        reprojection_error_px=float(model.compute_mean_reprojection_error()),
        tracks=track_statistics(track_lengths_of(model)),
        pairs=numbers[0],
        verified_pairs=numbers[1],
        models=models,
        seconds=seconds,
    )


def _scene_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. {HOW_TO_GET}")
    if (root / "images").is_dir():
        return [root]
    return sorted(folder for folder in root.iterdir() if (folder / "images").is_dir())
