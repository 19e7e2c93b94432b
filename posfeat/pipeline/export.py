"""A COLMAP model -> what other programs take: points, transforms.json, and undistorted photos with their model.

points.ply            coloured points, in the model's own world
transforms.json       nerfstudio's cameras, with sparse_pc.ply beside it
undistorted/          images/ and sparse/0/ of pinhole cameras, for Gaussian splatting
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
from posfeat.types import Camera, PosfeatError, ReconstructionError

Format = Literal["ply", "nerfstudio", "undistorted", "text"]
UNDISTORTED = "undistorted"  # the folder of photos without lens distortion

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
                if wanted == "undistorted":
                    path = output / UNDISTORTED
                    write_undistorted(model, image_folder, path, progress, failed, _digest(model_folder))
                else:
                    path = _export(wanted, model, image_folder, output)
                written.append(path)
            except PosfeatError as error:
                failed(str(error))
    except OSError as error:
        raise ReconstructionError(
            f"cannot write to {output}: {error.strerror}; choose another place, or make room"
        ) from None
    return ExportReport(tuple(written), tuple(failures))


def _export(wanted: Format, model: Model, image_folder: Path, output: Path) -> Path:
    if wanted == "ply":
        path = output / "points.ply"
        write_ply(model, path)
    elif wanted == "nerfstudio":
        path = output / "transforms.json"
        write_transforms(path, views_of_model(model, image_folder), "sparse_pc.ply")
        write_ply(model, output / "sparse_pc.ply", APPLIED_ROTATION)
    else:
        path = output / "text"
        write_model(model, path, text=True)
    return path


def write_undistorted(
    model: Model,
    image_folder: Path,
    output: Path,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
    state: str = "",
) -> None:
    """Write photos without lens distortion, and the model of the pinhole cameras that would have taken them.

    Nothing is done where ``state``, which names the model, is that of the photos that are there. A photo that cannot be
    read, or whose lens cannot be straightened, is left out.
    """
    beside = output / "made_from.txt"
    if state and beside.is_file() and beside.read_text() == state:
        return
    part = output.with_name(output.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _write_straight_photos(model, image_folder, part, progress, on_failure or (lambda line: None))
        (part / beside.name).write_text(state)
        shutil.rmtree(output, ignore_errors=True)
        part.rename(output)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_straight_photos(
    model: Model, image_folder: Path, output: Path, progress: Progress | None, failed: Callable[[str], None]
) -> None:
    images = registered_images(model)
    new = _straight_cameras(images, failed)
    shown = [image for image in images if image.camera_id in new]
    straight = with_cameras(model, new)
    for done, image in enumerate(shown, start=1):
        path = output / "images" / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            photo = read_image(image_folder / image.name)
            write_image(path, undistort_image(photo, from_colmap_camera(image.camera), new[image.camera_id]))
        except PosfeatError as error:
            failed(f"{error}; it is not among the undistorted photos")
            straight.deregister_frame(image.frame_id)
        if progress:
            progress(done, len(shown))
    write_model(straight, output / "sparse" / "0")


def _straight_cameras(images: Sequence[Any], failed: Callable[[str], None]) -> dict[int, Camera]:
    """The pinhole camera for each camera by its id, and a line for each that has none."""
    straight: dict[int, Camera] = {}
    bent: set[int] = set()
    for image in images:
        if image.camera_id in straight or image.camera_id in bent:
            continue
        try:
            straight[image.camera_id] = undistorted_camera(from_colmap_camera(image.camera))
        except PosfeatError as error:
            bent.add(image.camera_id)
            failed(f"{image.name} is not among the undistorted photos: {error}")
    return straight


def _digest(model_folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in model_folder.iterdir() if path.is_file()):
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
