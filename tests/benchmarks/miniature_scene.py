"""A miniature posed scene in the layouts of real ones, and features that are exact projections of its points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.types import Features
from tests.benchmarks.miniature_sequences import HEIGHT, WIDTH, photo, write_ppm

NUM_VIEWS = 4
MATRIX = np.array([[80.0, 0, 47.5], [0, 82.0, 31.0], [0, 0, 1]])  # in 0-centred pixels
NAMES = tuple(f"{index:04d}.ppm" for index in range(NUM_VIEWS))


def cam_from_world(index: int) -> np.ndarray:
    """Cameras on a small arc that look at the points, each from a side of its own."""
    pose = np.eye(4)
    turn = torch.tensor([0.02 * index, -0.08 * index, 0.03 * index], dtype=torch.float64)
    pose[:3, :3] = rotation_from_axis_angle(turn).numpy()
    pose[:3, 3] = [0.5 * index, 0.1 * index, 0.05 * index]
    return pose


def relative_pose_of(index0: int, index1: int) -> np.ndarray:
    return cam_from_world(index1) @ np.linalg.inv(cam_from_world(index0))


def write_images(folder: Path) -> None:
    folder.mkdir(parents=True)
    for index, name in enumerate(NAMES):
        write_ppm(folder / name, photo(index))


def write_colmap_scene(root: Path) -> None:
    """A COLMAP text model; its principal point is half a pixel further, as the pixel's corner is its origin."""
    write_images(root / "images")
    (root / "sparse").mkdir()
    fx, fy, cx, cy = MATRIX[0, 0], MATRIX[1, 1], MATRIX[0, 2] + 0.5, MATRIX[1, 2] + 0.5
    (root / "sparse" / "cameras.txt").write_text(f"1 PINHOLE {WIDTH} {HEIGHT} {fx} {fy} {cx} {cy}\n")
    lines = []
    for index, name in enumerate(NAMES):
        pose = cam_from_world(index)
        numbers = [*quaternion(pose[:3, :3]), *pose[:3, 3]]
        lines += [f"{index + 1} {' '.join(map(repr, map(float, numbers)))} 1 {name}", ""]
    (root / "sparse" / "images.txt").write_text("\n".join(lines) + "\n")
    (root / "sparse" / "points3D.txt").write_text("")


def write_strecha_scene(root: Path) -> None:
    write_images(root / "images")
    (root / "gt_dense_cameras").mkdir()
    for index, name in enumerate(NAMES):
        world_from_cam = np.linalg.inv(cam_from_world(index))
        blocks = (MATRIX, np.zeros((1, 3)), world_from_cam[:3, :3], world_from_cam[None, :3, 3])
        text = "".join(" ".join(map(repr, map(float, row))) + "\n" for block in blocks for row in block)
        (root / "gt_dense_cameras" / f"{name}.camera").write_text(f"{text}{WIDTH} {HEIGHT}\n")


def write_megadepth_scene(root: Path) -> None:
    """LoFTR's lists for MegaDepth-1500: images as D2-Net undistorted them, cameras and pairs with overlaps in scene_info."""
    write_images(root / "Undistorted_SfM" / "0015" / "images")
    (root / "scene_info").mkdir()
    intrinsics = MATRIX + np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    pairs = [(a, b) for a in range(NUM_VIEWS) for b in range(a + 1, NUM_VIEWS)]
    np.savez(
        root / "scene_info" / "0015_0.1_0.3.npz",
        image_paths=np.array([f"Undistorted_SfM/0015/images/{name}" for name in NAMES], dtype=object),
        depth_paths=np.array(
            [f"phoenix/S6/zl548/MegaDepth_v1/0015/dense0/depths/{name}.h5" for name in NAMES], dtype=object
        ),
        intrinsics=np.array([intrinsics] * NUM_VIEWS),
        poses=np.array([cam_from_world(index) for index in range(NUM_VIEWS)]),
        pair_infos=np.array([[np.array(pair), 0.2, None] for pair in pairs], dtype=object),
    )


def write_caps_scene(root: Path) -> None:
    """MegaDepth as CAPS prepared it: a line of img_cam.txt for each image, and which pairs train."""
    aligned = root / "0015" / "dense0" / "aligned"
    write_images(aligned / "images")
    fx, fy, cx, cy = MATRIX[0, 0], MATRIX[1, 1], MATRIX[0, 2] + 0.5, MATRIX[1, 2] + 0.5
    lines = ["# name w h fx fy cx cy R T"]
    for index, name in enumerate(NAMES):
        pose = cam_from_world(index)
        numbers = " ".join(map(repr, map(float, [*pose[:3, :3].ravel(), *pose[:3, 3]])))
        lines.append(f"{name} {WIDTH} {HEIGHT} {fx} {fy} {cx} {cy} {numbers}")
    (aligned / "img_cam.txt").write_text("\n".join(lines) + "\n")
    pairs = [(a, b) for a in range(NUM_VIEWS) for b in range(a + 1, NUM_VIEWS)]
    (aligned / "pairs.txt").write_text("".join(f"{NAMES[a]} {NAMES[b]}\n" for a, b in pairs))


def write_pair_list(path: Path, kind: int) -> None:
    """Neighbouring pairs in one of the text forms, named by its number of fields."""
    lines = []
    for index in range(NUM_VIEWS - 1):
        pose = relative_pose_of(index, index + 1)
        numbers = [*MATRIX.ravel(), *MATRIX.ravel()]
        numbers += [*pose[:3, :3].ravel(), *pose[:3, 3]] if kind == 32 else [*pose.ravel()]
        turns = ["0", "0"] if kind == 38 else []
        lines.append(" ".join([NAMES[index], NAMES[index + 1], *turns, *map(repr, map(float, numbers))]))
    path.write_text("\n".join(lines) + "\n")


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Scalar first, of a rotation by less than half a turn."""
    w = np.sqrt(1 + np.trace(rotation)) / 2
    skew = rotation - rotation.T
    return np.array([w, skew[2, 1] / (4 * w), skew[0, 2] / (4 * w), skew[1, 0] / (4 * w)])


@dataclass(frozen=True)
class ProjectedFeatures:
    """Exact projections of the same points in every image, moved down by ``shift_px`` in all images but the first."""

    shift_px: float = 0.0
    count: int = 60

    def features_of(self, image_path: Path) -> Features:
        index = NAMES.index(image_path.name)
        rng = np.random.default_rng(3)
        world = np.column_stack([rng.uniform(-2, 2, (self.count, 2)), rng.uniform(4, 8, self.count)])
        seen = np.column_stack([world, np.ones(self.count)]) @ cam_from_world(index)[:3].T @ MATRIX.T
        xy = seen[:, :2] / seen[:, 2:]
        xy[:, 1] += self.shift_px if index else 0.0
        return Features(torch.from_numpy(xy), torch.linspace(1, 0, self.count), torch.eye(self.count), (WIDTH, HEIGHT))
