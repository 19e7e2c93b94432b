"""A database of verified matches -> COLMAP models, the largest first. Does nothing where the models are there already."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posfeat.interop.colmap import Model, read_model, registered_images, write_model
from posfeat.interop.colmap_database import ColmapDatabase, PairSummary
from posfeat.interop.colmap_mapping import MappingOptions, map_database
from posfeat.options import options_to_mapping
from posfeat.pipeline.diagnose import why_no_model
from posfeat.types import DataError, ReconstructionError

FEWEST_IMAGES = 2

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ModelSummary:
    """A model in numbers."""

    num_images: int  # with a pose
    num_cameras: int
    num_points: int
    num_observations: int
    mean_track_length: float  # images that see a point
    mean_reprojection_error_px: float


@dataclass(frozen=True)
class MapReport:
    """The models, largest first, out of how many photos; whether they were there already."""

    models: tuple[ModelSummary, ...]
    num_photos: int
    was_there: bool


def map_scene(
    database_path: Path,
    image_folder: Path,
    output: Path,
    options: MappingOptions | None = None,
    *,
    progress: Progress | None = None,
) -> MapReport:
    """Compute models into the folders ``output/0``, ``output/1`` ...; ReconstructionError says why if there is none."""
    options = options or MappingOptions()
    if not image_folder.is_dir():
        raise DataError(f"there is no folder of photos {image_folder}; check the name")
    if not database_path.is_file():
        raise DataError(f"there is no database {database_path}; make one with posfeat verify")
    with ColmapDatabase(database_path) as database:
        num_photos = len(database.image_ids())
        state = {"options": options_to_mapping(options), "pairs": _digest(database.pairs())}
    state_path = output / "made_from.json"
    if state_path.is_file() and state_path.read_text(encoding="utf-8") == _text(state):
        summaries = tuple(summarise(read_model(folder)) for folder in model_folders(output))
        return MapReport(summaries, num_photos, was_there=True)
    placed = 0

    def on_image() -> None:
        nonlocal placed
        placed = min(placed + 1, num_photos)
        if progress:
            progress(placed, num_photos)

    part = output.with_name(output.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        models = map_database(database_path, image_folder, part / "colmap", options, on_image)
        models = [model for model in models if model.num_reg_images() >= FEWEST_IMAGES and model.num_points3D() > 0]
        if not models:
            with ColmapDatabase(database_path) as database:
                raise ReconstructionError(f"no model of {image_folder}: {why_no_model(database)}")
        shutil.rmtree(part / "colmap")
        for number, model in enumerate(models):
            model.extract_colors_for_all_images(image_folder)
            write_model(model, part / str(number))
        (part / state_path.name).write_text(_text(state), encoding="utf-8")
        shutil.rmtree(output, ignore_errors=True)
        part.rename(output)
    except OSError as error:
        raise ReconstructionError(
            f"cannot write {output}: {error.strerror}; choose another place, or make room"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return MapReport(tuple(map(summarise, models)), num_photos, was_there=False)


def model_folders(folder: Path) -> list[Path]:
    """The folders of models that map_scene wrote, the largest model first."""
    return sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def summarise(model: Model) -> ModelSummary:
    """A model in numbers."""
    return ModelSummary(
        num_images=int(model.num_reg_images()),
        num_cameras=len({int(image.camera_id) for image in registered_images(model)}),
        num_points=int(model.num_points3D()),
        num_observations=int(model.compute_num_observations()),
        mean_track_length=float(model.compute_mean_track_length()),
        mean_reprojection_error_px=float(model.compute_mean_reprojection_error()),
    )


def _digest(pairs: Sequence[PairSummary]) -> str:
    lines = [f"{pair.name0}\n{pair.name1}\n{pair.num_matches} {pair.num_inliers}" for pair in pairs]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _text(state: dict[str, Any]) -> str:
    return json.dumps(state, indent=1)
