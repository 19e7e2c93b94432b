"""A gallery wall that never was: photos hung at different depths before a bulging wall, seen by cameras that are known exactly.

The world's unit is a metre; x points right, y down, z into the wall, whose plaster lies around z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.images import RGB, resize_image, write_image
from posfeat.data.random_views import PosedCamera, camera_towards
from posfeat.data.relief import Relief
from posfeat.data.relief_scene import Plane, Scene, render
from posfeat.data.texture import Texture
from posfeat.demo.sample_photos import PhotoName, sample_photo
from posfeat.types import Array, Camera, View

HEIGHT, WIDTH = 720, 960
NUM_VIEWS = 16
FOCAL_PX = 0.82 * WIDTH
ARC_RADIUS, ARC_DEG = 4.6, 33.0  # metres, and degrees to either side
WALL_PX_PER_METRE = 220
WALL_WIDTH, WALL_HEIGHT = 8.6, 5.2  # metres; beyond them the wall is mirrored
SHADOW_SOFTNESS = 0.09  # metres
FRAME, MAT = 0.045, 0.07  # widths in metres


@dataclass(frozen=True)
class Hanging:
    """A framed picture: where its middle hangs (metres), how wide the picture is, and how far before the wall."""

    photo: PhotoName
    x: float
    y: float
    width: float
    depth: float
    frame: tuple[int, int, int]


HANGINGS = (  # the nearest first, as they are painted from behind
    Hanging("chelsea", 0.25, 0.72, 1.25, 1.05, (38, 34, 32)),
    Hanging("gravel", -1.62, 0.88, 0.72, 0.80, (120, 84, 52)),
    Hanging("coffee", -0.52, -0.62, 1.45, 0.55, (62, 40, 26)),
    Hanging("grass", 2.92, 0.62, 0.95, 0.45, (90, 92, 96)),
    Hanging("rocket", 1.55, -0.48, 1.60, 0.28, (28, 30, 36)),
    Hanging("astronaut", -2.55, -0.30, 1.35, 0.18, (150, 122, 70)),
    Hanging("brick", 3.05, -0.78, 0.80, 0.20, (38, 34, 32)),
)


def render_gallery(folder: Path) -> list[View]:
    """Write ``photos/`` and the exact ``cameras.txt`` into a folder; the views, in the cameras' order."""
    scene = gallery_scene()
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    views = []
    for number, camera in enumerate(gallery_cameras(), start=1):
        path = folder / "photos" / f"view_{number:02d}.jpg"
        write_image(path, render(scene, camera, HEIGHT, WIDTH))
        intrinsics = Camera(WIDTH, HEIGHT, camera.intrinsics)
        views.append(View(path, intrinsics, camera.cam_from_world, name=path.name, scene="gallery"))
    write_cameras_txt(folder / "cameras.txt", views)
    return views


def gallery_cameras() -> list[PosedCamera]:
    """Cameras along an arc before the wall, nearer and farther, higher and lower, as a visitor would walk."""
    cameras = []
    for step in np.linspace(-1, 1, NUM_VIEWS):
        angle = np.radians(ARC_DEG * step)
        radius = ARC_RADIUS * (1 + 0.08 * np.sin(5 * step))
        centre = np.array([radius * np.sin(angle), 0.42 * np.sin(9 * step), -radius * np.cos(angle)])
        aim = np.array([0.42 * centre[0], 0.1 * np.cos(7 * step), -0.3])
        towards = (aim - centre) / np.linalg.norm(aim - centre)
        roll_deg = 4 * np.sin(6 * step + 1)
        cameras.append(camera_towards(centre, towards, float(roll_deg), FOCAL_PX, HEIGHT, WIDTH, np.zeros(2)))
    return cameras


def gallery_scene() -> Scene:
    """The wall and what hangs before it."""
    return Scene(
        photo=Texture(_wall()),
        relief=_bulges(),
        photo_to_pixels=_hung(0, 0, WALL_PX_PER_METRE, (round(WALL_WIDTH * WALL_PX_PER_METRE), _wall_rows())),
        before=tuple(_plane(hanging) for hanging in HANGINGS),
    )


def _bulges() -> Relief:
    """Old plaster: long waves, no deeper than 9 cm and gentle enough that every camera's rays meet them once."""
    return Relief(
        wave_amplitudes=np.array([0.04, 0.03, 0.02]),
        wave_frequencies=2 * np.pi * np.array([[1 / 3.1, 0.08], [0.12, 1 / 2.3], [1 / 1.9, -1 / 2.6]]),
        wave_phases=np.array([0.3, 1.1, 2.0]),
        fold_slopes=np.zeros(0),
        fold_normals=np.zeros((0, 2)),
        fold_offsets=np.zeros(0),
        fold_radii=np.zeros(0),
    )


def _plane(hanging: Hanging) -> Plane:
    picture = _framed(hanging)
    pixels_per_metre = sample_photo(hanging.photo).shape[1] / hanging.width
    to_pixels = _hung(hanging.x, hanging.y, pixels_per_metre, (picture.shape[1], picture.shape[0]))
    return Plane(Texture(picture, mirrored=False), -hanging.depth, to_pixels)


def _framed(hanging: Hanging) -> RGB:
    """A photo on white board in a wooden frame with a lighter inner edge."""
    photo = sample_photo(hanging.photo)
    pixels_per_metre = photo.shape[1] / hanging.width
    mat, frame = round(MAT * pixels_per_metre), round(FRAME * pixels_per_metre)
    edge = max(1, frame // 5)
    picture = photo
    for width, colour in (
        (mat, (236, 233, 226)),
        (edge, tuple(min(255, c + 50) for c in hanging.frame)),
        (frame, hanging.frame),
    ):
        rows, columns = picture.shape[0] + 2 * width, picture.shape[1] + 2 * width
        around = np.empty((rows, columns, 3), dtype=np.uint8)
        around[:] = colour
        around[width:-width, width:-width] = picture
        picture = around
    return picture


def _hung(x: float, y: float, pixels_per_metre: float, size: tuple[int, int]) -> Array:
    """From (u, v) in metres to the pixels of a picture of ``size`` (columns, rows) whose middle is at (x, y)."""
    middle = (np.array(size) - 1) / 2
    return np.column_stack([pixels_per_metre * np.eye(2), middle - pixels_per_metre * np.array([x, y])])


def _wall_rows() -> int:
    return round(WALL_HEIGHT * WALL_PX_PER_METRE)


def _wall() -> RGB:
    """Old plaster with stains, brick where it came off, and the soft shadows of what hangs before it."""
    rng = np.random.default_rng(7)
    rows, columns = _wall_rows(), round(WALL_WIDTH * WALL_PX_PER_METRE)
    grain = _grain("gravel", rows, columns, 900)[..., None]
    stains = _clouds(rng, rows, columns, 5)[..., None]
    plaster = np.array([205.0, 198.0, 186.0]) * (1 + 0.13 * grain + 0.05 * stains)
    bricks = np.array([166.0, 104.0, 82.0]) * (1 + 0.55 * _grain("brick", rows, columns, 420))[..., None]
    bare = np.clip(6 * (_clouds(rng, rows, columns, 7) - 0.75), 0, 1)[..., None]
    wall = (plaster * (1 - bare) + bricks * bare) * _shadows(rows, columns)[..., None]
    return np.clip(wall, 0, 255).astype(np.uint8)


def _grain(photo: PhotoName, rows: int, columns: int, side: int) -> Array:
    """A texture's ups and downs (unit variance), ``side`` pixels a tile; neighbouring tiles mirror each other."""
    tile = resize_image(sample_photo(photo), side, side)[..., 0].astype(np.float64)
    tile = (tile - tile.mean()) / tile.std()
    return np.asarray(np.pad(tile, ((0, rows), (0, columns)), mode="symmetric")[:rows, :columns])


def _clouds(rng: np.random.Generator, rows: int, columns: int, cells: int) -> Array:
    """Smooth random ups and downs (about unit variance), with about ``cells`` of them from top to bottom."""
    clouds = np.zeros((rows, columns))
    for octave in range(3):
        count = cells * 2**octave
        coarse = rng.integers(0, 256, (count, round(count * columns / rows)), dtype=np.uint8)
        fine = resize_image(np.repeat(coarse[..., None], 3, axis=2), columns, rows)[..., 0]
        clouds += (fine / 127.5 - 1) * 0.6**octave
    return np.asarray(clouds / clouds.std())


def _shadows(rows: int, columns: int) -> Array:
    """How much light reaches the wall beside and below the pictures; it comes from above, a little from the left."""
    x = ((np.arange(columns) + 0.5) / columns - 0.5) * WALL_WIDTH
    y = ((np.arange(rows) + 0.5) / rows - 0.5) * WALL_HEIGHT
    light = np.ones((rows, columns))
    for hanging in HANGINGS:
        photo = sample_photo(hanging.photo)
        half_x = hanging.width / 2 + MAT + FRAME
        half_y = hanging.width * photo.shape[0] / photo.shape[1] / 2 + MAT + FRAME
        softness = SHADOW_SOFTNESS * (0.4 + hanging.depth)
        across = _soft_box(x, hanging.x + 0.15 * hanging.depth, half_x, softness)
        down = _soft_box(y, hanging.y + 0.45 * hanging.depth, half_y, softness)
        light *= 1 - 0.45 * down[:, None] * across
    return light


def _soft_box(values: Array, middle: float, half: float, softness: float) -> Array:
    """1 inside of middle +- half, 0 outside, and a soft step between."""
    return np.asarray(1 / (1 + np.exp((np.abs(values - middle) - half) / (softness / 3))))
