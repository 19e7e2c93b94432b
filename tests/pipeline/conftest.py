"""Small photos of the rendered gallery, whose cameras are known exactly: real input for whole reconstructions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from posfeat.data.images import write_image
from posfeat.data.relief_scene import render
from posfeat.demo.gallery import HEIGHT, WIDTH, gallery_cameras, gallery_scene
from posfeat.types import Camera, View

SCALE = 0.4
NUM_PHOTOS = 8


class GalleryPhotos(NamedTuple):
    """A folder of photos, and what they were taken with."""

    folder: Path
    views: tuple[View, ...]


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> GalleryPhotos:
    """Eight neighbouring views of the gallery, 384x288; tests copy what they change."""
    folder = tmp_path_factory.mktemp("gallery")
    scene, height, width = gallery_scene(), round(HEIGHT * SCALE), round(WIDTH * SCALE)
    views = []
    for number, camera in enumerate(gallery_cameras()[4 : 4 + NUM_PHOTOS]):
        intrinsics = camera.intrinsics.copy()
        intrinsics[:2] *= SCALE
        intrinsics[:2, 2] += (SCALE - 1) / 2
        path = folder / f"view {number}.png"
        write_image(path, render(scene, replace(camera, intrinsics=intrinsics), height, width))
        views.append(View(path, Camera(width, height, intrinsics), camera.cam_from_world, name=path.name))
    return GalleryPhotos(folder, tuple(views))
