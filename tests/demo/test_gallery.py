"""The gallery's cameras are written down exactly, and what the scene says of matches is what the pictures show."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from posfeat.data.images import read_image
from posfeat.data.posed import read_posed
from posfeat.data.relief_scene import true_map
from posfeat.demo import sample_photos
from posfeat.demo.gallery import HEIGHT, WIDTH, gallery_cameras, gallery_scene, render_gallery
from posfeat.demo.sample_photos import StereoPair, motorcycle_pair, sample_photo
from posfeat.demo.truth import rendered_errors_px, stereo_errors_px
from posfeat.types import DataError, MissingExtraError


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    render_gallery(folder)
    return folder


def test_the_cameras_are_written_exactly(gallery: Path) -> None:
    views, cameras = read_posed(gallery), gallery_cameras()
    assert len(views) == len(cameras) == 16
    for view, camera in zip(views, cameras, strict=True):
        np.testing.assert_allclose(view.cam_from_world, camera.cam_from_world, rtol=0, atol=1e-12)
        np.testing.assert_allclose(view.camera.matrix, camera.intrinsics, rtol=0, atol=1e-12)
        assert read_image(view.image_path).shape == (view.camera.height, view.camera.width, 3) == (HEIGHT, WIDTH, 3)


def test_matches_that_are_right_show_the_same_colours(gallery: Path) -> None:
    scene, cameras = gallery_scene(), gallery_cameras()
    first, second = 4, 8
    positions = true_map(scene, cameras[first], cameras[second], HEIGHT, WIDTH)
    rng = np.random.default_rng(0)
    xy0 = np.column_stack([rng.integers(0, WIDTH, 4000), rng.integers(0, HEIGHT, 4000)]).astype(np.float32)
    x, y = xy0.astype(int).T
    xy1, seen = positions[y, x], np.isfinite(positions[y, x, 0])
    assert seen.mean() > 0.5
    xy0, xy1 = xy0[seen], xy1[seen]
    assert rendered_errors_px(scene, cameras[first], cameras[second], xy0, xy1).max() < 1e-3
    shifted = rendered_errors_px(scene, cameras[first], cameras[second], xy0, xy1 + np.float32([3, 4]))
    np.testing.assert_allclose(shifted, 5, atol=1e-3)
    photos = [read_image(gallery / "photos" / f"view_{view + 1:02d}.jpg").astype(float) for view in (first, second)]
    inner = ((xy1 > 1) & (xy1 < [WIDTH - 2, HEIGHT - 2])).all(axis=1)
    (x0, y0), (x1, y1) = (np.rint(xy[inner]).astype(int).T for xy in (xy0, xy1))
    difference = np.abs(photos[0][y0, x0] - photos[1][y1, x1]).mean()
    unrelated = np.abs(photos[0][y0, x0] - photos[1][np.roll(y1, 1), np.roll(x1, 1)]).mean()
    assert difference < unrelated / 3


def test_no_matches_have_no_errors() -> None:
    nothing = np.zeros((0, 2), np.float32)
    camera = gallery_cameras()[0]
    assert len(rendered_errors_px(gallery_scene(), camera, camera, nothing, nothing)) == 0


def test_errors_on_a_measured_pair() -> None:
    disparity = np.full((4, 6), 2.0, np.float32)
    disparity[0] = np.nan
    pair = StereoPair(Path("left.png"), Path("right.png"), disparity)
    left = np.float32([[4, 1], [4, 1], [4.4, 2.6], [3, 0]])
    right = np.float32([[2, 1], [5, 5], [2.4, 2.6], [1, 0]])
    np.testing.assert_allclose(stereo_errors_px(pair, left, right), [0, 5, 0, np.nan], atol=1e-6)


def test_photos_come_from_the_installed_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "socket", refuse)
    for name in ("astronaut", "coffee", "chelsea", "rocket", "brick", "grass", "gravel"):
        assert sample_photo(name).shape[2] == 3
    pair = motorcycle_pair()
    assert read_image(pair.left).shape[:2] == read_image(pair.right).shape[:2] == pair.disparity.shape
    assert 0.9 < np.isfinite(pair.disparity).mean() < 1


def test_without_scikit_image_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sample_photos.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"posfeat\[demo\]"):
        motorcycle_pair()
    monkeypatch.undo()
    monkeypatch.setitem(sample_photos._FILES, "brick", "no_brick.png")
    with pytest.raises(DataError, match=r"no no_brick\.png"):
        sample_photo("brick")
