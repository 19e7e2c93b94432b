"""Which photos share a camera, and what is known of it before anything is computed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from posfeat.data.distortion import camera_from_colmap, num_colmap_params
from posfeat.geometry.distortion import NUM_DISTORTION_PARAMS
from posfeat.interop.colmap import exif_camera, unknown_camera
from posfeat.options import check_options, described
from posfeat.types import Camera, OptionsError

Sharing = Literal["auto", "single", "folder", "image"]


@dataclass(frozen=True)
class CameraOptions:
    """What the photos' cameras are taken to be at first."""

    model: str = described("SIMPLE_RADIAL", "COLMAP's name of the camera model")
    share: Sharing = described(
        "auto", "which photos have one camera: auto (by EXIF, else each its own), single, folder, image"
    )
    params: tuple[float, ...] = described((), "known parameters of the one camera of all photos, in COLMAP's order")
    focal_factor: float = described(1.2, "first guess without EXIF: this times the longer side, in pixels", low=0.1)

    def __post_init__(self) -> None:
        check_options(self)
        if self.model not in NUM_DISTORTION_PARAMS:
            near = difflib.get_close_matches(self.model.upper(), NUM_DISTORTION_PARAMS, n=1, cutoff=0.0)
            known = ", ".join(NUM_DISTORTION_PARAMS)
            raise OptionsError(f"there is no camera model {self.model}; did you mean {near[0]}? known: {known}")
        if self.params and len(self.params) != num_colmap_params(self.model):
            raise OptionsError(
                f"a {self.model} camera has {num_colmap_params(self.model)} parameters, not {len(self.params)}"
            )


@dataclass(frozen=True)
class PhotosOfCamera:
    """A camera, whether its focal length is known or only guessed, and the photos that it took."""

    camera: Camera
    focal_is_known: bool
    names: tuple[str, ...]


def choose_cameras(
    sizes: Mapping[str, tuple[int, int]],
    image_folder: Path,
    options: CameraOptions,
    known: Mapping[str, Camera] | None = None,
) -> list[PhotosOfCamera]:
    """The cameras of photos of given sizes (width, height), in the order of their first photos.

    ``known`` cameras go before anything else. Photos of different sizes never share a camera.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    focals: dict[str, float] = {}
    for name, size in sizes.items():
        if known and name in known:
            camera = known[name]
            key: tuple[object, ...] = ("known", camera.model, camera.matrix.tobytes(), camera.distortion)
        elif options.params:
            key = ("params",)
        else:
            exif_name, focal = exif_camera(image_folder / name)
            if focal:
                focals[name] = focal
            key = _group(name, exif_name, options.share)
        groups.setdefault((*key, size), []).append(name)
    return [_camera_of(names, sizes[names[0]], focals, options, known or {}) for names in groups.values()]


def _group(name: str, exif_name: str | None, share: Sharing) -> tuple[object, ...]:
    if share == "single":
        return ("single",)
    if share == "folder":
        return ("folder", str(PurePosixPath(name).parent))
    if share == "auto" and exif_name:
        return ("exif", exif_name)
    return ("image", name)


def _camera_of(
    names: Sequence[str],
    size: tuple[int, int],
    focals: Mapping[str, float],
    options: CameraOptions,
    known: Mapping[str, Camera],
) -> PhotosOfCamera:
    first = names[0]
    if first in known:
        camera, is_known = known[first], True
        if (camera.width, camera.height) != size:
            raise OptionsError(
                f"the known camera of {first} is of {camera.width}x{camera.height} pixels, the photo of "
                f"{size[0]}x{size[1]}; scale the camera to the photo"
            )
    elif options.params:
        camera, is_known = camera_from_colmap(options.model, *size, options.params), True
    else:
        focal = next((focals[name] for name in names if name in focals), None)
        is_known = focal is not None
        camera = unknown_camera(options.model, *size, focal or options.focal_factor * max(size))
    return PhotosOfCamera(camera, is_known, tuple(names))
