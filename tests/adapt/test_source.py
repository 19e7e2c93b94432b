"""Sources of all kinds: a folder of photos is reconstructed, twice if asked; masks and several scenes keep their names."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from posfeat.adapt.round import Events
from posfeat.adapt.run import adapt_to
from posfeat.adapt.source import evenly, is_plain_folder, read_posed_photos
from posfeat.data.images import write_image
from posfeat.geometry.pose import quaternion_from_rotation
from posfeat.interop.nerfstudio import write_transforms
from posfeat.types import DataError


def test_posed_photos_and_plain_folders_are_told_apart(walk, tmp_path):
    assert not is_plain_folder(walk)
    assert is_plain_folder(walk / "images")
    with pytest.raises(DataError, match="does not exist"):
        is_plain_folder(tmp_path / "nowhere")


def test_a_colmap_model_with_a_camera_for_each_photo(walk, tmp_path):
    views = read_posed_photos(walk, None, print)
    model = tmp_path / "model" / "sparse" / "0"
    model.mkdir(parents=True)
    shutil.copytree(walk / "images", tmp_path / "model" / "images")
    cameras, images = [], []
    for number, view in enumerate(views, start=1):
        (fx, _, cx), (_, fy, cy) = view.camera.matrix[:2]
        cameras.append(f"{number} PINHOLE {view.camera.width} {view.camera.height} {fx} {fy} {cx + 0.5} {cy + 0.5}")
        turn = quaternion_from_rotation(torch.from_numpy(view.cam_from_world[:3, :3])).tolist()
        pose = " ".join(map(repr, map(float, [*turn, *view.cam_from_world[:3, 3]])))
        images += [f"{number} {pose} {number} {view.image_path.name}", ""]
    (model / "cameras.txt").write_text("\n".join(cameras) + "\n")
    (model / "images.txt").write_text("\n".join(images) + "\n")
    (model / "points3D.txt").write_text("")
    assert not is_plain_folder(tmp_path / "model")
    assert_same_cameras(read_posed_photos(tmp_path / "model", None, print), views)


def test_a_nerfstudio_folder(walk, tmp_path):
    views = read_posed_photos(walk, None, print)
    shutil.copytree(walk / "images", tmp_path / "nerf" / "images")
    write_transforms(tmp_path / "nerf" / "transforms.json", views)
    assert not is_plain_folder(tmp_path / "nerf")
    assert_same_cameras(read_posed_photos(tmp_path / "nerf", None, print), views)


def assert_same_cameras(views, others):
    by_name = {view.image_path.name: view for view in others}
    assert len(views) == len(by_name)
    for view in views:
        other = by_name[view.image_path.name]
        assert np.allclose(view.cam_from_world, other.cam_from_world, atol=1e-6)
        assert np.allclose(view.camera.matrix, other.camera.matrix, atol=1e-6)


def test_several_scenes_have_names_of_their_own(walk, tmp_path):
    for name in ("north", "south"):
        shutil.copytree(walk, tmp_path / "scenes" / name)
    views = read_posed_photos(tmp_path / "scenes", None, print)
    assert len({view.name for view in views}) == 80
    assert views[0].name == "north/images/000.png"


def test_masks_beside_and_given(walk, tmp_path):
    masks = tmp_path / "masks" / "images"
    masks.mkdir(parents=True)
    write_image(masks / "003.png.png", np.zeros((144, 192), np.uint8))
    views = read_posed_photos(walk, tmp_path / "masks", print)
    assert [view.name for view in views if view.mask_path is not None] == ["images/003.png"]


def test_a_large_source_is_thinned_evenly(walk):
    views = read_posed_photos(walk, None, print)
    assert [int(view.name[-7:-4]) for view in evenly(views, 14)] == list(range(0, 40, 3))


@pytest.mark.slow
def test_a_folder_is_reconstructed_and_tuned_in_rounds(walk, quick, tmp_path):
    pytest.importorskip("pycolmap")
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted((walk / "images").iterdir())[:26]:
        shutil.copy(path, photos)
    said: list[str] = []
    options = quick("rounds=2", "tune.steps=1", "match_pairs=sequential", "keypoints=512", "split.least_pairs=3")
    events = Events(said.append, Events.silent().bar)
    result = adapt_to(photos, tmp_path / "mine.safetensors", options, events=events)
    placed = [line for line in said if line.startswith("of 26 photos placed: ")]
    assert "with rootsift" in placed[0]
    assert len(placed) == 2
    splits = [
        json.loads((tmp_path / "mine" / f"round_{number}" / "split.json").read_text())["held_out"] for number in (1, 2)
    ]
    assert splits[0] == splits[1]
    assert result.report.is_file()
