"""MegaDepth as CAPS, D2-Net and LoFTR prepared it: cameras, pairs and points to the digit, and no pickle is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from posfeat.data.megadepth import read_caps, read_caps_pairs, read_scene_info, read_scene_info_pairs
from posfeat.types import DataError, View
from tests.benchmarks.miniature_scene import MATRIX, NAMES, cam_from_world, write_caps_scene, write_megadepth_scene
from tests.benchmarks.miniature_sequences import HEIGHT, WIDTH

ALIGNED = Path("0015") / "dense0" / "aligned"
SCENE_INFO = Path("scene_info") / "0015_0.1_0.3.npz"


def assert_true_views(views: list[View], indices: list[int]) -> None:
    assert [view.image_path.name for view in views] == [NAMES[index] for index in indices]
    for view, index in zip(views, indices, strict=True):
        np.testing.assert_allclose(view.camera.matrix, MATRIX, rtol=0, atol=1e-12)
        np.testing.assert_allclose(view.cam_from_world, cam_from_world(index), rtol=0, atol=1e-9)
        assert (view.camera.width, view.camera.height, view.camera.model) == (WIDTH, HEIGHT, "PINHOLE")
        assert view.image_path.is_file()


def objects(values: list[object]) -> np.ndarray:
    """An array of objects, one for each value, whatever these are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def save_scene_info(path: Path, **changes: object) -> Path:
    """LoFTR's file with some arrays put in place of its own; None takes one out."""
    with np.load(path, allow_pickle=True) as archive:
        arrays = {name: archive[name] for name in archive.files} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
    return path


def test_caps(tmp_path: Path) -> None:
    write_caps_scene(tmp_path)
    folder = tmp_path / ALIGNED
    views = read_caps(folder)
    assert_true_views(views, [0, 1, 2, 3])
    with (folder / "pairs.txt").open("a") as file:
        file.write(f"\n{NAMES[3]} elsewhere.jpg\n")
    pairs = read_caps_pairs(folder, views)
    assert pairs is not None
    names = [(pair.view0.name, pair.view1.name) for pair in pairs]
    assert names == [(NAMES[a], NAMES[b]) for a in range(4) for b in range(a + 1, 4)]
    some = read_caps_pairs(folder, views[1:])
    assert some is not None
    assert len(some) == 3
    (folder / "pairs.txt").unlink()
    assert read_caps_pairs(folder, views) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg 640 480 500 500 320 240 1 0 0 0 1 0 0 0 1 0 0", "17 numbers"),
        ("a.jpg 640 480 500 500 320 x 1 0 0 0 1 0 0 0 1 0 0 0", "could not convert"),
        ("a.jpg 640 480 500 500 320 240 2 0 0 0 1 0 0 0 1 0 0 0", "not a rotation"),
        ("a.jpg 640 480 0 500 320 240 1 0 0 0 1 0 0 0 1 0 0 0", "focal length"),
    ],
)
def test_a_damaged_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "img_cam.txt").write_text(f"# name w h fx fy cx cy R T\n\n{line}\n")
    with pytest.raises(DataError, match=f"line 3 .*{message}"):
        read_caps(tmp_path)


def test_loftr(tmp_path: Path) -> None:
    write_megadepth_scene(tmp_path)
    path = tmp_path / SCENE_INFO
    views = read_scene_info(path, tmp_path)
    assert_true_views(views, [0, 1, 2, 3])
    assert all(view.point_ids is None for view in views)
    pairs = read_scene_info_pairs(path, views[:3])
    assert pairs is not None
    assert [(p.view0.image_path.name, p.view1.image_path.name, p.overlap) for p in pairs] == [
        (NAMES[0], NAMES[1], 0.2),
        (NAMES[0], NAMES[2], 0.2),
        (NAMES[1], NAMES[2], 0.2),
    ]


def test_d2_net(tmp_path: Path) -> None:
    """Its files say which points every image sees, list no pairs, and have holes where COLMAP lost an image."""
    write_megadepth_scene(tmp_path)
    points = objects([{7: (1.0, 2.0), 3: (4.0, 5.0)}, {3: (0.0, 0.0)}, None, {}])
    poses = objects([cam_from_world(0), None, cam_from_world(2), cam_from_world(3)])
    path = save_scene_info(tmp_path / SCENE_INFO, points3D_id_to_2D=points, poses=poses, pair_infos=None)
    views = read_scene_info(path, tmp_path)
    assert_true_views(views, [0, 2, 3])
    assert [None if v.point_ids is None else v.point_ids.tolist() for v in views] == [[3, 7], None, []]
    assert read_scene_info_pairs(path, views) is None


def test_pictures_in_megadepths_own_folders(tmp_path: Path) -> None:
    write_megadepth_scene(tmp_path)
    own = tmp_path / "phoenix" / "S6" / "zl548" / "MegaDepth_v1" / "0015" / "dense0"
    own.mkdir(parents=True)
    (tmp_path / "Undistorted_SfM" / "0015" / "images").rename(own / "imgs")
    for index, name in enumerate(NAMES):  # the undistorted copies were called differently
        (own / "imgs" / name).rename(own / "imgs" / f"{index:04d}.jpg")
    views = read_scene_info(tmp_path / SCENE_INFO, tmp_path)
    assert [view.image_path for view in views] == [own / "imgs" / f"{index:04d}.jpg" for index in range(len(NAMES))]
    assert all((view.camera.width, view.camera.height) == (WIDTH, HEIGHT) for view in views)


class Malicious:
    """Unpickled, this would create a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.target),))


def test_no_pickle_is_executed(tmp_path: Path) -> None:
    write_megadepth_scene(tmp_path)
    target = tmp_path / "executed"
    path = save_scene_info(tmp_path / SCENE_INFO, poses=objects([Malicious(target)] * 4))
    with pytest.raises(DataError, match=r"array poses of .*is not read: it names .*mkdir"):
        read_scene_info(path, tmp_path)
    assert not target.exists()


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    write_megadepth_scene(tmp_path)
    path = tmp_path / SCENE_INFO
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], pickle.dumps({"image_paths": []})):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"0015_0\.1_0\.3\.npz is no \.npz file or is cut off"):
            read_scene_info(path, tmp_path)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="has no array intrinsics"):
        read_scene_info(save_scene_info(path, intrinsics=None), tmp_path)
    path.write_bytes(whole)
    flat = np.array([np.diag([1.0, 1, 0, 1])] * 4)
    with pytest.raises(DataError, match=r"unusable camera for .*0000\.ppm: the rotation matrix is not a rotation"):
        read_scene_info(save_scene_info(path, poses=flat), tmp_path)
