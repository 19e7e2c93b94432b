"""Posed photos are found whatever their layout, under names that lists of scenes know, and what is missing is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.images import write_image
from posfeat.data.pairs import PairOptions
from posfeat.data.posed import find_scenes, read_pairs, read_posed
from posfeat.types import DataError
from tests.benchmarks.miniature_scene import (
    MATRIX,
    NAMES,
    cam_from_world,
    write_caps_scene,
    write_colmap_scene,
    write_megadepth_scene,
)
from tests.benchmarks.miniature_sequences import HEIGHT, WIDTH

GENEROUS = PairOptions(min_overlap=0.0, max_parallax_deg=180)


def write_nerfstudio_scene(root: Path) -> None:
    write_colmap_scene(root / "elsewhere")
    (root / "elsewhere" / "images").rename(root / "images")
    shutil.rmtree(root / "elsewhere")
    frames = [
        {
            "file_path": f"images/{name}",
            "transform_matrix": (np.linalg.inv(cam_from_world(index)) @ np.diag([1.0, -1, -1, 1])).tolist(),
        }
        for index, name in enumerate(NAMES)
    ]
    (fx, _, cx), (_, fy, cy), _ = MATRIX.tolist()
    camera = {"w": WIDTH, "h": HEIGHT, "fl_x": fx, "fl_y": fy, "cx": cx + 0.5, "cy": cy + 0.5}
    (root / "transforms.json").write_text(json.dumps(camera | {"frames": frames}))


def write_plain_scene(root: Path) -> None:
    """Our own cameras.txt."""
    write_nerfstudio_scene(root)
    write_cameras_txt(root / "cameras.txt", read_posed(root))
    (root / "transforms.json").unlink()


LAYOUTS = {
    "colmap": write_colmap_scene,
    "nerfstudio": write_nerfstudio_scene,
    "cameras.txt": write_plain_scene,
    "caps": write_caps_scene,
    "scene_info": write_megadepth_scene,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_says_the_same(layout: str, tmp_path: Path) -> None:
    root = tmp_path / "place"
    root.mkdir()
    LAYOUTS[layout](root)
    (scene,) = find_scenes(root)
    assert scene.layout == layout
    views = read_posed(root)
    assert [view.image_path.name for view in views] == list(NAMES)
    for index, view in enumerate(views):
        np.testing.assert_allclose(view.cam_from_world, cam_from_world(index), rtol=0, atol=1e-9)
        np.testing.assert_allclose(view.camera.matrix, MATRIX, rtol=0, atol=1e-9)
        assert (view.camera.width, view.camera.height, view.scene) == (WIDTH, HEIGHT, scene.name)
        assert view.image_path.is_file()
    pairs = read_pairs(root, GENEROUS)
    assert len(pairs) == 6
    if layout == "scene_info":
        assert {pair.overlap for pair in pairs} == {0.2}, "the listed overlap, not one of our own"
    # the file itself may be given as well
    again = find_scenes(scene.source / "img_cam.txt" if layout == "caps" else scene.source)
    assert (again[0].layout, again[0].source) == (scene.layout, scene.source)


def megadepth(root: Path) -> None:
    """Three scenes of CAPS's MegaDepth, one of them in two parts."""
    write_caps_scene(root)
    first = root / "0015"
    shutil.copytree(first / "dense0", first / "dense1")
    shutil.copytree(first, root / "0022")
    shutil.rmtree(root / "0022" / "dense1")
    shutil.copytree(root / "0022", root / "1589")


def test_a_list_of_scenes(tmp_path: Path) -> None:
    root, scenes = tmp_path / "megadepth", tmp_path / "scenes.txt"
    root.mkdir()
    megadepth(root)
    assert [scene.name for scene in find_scenes(root)] == ["0015/dense0", "0015/dense1", "0022/dense0", "1589/dense0"]
    scenes.write_text("# the paper's\n0015\n\n1589/dense0  # all of it\n")
    assert [scene.name for scene in find_scenes(root, scenes)] == ["0015/dense0", "0015/dense1", "1589/dense0"]
    assert len(read_posed(root, scenes)) == 3 * len(NAMES)
    assert {pair.view0.scene for pair in read_pairs(root, PairOptions(), scenes)} == {
        "0015/dense0",
        "0015/dense1",
        "1589/dense0",
    }
    scenes.write_text("0015\n001\n")
    with pytest.raises(DataError, match=r"scene 001 of scenes\.txt is not in .* \(1 of 2 missing\)"):
        find_scenes(root, scenes)
    with pytest.raises(DataError, match=r"list of scenes .*none\.txt cannot be read"):
        find_scenes(root, tmp_path / "none.txt")


def test_pictures_that_are_missing_are_reported_and_left_out(tmp_path: Path) -> None:
    write_colmap_scene(tmp_path / "scene")
    (tmp_path / "scene" / "images" / NAMES[1]).unlink()
    lines: list[str] = []
    views = read_posed(tmp_path / "scene", report=lines.append)
    assert [view.name for view in views] == [NAMES[0], NAMES[2], NAMES[3]]
    assert len(lines) == 1
    assert lines[0].startswith(f"scene: picture {NAMES[1]} is missing, looked for ")
    shutil.rmtree(tmp_path / "scene" / "images")
    with pytest.raises(DataError, match=rf"cameras for 4 pictures, none of which is there; .*{NAMES[0]}"):
        read_posed(tmp_path / "scene")


def test_masks_lie_beside_the_pictures(tmp_path: Path) -> None:
    write_colmap_scene(tmp_path)
    (tmp_path / "masks").mkdir()
    mask = tmp_path / "masks" / f"{NAMES[2]}.png"
    write_image(mask, np.zeros((HEIGHT, WIDTH), np.uint8))
    assert [view.mask_path for view in read_posed(tmp_path)] == [None, None, mask, None]


def test_of_several_models_the_largest(tmp_path: Path) -> None:
    write_colmap_scene(tmp_path)
    (tmp_path / "sparse").rename(tmp_path / "large")
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    (tmp_path / "large").rename(tmp_path / "sparse" / "1")
    for name in ("cameras.txt", "images.txt", "points3D.txt"):
        text = (tmp_path / "sparse" / "1" / name).read_text()
        (tmp_path / "sparse" / "0" / name).write_text("\n".join(text.splitlines()[:4]) + "\n")
    assert len(read_posed(tmp_path / "sparse" / "0")) == 2
    assert len(read_posed(tmp_path)) == 4


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ([], "found neither pictures nor cameras"),
        (["photos/a.JPG", "photos/b.png"], "found 2 pictures but no cameras"),
        (["database.db", "a.jpg"], "nearest is database.db: a COLMAP database, which has no poses"),
        (["sparse/cameras.bin"], "nearest is sparse/cameras.bin: cameras of a COLMAP model without its images file"),
        (["poses.json"], "nearest is poses.json: a file that is not named transforms.json"),
    ],
)
def test_what_comes_closest_is_named(names: list[str], hint: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError) as error:
        find_scenes(tmp_path)
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; give a folder of posed photos"):
        find_scenes(tmp_path / "none")
