"""A COLMAP model -> what other programs take: points, transforms.json, and undistorted photos with their model.

points.ply            coloured points, in the model's own world
transforms.json       nerfstudio's cameras, with sparse_pc.ply beside it
undistorted/          images/ and sparse/0/ of pinhole cameras, for Gaussian splatting
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posfeat.data.distortion import undistort_image, undistorted_camera
from posfeat.data.images import read_image, write_image
from posfeat.interop.colmap import (
    Model,
    from_colmap_camera,
    read_model,
    registered_images,
    views_of_model,
    with_cameras,
    write_model,
    write_ply,
)
from posfeat.interop.nerfstudio import APPLIED_ROTATION, write_transforms
from posfeat.types import PosfeatError, ReconstructionError

Format = Literal["ply", "nerfstudio", "undistorted", "text"]
FORMATS: tuple[Format, ...] = ("ply", "nerfstudio", "undistorted", "text")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ExportReport:
    """What was written, and a line for whatever could not be."""

    written: tuple[Path, ...]
    failures: tuple[str, ...]


def export_model(
    model_folder: Path,
    image_folder: Path,
    output: Path,
    formats: Sequence[Format] = ("ply", "nerfstudio"),
    *,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> ExportReport:
    """Write a model in other formats into a folder."""
    model = read_model(model_folder)
    written: list[Path] = []
    failures: list[str] = []

    def failed(line: str) -> None:
        failures.append(line)
        if on_failure:
            on_failure(line)

    try:
        output.mkdir(parents=True, exist_ok=True)
        for wanted in formats:
            try:
                written.append(_export(wanted, model, image_folder, output, progress, failed))
            except PosfeatError as error:
                failed(str(error))
    except OSError as error:
        raise ReconstructionError(
            f"cannot write to {output}: {error.strerror}; choose another place, or make room"
        ) from None
    return ExportReport(tuple(written), tuple(failures))


def _export(
    wanted: Format,
    model: Model,
    image_folder: Path,
    output: Path,
    progress: Progress | None,
    failed: Callable[[str], None],
) -> Path:
    if wanted == "ply":
        path = output / "points.ply"
        write_ply(model, path)
    elif wanted == "nerfstudio":
        path = output / "transforms.json"
        write_transforms(path, views_of_model(model, image_folder), "sparse_pc.ply")
        write_ply(model, output / "sparse_pc.ply", APPLIED_ROTATION)
    elif wanted == "text":
        path = output / "text"
        write_model(model, path, text=True)
    else:
        path = output / "undistorted"
        write_undistorted(model, image_folder, path, progress, failed)
    return path


def write_undistorted(
    model: Model,
    image_folder: Path,
    output: Path,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> None:
    """Write photos without lens distortion, and the model of the pinhole cameras that would have taken them."""
    part = output.with_name(output.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    old = {camera_id: from_colmap_camera(camera) for camera_id, camera in model.cameras.items()}
    new = {camera_id: undistorted_camera(camera) for camera_id, camera in old.items()}
    images = registered_images(model)
    for done, image in enumerate(images, start=1):
        path = part / "images" / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            photo = read_image(image_folder / image.name)
            write_image(path, undistort_image(photo, old[image.camera_id], new[image.camera_id]))
        except PosfeatError as error:
            if on_failure:
                on_failure(str(error))
        if progress:
            progress(done, len(images))
    write_model(with_cameras(model, new), part / "sparse" / "0")
    shutil.rmtree(output, ignore_errors=True)
    part.rename(output)
