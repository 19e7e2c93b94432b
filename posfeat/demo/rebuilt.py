"""The gallery's cameras and points, computed from its photos alone, beside the cameras that they were rendered with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.camera_errors import CameraErrors, camera_errors
from posfeat.interop.colmap import read_model, views_of_model
from posfeat.interop.colmap_mapping import MappingOptions
from posfeat.pipeline.choose_cameras import CameraOptions
from posfeat.pipeline.extract import Extractor
from posfeat.pipeline.map import ModelSummary, Progress
from posfeat.pipeline.reconstruct import ReconstructionOptions, reconstruct
from posfeat.types import PosfeatError, View


@dataclass(frozen=True)
class Rebuilt:
    """The model in numbers, how far its cameras are off, and its own page with the 3D view."""

    model: ModelSummary
    errors: CameraErrors
    focal_px: float  # that was found; it was not told
    true_focal_px: float
    page: Path


def rebuild(extractor: Extractor, folder: Path, views: Sequence[View], progress: Progress | None) -> Rebuilt | str:
    """Reconstruct ``folder/photos`` in ``folder``, where features and matches may be already; or say why it cannot be."""
    photos = folder / "photos"
    options = ReconstructionOptions(cameras=CameraOptions(share="single"), mapping=MappingOptions(threads=1))
    try:
        summary = reconstruct(
            extractor,
            photos,
            folder,
            options,
            formats=("ply", "nerfstudio"),
            progress_bar=lambda step: nullcontext(progress if step == "map" else None),
        )
        found = views_of_model(read_model(folder / "sparse" / "0"), photos)
        focal_px, true_focal_px = (float(some[0].camera.matrix[0, 0]) for some in (found, views))
        return Rebuilt(summary.model, camera_errors(found, views), focal_px, true_focal_px, folder / "report.html")
    except PosfeatError as error:
        return str(error)
