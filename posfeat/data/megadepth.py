"""MegaDepth as others prepared it: CAPS's folders (the paper's training set), and D2-Net's and LoFTR's ``scene_info`` files.

- CAPS: ``SCENE/dense*/aligned/{images/, img_cam.txt, pairs.txt}``. A line of img_cam.txt is ``name w h fx fy cx cy R(9) T(3)``,
  world to camera, rotation row by row. Its pairs.txt says which pairs train.
- scene_info: one ``.npz`` a scene with ``image_paths``, ``intrinsics``, ``poses`` and either the points that every image sees
  (D2-Net) or ``pair_infos`` with overlaps (LoFTR).
Both take their cameras from COLMAP, so principal points are moved by its half pixel. Depth maps are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from posfeat.data.distortion import camera_from_colmap
from posfeat.data.images import image_size
from posfeat.data.object_arrays import ArchiveReader
from posfeat.data.poses import pose_from_matrix
from posfeat.types import DataError, ImageError, Pair, View

_MEGADEPTH_V1 = "phoenix/S6/zl548/MegaDepth_v1"


def read_caps(folder: Path) -> list[View]:
    """The posed images of one ``aligned`` folder."""
    path = folder / "img_cam.txt"
    views = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, *words = line.split()
            numbers = np.array(words, dtype=np.float64)
            if len(numbers) != 18:
                raise ValueError(f"{len(numbers)} numbers after the name, not 18")
            camera = camera_from_colmap("PINHOLE", int(numbers[0]), int(numbers[1]), numbers[2:6].tolist())
            pose = pose_from_matrix(numbers[6:15].reshape(3, 3), numbers[15:])
        except (ValueError, DataError) as error:
            raise DataError(f"{path} line {number} is not 'name w h fx fy cx cy R(9) T(3)': {error}") from error
        views.append(View(image_path=folder / "images" / name, camera=camera, cam_from_world=pose, name=name))
    return views


def read_caps_pairs(folder: Path, views: list[View]) -> list[Pair] | None:
    """The pairs of pairs.txt between the given views; None where the file is missing."""
    path = folder / "pairs.txt"
    if not path.is_file():
        return None
    by_name = {view.name: view for view in views}
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Pair(by_name[row[0]], by_name[row[1]]) for row in rows if row[0] in by_name and row[1] in by_name]


def read_scene_info(path: Path, image_root: Path) -> list[View]:
    """The posed images of one scene_info file whose pictures are there; their sizes are read from the pictures."""
    with ArchiveReader(path) as archive:
        image_paths, intrinsics, poses = (archive.read(key) for key in ("image_paths", "intrinsics", "poses"))
        points = (
            archive.read("points3D_id_to_2D") if "points3D_id_to_2D" in archive.names else [None] * len(image_paths)
        )
    views = []
    for row in zip(image_paths, intrinsics, poses, points, strict=True):
        if row[0] is not None and row[1] is not None and row[2] is not None:
            views.append(_scene_info_view(path, image_root, *row))
    return views


def read_scene_info_pairs(path: Path, views: list[View]) -> list[Pair] | None:
    """LoFTR's listed pairs with their overlaps between the given views; None where the file lists none."""
    with ArchiveReader(path) as archive:
        if "pair_infos" not in archive.names:
            return None
        image_paths, infos = archive.read("image_paths"), archive.read("pair_infos")
    by_name = {view.name: view for view in views}
    names = [str(name) for name in image_paths]
    pairs = []
    for info in infos:
        first, second, overlap = int(info[0][0]), int(info[0][1]), float(info[1])
        if names[first] in by_name and names[second] in by_name:
            pairs.append(Pair(by_name[names[first]], by_name[names[second]], overlap=overlap))
    return pairs


def _scene_info_view(path: Path, root: Path, name: Any, intrinsics: Any, pose: Any, points: Any) -> View:
    image_path = _found_image(root, str(name))
    try:
        width, height = image_size(image_path) if image_path.is_file() else (0, 0)
    except ImageError as error:
        raise DataError(f"{path.name}: {error}") from error
    matrix, pose = np.asarray(intrinsics, dtype=np.float64), np.asarray(pose, dtype=np.float64)
    params = [matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]]
    if not width:  # the picture is missing: the caller says so, the size only has to be possible
        width, height = round(2 * params[2]), round(2 * params[3])
    try:
        cam_from_world = pose_from_matrix(pose[:3, :3], pose[:3, 3])
        camera = camera_from_colmap("PINHOLE", width, height, params)
    except (ValueError, IndexError, DataError) as error:
        raise DataError(f"{path} has an unusable camera for {name}: {error}") from error
    return View(
        image_path=image_path,
        camera=camera,
        cam_from_world=cam_from_world,
        name=str(name),
        point_ids=None if points is None else np.array(sorted(points), dtype=np.int64),
    )


def _found_image(root: Path, name: str) -> Path:
    """Where the picture lies: as listed, or in MegaDepth's own folders, which those use who lack D2-Net's undistorted copies."""
    listed = root / name
    parts = name.split("/")
    if listed.is_file() or len(parts) < 3 or parts[0] != "Undistorted_SfM":
        return listed
    stem = Path(parts[-1]).stem
    folder = root / _MEGADEPTH_V1 / parts[1] / "dense0" / "imgs"
    return next((found for end in (".jpg", ".JPG", ".png") if (found := folder / f"{stem}{end}").is_file()), listed)
