"""Pairs of posed images to measure relative poses on, from whatever a benchmark or a person has.

- any folder of posed photos that ``posfeat.data.posed`` knows (COLMAP models, nerfstudio, CAPS, MegaDepth-1500's
  ``scene_info`` lists): its listed pairs, its neighbours in name, or pairs chosen by overlap;
- Strecha-style folders: ``<image name>.camera`` files beside the images or in ``gt_dense_cameras``;
- text lists with cameras in each line, as ScanNet-1500 and MegaDepth-1500 are passed around:
  ``name0 name1 [turn0 turn1] K0(9) K1(9)`` and ``R(9) t(3)`` or ``T(16)`` of the pose cam1_from_cam0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np

from posfeat.benchmarks.camera_files import numbered_lines
from posfeat.data.images import image_size
from posfeat.data.pairs import PairOptions
from posfeat.data.posed import read_pairs, read_posed
from posfeat.types import Array, Camera, DataError, Pair, View

HOW_TO_GET = (
    "give a folder with a COLMAP model (sparse/ beside images/), with .camera files beside the images, or with the "
    "1500 pairs of MegaDepth or ScanNet and their text list (--pairs)"
)
_LIST_LENGTHS = {32: (2, 12), 36: (2, 16), 38: (4, 16)}  # fields of a line -> where numbers begin, length of the pose
_ALL_LISTED = PairOptions(max_rotation_deg=180, max_pairs_per_scene=10**6, max_imbalance=1e6)


def read_pose_pairs(root: Path, pair_list: Path | None = None, neighbours: int | None = None) -> list[Pair]:
    """The pairs of a list, or of views up to ``neighbours`` apart in the order of names, or listed or chosen ones."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; {HOW_TO_GET}")
    if pair_list is not None:
        return read_pair_list(pair_list, root)
    if neighbours is None and not _camera_files(root):
        pairs = read_pairs(root, _ALL_LISTED)
    else:
        pairs = neighbouring_pairs(read_views(root), neighbours or 1)
    if not pairs:
        raise DataError(f"{root}: no pairs of posed images; {HOW_TO_GET}")
    return pairs


def read_views(root: Path, report: Callable[[str], None] | None = None) -> list[View]:
    """Every posed photo under ``root``; ``report`` gets a line about every one whose picture is missing."""
    return read_strecha(root) if root.is_dir() and _camera_files(root) else read_posed(root, report=report)


def neighbouring_pairs(views: list[View], furthest: int) -> list[Pair]:
    """Pairs of views of one scene that are at most ``furthest`` places apart in the order of their names."""
    ordered = sorted(views, key=lambda view: (view.scene, view.name))
    pairs = []
    for _, group in groupby(ordered, key=lambda view: view.scene):
        scene = list(group)
        pairs += [Pair(a, b) for i, a in enumerate(scene) for b in scene[i + 1 : i + 1 + furthest]]
    return pairs


def read_pair_list(path: Path, root: Path) -> list[Pair]:
    """Pairs of a text list, which may lie in ``root``; names are relative to ``root`` or to its folder ``images``."""
    path = path if path.is_file() else root / path
    return [_pair_of_line(fields, root, f"{path.name}:{number}") for number, fields in numbered_lines(path)]


def check_pair_lists(root: Path) -> tuple[list[str], list[str]]:
    """What the text lists of pairs in a folder hold, and what is wrong with them, as sentences."""
    found, problems = [], []
    for path in sorted(root.glob("*.txt")):
        lines = numbered_lines(path)
        if not lines or len(lines[0][1]) not in _LIST_LENGTHS:
            continue
        try:
            found.append(
                f"{path.name}: {len(read_pair_list(path, root))} pairs, for posfeat evaluate pose --pairs {path.name}"
            )
        except DataError as error:
            problems.append(str(error))
    return found, problems


def read_strecha(root: Path) -> list[View]:
    """Views of a Strecha-style folder: each .camera file holds K, three zeros, R (world from camera), centre, size."""
    return [_strecha_view(path, root) for path in _camera_files(root)]


def _pair_of_line(fields: list[str], root: Path, where: str) -> Pair:
    if len(fields) not in _LIST_LENGTHS:
        raise DataError(f"{where}: {len(fields)} fields; a pair has {', '.join(map(str, _LIST_LENGTHS))}: see the docs")
    start, pose_length = _LIST_LENGTHS[len(fields)]
    if start == 4 and fields[2:4] != ["0", "0"]:
        raise DataError(f"{where}: this list turns images before matching; turn them and their cameras, and write 0 0")
    try:
        numbers = np.array(fields[start:], dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    pose = np.eye(4)
    if pose_length == 16:
        pose = numbers[18:].reshape(4, 4)
    else:
        pose[:3, :3], pose[:3, 3] = numbers[18:27].reshape(3, 3), numbers[27:]
    matrices = numbers[:9].reshape(3, 3), numbers[9:18].reshape(3, 3)
    view0, view1 = (
        _listed_view(name, root, matrix, cam_from_world, where)
        for name, matrix, cam_from_world in zip(fields[:2], matrices, (np.eye(4), pose), strict=True)
    )
    return Pair(view0, view1)


def _listed_view(name: str, root: Path, matrix: Array, cam_from_world: Array, where: str) -> View:
    path = next((folder / name for folder in (root, root / "images") if (folder / name).is_file()), None)
    if path is None:
        raise DataError(f"{where}: image {name} is neither in {root} nor in its folder images")
    width, height = image_size(path)
    return View(path, Camera(width, height, matrix), cam_from_world, name=name)


def _camera_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.camera"))


def _strecha_view(path: Path, root: Path) -> View:
    name = path.name.removesuffix(".camera")
    folders = (path.parent, path.parent / "images", path.parent.parent / "images", path.parent.parent)
    image = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if image is None:
        raise DataError(f"{path}: its image {name} is neither beside it nor in images/")
    try:
        numbers = np.array(path.read_text().split(), dtype=np.float64)
        matrix, world_from_cam = numbers[:9].reshape(3, 3), numbers[12:21].reshape(3, 3)
        centre, (width, height) = numbers[21:24], numbers[24:26]
    except ValueError as error:
        raise DataError(f"{path}: not a .camera file of 26 numbers (K, 0 0 0, R, centre, width height)") from error
    cam_from_world = np.eye(4)
    cam_from_world[:3, :3], cam_from_world[:3, 3] = world_from_cam.T, -world_from_cam.T @ centre
    actual = image_size(image)
    if actual != (int(width), int(height)):
        raise DataError(f"{image} is {actual[0]}x{actual[1]}, but its camera is of {width:.0f}x{height:.0f} pixels")
    scene = path.relative_to(root).parts[0] if len(path.relative_to(root).parts) > 1 else root.name
    return View(image, Camera(*actual, matrix), cam_from_world, name=image.relative_to(root).as_posix(), scene=scene)
