"""A long painted wall with boards before it, and photos along it with exact cameras: places, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.images import write_image
from posfeat.data.random_views import PosedCamera, camera_towards
from posfeat.data.relief import random_relief
from posfeat.data.relief_scene import Plane, Scene, render
from posfeat.data.texture import Texture
from posfeat.types import Camera, View

HEIGHT, WIDTH = 144, 192
FOCAL_PX = 0.8 * WIDTH
DISTANCE = 2.2  # metres before the wall
WALL_WIDTH, WALL_HEIGHT = 18.0, 4.0
PX_PER_METRE = 130


def painted(height: int, width: int, seed: int) -> np.ndarray:
    """Coloured shapes over noise at several scales."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for cell in (64, 32, 16, 8):
        noise = rng.normal(size=(height // cell + 2, width // cell + 2, 3)).astype(np.float32)
        image += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC) * cell**0.4
    image = ((image - image.min()) / np.ptp(image) * 255).astype(np.uint8)
    for _ in range(height * width // 2500):
        corners = rng.integers(0, 60, (int(rng.integers(3, 6)), 2)) + rng.integers(0, [width, height])
        cv2.fillPoly(image, [corners.astype(np.int32)], rng.integers(0, 256, 3).tolist())
    return image


def wall() -> Scene:
    """The wall, and boards half a metre before it."""
    picture = painted(round(WALL_HEIGHT * PX_PER_METRE), round(WALL_WIDTH * PX_PER_METRE), 0)
    boards = []
    for number, x in enumerate(np.linspace(-7, 7, 9)):
        board = painted(90, 70, number + 1)
        middle = np.array([[(70 - 1) / 2 - PX_PER_METRE * x], [(90 - 1) / 2 - PX_PER_METRE * (0.4 * (-1) ** number)]])
        boards.append(Plane(Texture(board, mirrored=False), -0.5, np.hstack([PX_PER_METRE * np.eye(2), middle])))
    middle = np.array([[(picture.shape[1] - 1) / 2], [(picture.shape[0] - 1) / 2]])
    relief = random_relief(np.random.default_rng(2), 2.0, 4, 0).scaled(0.6)
    return Scene(Texture(picture), relief, np.hstack([PX_PER_METRE * np.eye(2), middle]), tuple(boards))


def camera_at(x: float, y: float = 0.0, aim_x: float | None = None, distance: float = DISTANCE) -> PosedCamera:
    """A camera before the wall that looks straight at it, or at a point of it."""
    centre = np.array([x, y, -distance])
    towards = np.array([x if aim_x is None else aim_x, 0.3 * y, 0.0]) - centre
    return camera_towards(centre, towards / np.linalg.norm(towards), 0.0, FOCAL_PX, HEIGHT, WIDTH, np.zeros(2))


def walk(count: int) -> list[PosedCamera]:
    """Along the whole wall."""
    return [camera_at(x, 0.25 * np.sin(2.3 * i)) for i, x in enumerate(np.linspace(-7.2, 7.2, count))]


def around_one_place(count: int) -> list[PosedCamera]:
    """An arc about one point of the wall."""
    angles = np.radians(np.linspace(-30, 30, count))
    return [camera_at(2.4 * np.sin(a), 0.2 * np.sin(3 * a * 7), 0.0, DISTANCE * np.cos(a)) for a in angles]


def turning(count: int) -> list[PosedCamera]:
    """From one position."""
    return [camera_at(0.0, 0.0, aim) for aim in np.linspace(-1.0, 1.0, count)]


def photograph(folder: Path, cameras: Sequence[PosedCamera]) -> list[View]:
    """Write images/ and cameras.txt; the views."""
    scene = wall()
    (folder / "images").mkdir(parents=True)
    views = []
    for number, camera in enumerate(cameras):
        path = folder / "images" / f"{number:03d}.png"
        write_image(path, render(scene, camera, HEIGHT, WIDTH))
        intrinsics = Camera(WIDTH, HEIGHT, camera.intrinsics)
        views.append(View(path, intrinsics, camera.cam_from_world, name=f"images/{path.name}", scene=folder.name))
    write_cameras_txt(folder / "cameras.txt", views)
    return views


def with_poses_of(folder: Path, views: Sequence[View], others: Sequence[View]) -> None:
    """Give every photo another one's pose."""
    swapped = [replace(view, cam_from_world=other.cam_from_world) for view, other in zip(views, others, strict=True)]
    write_cameras_txt(folder / "cameras.txt", swapped)


def moved(view: View, wrong: bool) -> View:
    """The view, or the same photo with a pose turned and shifted by far."""
    if not wrong:
        return view
    turn = np.eye(4)
    angle = np.radians(25)
    turn[:3, :3] = [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    turn[:3, 3] = [0.1, 0.4, 0.1]
    return replace(view, cam_from_world=turn @ view.cam_from_world)


def hidden(pixels: np.ndarray, seed: int) -> np.ndarray:
    """A picture that SIFT cannot match: faint under its own noise."""
    noise = np.random.default_rng(seed).normal(0, 50, pixels.shape)
    return np.clip(cv2.GaussianBlur(pixels, (0, 0), 3) / 8 + 100 + noise, 0, 255).astype(np.uint8)


def pale(pixels: np.ndarray) -> np.ndarray:
    """A picture in haze."""
    return (pixels // 8 + 150).astype(np.uint8)
