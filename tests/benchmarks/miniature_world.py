"""A miniature world of points and cameras, written in the exact layouts of Aachen and of ETH's benchmark, and features that
are exact projections of its points: what a correct pipeline makes of them is known beforehand."""

from __future__ import annotations

import itertools
import sqlite3
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Camera, Features, View
from tests.benchmarks.miniature_scene import quaternion
from tests.benchmarks.miniature_sequences import photo, write_ppm

WIDTH, HEIGHT = 320, 240
FOCAL, CX, CY = 300.0, 158.5, 121.5  # in 0-centred pixels
NUM_POINTS = 240
DATABASE = tuple(f"db/{index}.ppm" for index in range(5))
QUERIES = ("query/night/nexus/a.ppm", "query/night/nexus/b.ppm")


def pose_at(place: float, shift: float = 0.0) -> np.ndarray:
    """cam_from_world of a camera on an arc before the points, looking at them; ``shift`` moves its centre sideways."""
    angle = 0.32 * (place - 2)
    pose = np.eye(4)
    pose[:3, :3] = rotation_from_axis_angle(torch.tensor([-0.025 * place, angle, 0.02], dtype=torch.float64)).numpy()
    centre = np.array([6 * np.sin(angle), 0.15 * place, -6 * np.cos(angle)]) + pose[:3, :3].T @ [shift, 0, 0]
    pose[:3, 3] = -pose[:3, :3] @ centre
    return pose


@dataclass(frozen=True)
class World:
    """Where each image was taken, and where its features say it was."""

    true: dict[str, np.ndarray]
    seen: dict[str, np.ndarray] = field(default_factory=dict)  # poses that features are projected with, where others

    def features_of(self, name: str) -> Features:
        """Exact projections of all points, in an order of the image's own, with descriptors that all images share."""
        rng = np.random.default_rng(11)
        points = np.column_stack(
            [rng.uniform(-1.6, 1.6, NUM_POINTS), rng.uniform(-1.2, 1.2, NUM_POINTS), rng.uniform(-1, 1, NUM_POINTS)]
        )
        descriptors = torch.from_numpy(rng.standard_normal((NUM_POINTS, 64))).float()
        pose = self.seen.get(name, self.true[name])
        in_camera = points @ pose[:3, :3].T + pose[:3, 3]
        xy = in_camera[:, :2] / in_camera[:, 2:] * FOCAL + [CX, CY]
        order = np.random.default_rng(sum(map(ord, name))).permutation(NUM_POINTS)
        inside = order[((xy[order] > 1) & (xy[order] < [WIDTH - 2, HEIGHT - 2])).all(axis=1)]
        return Features(
            torch.from_numpy(xy[inside]).float(),
            torch.linspace(1, 0, len(inside)),
            F.normalize(descriptors[inside], dim=1),
            (WIDTH, HEIGHT),
        )

    def write_images(self, folder: Path) -> None:
        for index, name in enumerate(self.true):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_ppm(folder / name, photo(index, WIDTH, HEIGHT))

    def export(self, path: Path, folder: str = "") -> Path:
        """The features as a file in hloc's layout; ``folder`` stands before the images' names."""
        with FeatureStore(path, "a") as store:
            store.write_all([(folder + name, self.features_of(name)) for name in self.true])
        return path


def a_world(query_shift: float = 0.0) -> World:
    """Database images on an arc, two queries between them; with a shift, the queries' features lie about where they were."""
    places = {name: float(index) for index, name in enumerate(DATABASE)} | {QUERIES[0]: 1.5, QUERIES[1]: 2.6}
    true = {name: pose_at(place) for name, place in places.items()}
    return World(true, {name: pose_at(places[name], query_shift) for name in QUERIES} if query_shift else {})


def write_aachen(root: Path, world: World, version: str = "v1") -> None:
    """The given files of either version, intrinsics as COLMAP counts them."""
    world.write_images(root / "images" / "images_upright")
    model = root / "3D-models" / ("aachen_v_1_1" if version == "v1.1" else "")
    model.mkdir(parents=True)
    lines = ["NVM_V3 ", "", str(len(DATABASE))]
    for name in DATABASE:
        pose = world.true[name]
        centre = -pose[:3, :3].T @ pose[:3, 3]
        lines.append(f"{name} {FOCAL} {_numbers(quaternion(pose[:3, :3]))} {_numbers(centre)} 0 0")
    (model / ("aachen_v_1_1.nvm" if version == "v1.1" else "aachen_cvpr2018_db.nvm")).write_text(
        "\n".join([*lines, "", "0", ""])
    )
    intrinsics = f"SIMPLE_RADIAL {WIDTH} {HEIGHT} {FOCAL} {CX + 0.5} {CY + 0.5} 0"
    (root / "3D-models" / "database_intrinsics.txt").write_text("".join(f"{name} {intrinsics}\n" for name in DATABASE))
    (root / "queries").mkdir(exist_ok=True)
    (root / "queries" / "night_time_queries_with_intrinsics.txt").write_text(
        "".join(f"{name} {intrinsics}\n" for name in QUERIES)
    )
    pairs = [(a, b) for i, a in enumerate(DATABASE) for b in DATABASE[i + 1 :]] + [
        (q, d) for q in QUERIES for d in DATABASE
    ]
    ending = "_v1_1" if version == "v1.1" else ""
    (root / f"image_pairs_to_match{ending}.txt").write_text("".join(f"{a} {b}\n" for a, b in pairs))
    write_database(root / f"database{ending}.db", [*DATABASE, *QUERIES])


def write_ground_truth(path: Path, world: World) -> Path:
    lines = []
    for name in QUERIES:
        pose = world.true[name]
        lines.append(f"{name.rsplit('/', 1)[-1]} {_numbers(quaternion(pose[:3, :3]))} {_numbers(pose[:3, 3])}\n")
    path.write_text("".join(lines))
    return path


def write_database(path: Path, names: list[str]) -> None:
    """Cameras and images in the tables of a COLMAP database of before 3.12, as the benchmarks hand them out."""
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL, width INTEGER NOT "
        "NULL, height INTEGER NOT NULL, params BLOB, prior_focal_length INTEGER NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE images (image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE, camera_id INTEGER "
        "NOT NULL, prior_qw REAL, prior_qx REAL, prior_qy REAL, prior_qz REAL, prior_tx REAL, prior_ty REAL, prior_tz REAL)"
    )
    parameters = struct.pack("<4d", FOCAL, CX + 0.5, CY + 0.5, 0.0)
    for number, name in enumerate(names, start=1):
        connection.execute("INSERT INTO cameras VALUES (?, 2, ?, ?, ?, 1)", (number, WIDTH, HEIGHT, parameters))
        connection.execute("INSERT INTO images (image_id, name, camera_id) VALUES (?, ?, ?)", (number, name, number))
    connection.commit()
    connection.close()


def posed_views(world: World, folder: Path) -> list[View]:
    """The images with their true cameras."""
    camera = Camera(WIDTH, HEIGHT, np.array([[FOCAL, 0, CX], [0, FOCAL, CY], [0, 0, 1]]))
    return [View(folder / name, camera, pose, name) for name, pose in world.true.items()]


def write_posed_scene(folder: Path, world: World) -> None:
    """Photos and a cameras.txt, as posed photos from anywhere."""
    world.write_images(folder / "images")
    write_cameras_txt(folder / "cameras.txt", posed_views(world, folder / "images"))


def write_eth_scene(folder: Path, world: World) -> None:
    """A scene of ETH's benchmark with its database and a list of pairs."""
    world.write_images(folder / "images")
    write_database(folder / "database.db", list(world.true))
    names = list(world.true)
    (folder / "pairs.txt").write_text("".join(f"{a} {b}\n" for a, b in itertools.pairwise(names)))


def _numbers(values: np.ndarray) -> str:
    return " ".join(map(repr, map(float, values)))
