"""COLMAP models written by pycolmap for tests of our own reader, and the parameters of every lens model."""

from __future__ import annotations

import zlib  # noqa: F401  pycolmap must not be the first to bring its copy
from pathlib import Path
from typing import Any

import cv2  # noqa: F401
import numpy as np
import pytest

pycolmap: Any = pytest.importorskip("pycolmap")

LENSES: dict[str, tuple[float, ...]] = {
    "SIMPLE_PINHOLE": (),
    "PINHOLE": (),
    "SIMPLE_RADIAL": (0.08,),
    "RADIAL": (-0.12, 0.03),
    "OPENCV": (0.06, -0.08, -0.001, 0.0015),
    "OPENCV_FISHEYE": (0.02, -0.01, 0.004, -0.001),
    "FULL_OPENCV": (0.1, -0.05, 0.001, -0.002, 0.01, 0.05, -0.02, 0.003),
    "FOV": (0.9,),
    "SIMPLE_RADIAL_FISHEYE": (0.03,),
    "RADIAL_FISHEYE": (0.03, -0.01),
    "THIN_PRISM_FISHEYE": (0.02, -0.01, 0.001, -0.002, 0.003, -0.001, 0.002, -0.001),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        *(0.02, -0.01, 0.003, -0.002, 0.001, 0.0002),
        *(0.001, -0.002, 0.001, -0.0005, 0.002, -0.0003),
    ),
    "SIMPLE_DIVISION": (-0.1,),
    "DIVISION": (0.12,),
    "SIMPLE_FISHEYE": (),
    "FISHEYE": (),
    "EUCM": (0.6, 1.1),
}


def known_to_pycolmap() -> list[str]:
    """The models that this version of pycolmap has; older ones lack the newest."""
    return [name for name in LENSES if name in pycolmap.CameraModelId.__members__]


def colmap_camera(model: str, camera_id: int = 1) -> Any:
    """A camera with every parameter different from its default."""
    camera = pycolmap.Camera(camera_id=camera_id, model=model, width=640, height=480, params=colmap_params(model))
    return camera


def colmap_params(model: str) -> list[float]:
    simple = model.startswith("SIMPLE") or model in ("RADIAL", "RADIAL_FISHEYE")
    return [*([510.0] if simple else [500.0, 520.0]), 315.5, 247.0, *LENSES[model]]


def synthetic_reconstruction(num_frames: int = 5, cameras_per_rig: int = 1) -> Any:
    """A scene of pycolmap's own making, with points, and with a rig of several cameras where asked for."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 2
    options.num_cameras_per_rig = cameras_per_rig
    options.num_frames_per_rig = num_frames
    options.num_points3D = 60
    pycolmap.set_random_seed(3)
    return pycolmap.synthesize_dataset(options)


def write_pictures(reconstruction: Any, folder: Path) -> None:
    """Small black pictures with the names of the reconstruction's images."""
    from posfeat.data.images import write_image

    for image in reconstruction.images.values():
        path = folder / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_image(path, np.zeros((4, 4, 3), dtype=np.uint8))
