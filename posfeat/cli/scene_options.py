"""Options that the verbs of a reconstruction share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from posfeat.interop.colmap_mapping import MappingOptions, VerificationOptions
    from posfeat.pipeline.choose_cameras import CameraOptions
    from posfeat.pipeline.map import ModelSummary
    from posfeat.pipeline.select_pairs import PairSelectionOptions


class PairMethod(str, Enum):
    """How pairs are chosen."""

    auto = "auto"
    exhaustive = "exhaustive"
    sequential = "sequential"
    retrieval = "retrieval"
    poses = "poses"
    covisibility = "covisibility"
    list = "list"


class Sharing(str, Enum):
    """Which photos have one camera."""

    auto = "auto"
    single = "single"
    folder = "folder"
    image = "image"


class Mapper(str, Enum):
    """How cameras and points are computed."""

    incremental = "incremental"
    global_ = "global"


PairMethodOption = Annotated[
    PairMethod,
    typer.Option("--pairs", help="Which pairs: auto takes all of up to 60 photos, else the most similar ones."),
]
NeighboursOption = Annotated[int, typer.Option("--neighbours", min=1, help="Partners of a photo, except in sequences.")]
OverlapOption = Annotated[int, typer.Option("--overlap", min=1, help="In sequences: photos that follow.")]
PairListOption = Annotated[Path | None, typer.Option("--list", help="Your own pairs: two names on each line.")]
KnownCamerasOption = Annotated[
    Path | None,
    typer.Option("--cameras", help="Posed photos (COLMAP, transforms.json, cameras.txt) whose cameras are known."),
]
CameraModelOption = Annotated[str, typer.Option("--camera-model", help="COLMAP's name of the camera model.")]
CameraParamsOption = Annotated[
    str | None,
    typer.Option("--camera-params", help="Known parameters of the one camera, in COLMAP's order: f,cx,cy ..."),
]
SharingOption = Annotated[
    Sharing,
    typer.Option("--share-camera", help="Which photos have one camera; auto goes by EXIF, else each has its own."),
]
MapperOption = Annotated[Mapper, typer.Option("--mapper", help="One photo after another, or all at once (faster).")]
FixCamerasOption = Annotated[bool, typer.Option("--fix-cameras", help="Keep focal lengths and distortion as given.")]
MaxErrorOption = Annotated[
    float, typer.Option("--max-error", min=0.1, help="Verified matches are at most so many px off.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=-1, help="Of all random choices; -1: another each time.")]
DeterministicOption = Annotated[bool, typer.Option("--deterministic", help="The same model each time, on one thread.")]


def pair_options(method: PairMethod, neighbours: int, overlap: int, pair_list: Path | None) -> PairSelectionOptions:
    """Which pairs are matched, from what was asked for."""
    from posfeat.options import options_from_mapping
    from posfeat.pipeline.select_pairs import PairSelectionOptions

    chosen = PairMethod.list if pair_list is not None and method is PairMethod.auto else method
    asked = {"method": chosen.value, "neighbours": neighbours, "overlap": overlap}
    return options_from_mapping(PairSelectionOptions, asked)


def camera_options(model: str, params: str | None, sharing: Sharing) -> CameraOptions:
    """What the cameras are taken to be, from what was asked for."""
    from posfeat.options import options_from_mapping
    from posfeat.pipeline.choose_cameras import CameraOptions
    from posfeat.types import OptionsError

    try:
        values = tuple(float(value) for value in (params or "").split(",") if value.strip())
    except ValueError:
        raise OptionsError(f"--camera-params takes numbers with commas between them, not {params!r}") from None
    return options_from_mapping(CameraOptions, {"model": model.upper(), "share": sharing.value, "params": values})


def verification_options(max_error: float, seed: int) -> VerificationOptions:
    """Which matches are trusted, from what was asked for."""
    from posfeat.interop.colmap_mapping import VerificationOptions

    return VerificationOptions(max_error_px=max_error, seed=seed)


def mapping_options(mapper: Mapper, fix_cameras: bool, seed: int, deterministic: bool) -> MappingOptions:
    """How cameras and points are computed, from what was asked for."""
    from posfeat.interop.colmap_mapping import MappingOptions
    from posfeat.options import options_from_mapping

    asked = {
        "mapper": mapper.value,
        "refine_focal_length": not fix_cameras,
        "refine_distortion": not fix_cameras,
        "seed": max(seed, 0) if deterministic else seed,
        "threads": 1 if deterministic else -1,
    }
    return options_from_mapping(MappingOptions, asked)


def print_models(models: tuple[ModelSummary, ...], num_photos: int) -> None:
    """Tell of models, the largest first."""
    for number, model in enumerate(models):
        print(
            f"model {number}: {model.num_images} of {num_photos} photos, {model.num_points} points, "
            f"track length {model.mean_track_length:.2f}, reprojection error {model.mean_reprojection_error_px:.2f} px"
        )
