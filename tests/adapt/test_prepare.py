"""Working copies: grey, thermal-like, 16-bit, distorted and masked photos become straight 8-bit ones with true cameras."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from posfeat.adapt.copies import without_copies
from posfeat.adapt.prepare import HIDDEN, prepare_photos, told_of_tones
from posfeat.data.distortion import project_points
from posfeat.data.images import read_image, read_mask, write_image
from posfeat.types import Camera, View
from tests.adapt import corridor

MATRIX = np.array([[300.0, 0, 159.5], [0, 300, 119.5], [0, 0, 1]])


def written(folder: Path, pixels: np.ndarray, camera: Camera | None = None, mask: np.ndarray | None = None) -> View:
    path = folder / "photo.png"
    cv2.imwrite(str(path), pixels)
    mask_path = None
    if mask is not None:
        mask_path = folder / "mask.png"
        cv2.imwrite(str(mask_path), mask)
    return View(path, camera or Camera(320, 240, MATRIX), np.eye(4), name="photo.png", mask_path=mask_path)


def prepared(view: View, folder: Path, longest_px: int = 1024) -> View:
    lost: list[str] = []
    found = prepare_photos([view], folder / "work", longest_px, report=lost.append)
    assert lost == []
    return found[0]


@pytest.mark.parametrize("kind", ["colour", "grey", "sixteen_bit", "sixteen_bit_grey"])
def test_any_depth_becomes_rgb(tmp_path, kind):
    colour = corridor.painted(240, 320, 0)
    grey = cv2.cvtColor(colour, cv2.COLOR_RGB2GRAY)
    pixels = {
        "colour": colour[..., ::-1],
        "grey": grey,
        "sixteen_bit": colour[..., ::-1].astype(np.uint16) * 257,
        "sixteen_bit_grey": grey.astype(np.uint16) * 257,
    }[kind]
    view = prepared(written(tmp_path, pixels), tmp_path)
    expected = colour if "grey" not in kind else np.repeat(grey[..., None], 3, axis=2)
    assert (read_image(view.image_path) == expected).all()


def test_a_distorted_photo_becomes_straight_and_small(tmp_path):
    camera = Camera(320, 240, MATRIX, "SIMPLE_RADIAL", (-0.1,))
    dot = np.array([[0.1, -0.05, 1.0]])
    x, y = project_points(camera, dot)[0]
    photo = np.zeros((240, 320, 3), np.uint8)
    cv2.circle(photo, (round(x * 16), round(y * 16)), 4 * 16, (255, 255, 255), cv2.FILLED, cv2.LINE_AA, 4)
    view = prepared(written(tmp_path, photo, camera), tmp_path, longest_px=200)
    assert max(view.camera.width, view.camera.height) == 200
    assert view.camera.model == "PINHOLE"
    small = read_image(view.image_path)[..., 0].astype(float)
    rows, columns = np.mgrid[: small.shape[0], : small.shape[1]]
    seen = np.array([(small * columns).sum(), (small * rows).sum()]) / small.sum()
    expected = (view.camera.matrix @ dot[0])[:2]
    assert np.abs(seen - expected).max() < 0.1


def test_what_a_mask_hides_is_painted_over(tmp_path):
    mask = np.full((240, 320), 255, np.uint8)
    mask[:, :80] = 0
    view = prepared(written(tmp_path, corridor.painted(240, 320, 0), mask=mask), tmp_path, longest_px=160)
    pixels = read_image(view.image_path)
    assert (pixels[:, :39] == HIDDEN).all()
    assert (read_mask(view.mask_path) == (np.arange(160) >= 40)).all()


def test_raw_values_of_a_thermal_camera_are_warned_about(tmp_path):
    grey = cv2.cvtColor(corridor.painted(240, 320, 0), cv2.COLOR_RGB2GRAY).astype(np.uint16)
    raw = written(tmp_path, 30000 + 4 * grey)
    assert " of 256 levels, as raw 16-bit pictures do: stretch them" in told_of_tones([raw])[0]
    assert told_of_tones([written(tmp_path, 257 * grey)]) == []


def test_a_photo_of_another_shape_is_left_out(tmp_path):
    lost: list[str] = []
    view = written(tmp_path, corridor.painted(240, 300, 0))
    assert prepare_photos([view], tmp_path / "work", 1024, report=lost.append) == []
    assert lost == ["photo.png is left out: the photo is 300x240 pixels, but its camera is 320x240"]


def test_copies_are_found_by_their_picture(tmp_path):
    views = []
    for number, quality in enumerate((95, 60, 95)):
        path = tmp_path / f"{number}.jpg"
        cv2.imwrite(str(path), corridor.painted(240, 320, number // 2), [cv2.IMWRITE_JPEG_QUALITY, quality])
        views.append(View(path, Camera(320, 240, MATRIX), np.eye(4), name=path.name))
    kept, copies = without_copies(views)
    assert [view.name for view in kept] == ["0.jpg", "2.jpg"]
    assert [view.name for view in copies] == ["1.jpg"]


def test_neighbours_in_haze_are_no_copies(tmp_path):
    views = []
    for view in corridor.photograph(tmp_path, corridor.walk(80)[:6]):
        write_image(view.image_path, (read_image(view.image_path) // 12 + 160).astype(np.uint8))
        views.append(view)
    assert without_copies(views)[1] == []
