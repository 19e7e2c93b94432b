"""A scene with exact cameras that SIFT can match: blotches of every size on a relief, seen from an arc."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.distortion import pinhole_camera
from posfeat.data.images import write_image
from posfeat.data.random_views import PosedCamera, camera_towards
from posfeat.data.relief import Relief
from posfeat.data.relief_scene import Scene, render
from posfeat.data.texture import Texture
from posfeat.types import View

HEIGHT, WIDTH = 240, 320
FOCAL_PX = 300.0
PX_PER_UNIT = 400.0
DISTANCE = 1.0  # of the cameras from the relief


def blotches(side: int = 900, seed: int = 0) -> np.ndarray:
    """Colour noise of several sizes, for detail at every scale."""
    rng = np.random.default_rng(seed)
    image = np.zeros((side, side, 3), np.float32)
    for cell in (90, 45, 20, 9, 5):
        noise = rng.normal(size=(side // cell + 2, side // cell + 2, 3)).astype(np.float32)
        image += cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC) * np.float32(cell**0.3)
    return np.asarray(np.clip(128 + 30 * image, 0, 255), np.uint8)


def relief_scene() -> Scene:
    """Waves a tenth as high as the cameras are away."""
    relief = Relief(
        wave_amplitudes=np.array([0.05, 0.03]),
        wave_frequencies=2 * np.pi * np.array([[1.1, 0.3], [-0.5, 1.4]]),
        wave_phases=np.array([0.3, 1.1]),
        fold_slopes=np.zeros(0),
        fold_normals=np.zeros((0, 2)),
        fold_offsets=np.zeros(0),
        fold_radii=np.zeros(0),
    )
    picture = blotches()
    to_pixels = np.array([[PX_PER_UNIT, 0, picture.shape[1] / 2], [0, PX_PER_UNIT, picture.shape[0] / 2]])
    return Scene(photo=Texture(picture), relief=relief, photo_to_pixels=to_pixels)


def arc_cameras(count: int) -> list[PosedCamera]:
    """Cameras on an arc before the relief that look at its middle, a little rolled."""
    cameras = []
    for step in np.linspace(-1, 1, count):
        angle = np.radians(22 * step)
        centre = DISTANCE * np.array([np.sin(angle), 0.12 * np.sin(5 * step), -np.cos(angle)])
        towards = -centre / np.linalg.norm(centre)
        cameras.append(camera_towards(centre, towards, float(4 * step), FOCAL_PX, HEIGHT, WIDTH, np.zeros(2)))
    return cameras


def write_rendered_scene(root: Path, count: int = 6) -> list[View]:
    """Photos and their exact cameras.txt; the views in the cameras' order."""
    scene, views = relief_scene(), []
    (root / "photos").mkdir(parents=True)
    for number, camera in enumerate(arc_cameras(count)):
        path = root / "photos" / f"{number}.png"
        write_image(path, render(scene, camera, HEIGHT, WIDTH))
        pinhole = pinhole_camera(WIDTH, HEIGHT, (FOCAL_PX, FOCAL_PX, (WIDTH - 1) / 2, (HEIGHT - 1) / 2))
        views.append(View(path, pinhole, camera.cam_from_world, name=f"photos/{number}.png", scene=root.name))
    write_cameras_txt(root / "cameras.txt", views)
    return views
