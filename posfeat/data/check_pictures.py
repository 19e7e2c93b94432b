"""Contact sheets that let a person see whether poses are right: points in one photo, their epipolar lines in the other.

With right poses every line runs through the spot that its point shows (the ring marks where SIFT found it).
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt
import torch

from posfeat.data.check import PairCheck
from posfeat.data.distortion import is_distorted, undistort_image
from posfeat.data.images import read_image
from posfeat.geometry.camera import scale_intrinsics
from posfeat.geometry.epipolar import clip_lines, epipolar_lines, fundamental_from_cameras
from posfeat.geometry.pixels import rescale_pixels
from posfeat.geometry.pose import relative_pose
from posfeat.types import Array, View

Pixels = npt.NDArray[np.uint8]

_PHOTO_WIDTH, _PHOTO_HEIGHT, _HEADER = 460, 345, 34
_MIN_WIDTH, _SHEET_WIDTH = 460, 1600
_NUM_POINTS = 9
_COLOURS = (
    (230, 25, 75),
    (60, 180, 75),
    (255, 225, 25),
    (0, 130, 200),
    (245, 130, 48),
    (240, 50, 230),
    (70, 240, 240),
    (255, 255, 255),
    (0, 0, 0),
)
_HEADER_COLOURS = {"confirmed": (30, 110, 40), "refuted": (170, 30, 30), "unsupported": (90, 90, 90)}


def contact_sheet(checks: list[PairCheck], num_confirmed: int = 6, num_refuted: int = 4) -> Pixels | None:
    """Pairs of every kind, side by side: confirmed ones from little to much parallax, then the refuted ones with most matches."""
    confirmed = sorted((c for c in checks if c.verdict == "confirmed"), key=lambda c: c.parallax_px)
    refuted = sorted((c for c in checks if c.verdict == "refuted"), key=lambda c: -c.num_consistent)
    places = np.linspace(0, len(confirmed) - 1, min(num_confirmed, len(confirmed))).round().astype(int)
    tiles = [draw_check(check) for check in [*(confirmed[place] for place in places), *refuted[:num_refuted]]]
    if not tiles:
        return None
    width = max(tile.shape[1] for tile in tiles)
    columns = max(2, _SHEET_WIDTH // width)
    tiles += [np.zeros((1, 1, 3), dtype=np.uint8)] * (-len(tiles) % columns)
    height = max(tile.shape[0] for tile in tiles)
    padded = [_padded(tile, height, width) for tile in tiles]
    rows = [np.concatenate(padded[start : start + columns], axis=1) for start in range(0, len(padded), columns)]
    return np.concatenate(rows)


def draw_check(check: PairCheck) -> Pixels:
    """Both photos of a pair side by side under a line of text."""
    small0, matrix0, scale0 = _shown_photo(check.pair.view0)
    small1, matrix1, scale1 = _shown_photo(check.pair.view1)
    rows = _spread_rows(check)
    xy0 = rescale_pixels(torch.from_numpy(check.xy0[rows].astype(np.float64)), *scale0)
    xy1 = rescale_pixels(torch.from_numpy(check.xy1[rows].astype(np.float64)), *scale1)
    cam1_from_cam0 = relative_pose(*(torch.from_numpy(v.cam_from_world) for v in (check.pair.view0, check.pair.view1)))
    lines = epipolar_lines(fundamental_from_cameras(matrix0, matrix1, cam1_from_cam0), xy0)
    segments = clip_lines(lines, *small1.shape[:2])
    for number in range(len(rows)):
        colour = _COLOURS[number % len(_COLOURS)]
        _dot(small0, xy0[number].numpy(), colour)
        if bool(segments.valid[number]):
            start, end = (_whole(point[number].numpy()) for point in (segments.start, segments.end))
            cv2.line(small1, start, end, colour, 1, cv2.LINE_AA)
        cv2.circle(small1, _whole(xy1[number].numpy()), 5, colour, 1, cv2.LINE_AA)
    height = max(small0.shape[0], small1.shape[0])
    photos = np.concatenate([_padded(small, height, small.shape[1]) for small in (small0, small1)], axis=1)
    photos = _padded(photos, height, max(_MIN_WIDTH, photos.shape[1]))
    return np.concatenate([_header(check, photos.shape[1]), photos])


def _shown_photo(view: View) -> tuple[Pixels, torch.Tensor, tuple[float, float]]:
    """The undistorted photo at the tile's size, its intrinsics, and the two factors of its size."""
    rgb = read_image(view.image_path)
    if is_distorted(view.camera):
        rgb = undistort_image(rgb, view.camera, replace(view.camera, model="PINHOLE", distortion=()))
    height, width = rgb.shape[:2]
    factor = min(_PHOTO_WIDTH / width, _PHOTO_HEIGHT / height)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    scale = (size[0] / width, size[1] / height)
    small = np.ascontiguousarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return small, scale_intrinsics(torch.from_numpy(view.camera.matrix), *scale), scale


def _spread_rows(check: PairCheck) -> npt.NDArray[np.int64]:
    """Matches far from one another: agreeing ones of a confirmed pair, any of another."""
    count = check.num_agreeing if check.verdict == "confirmed" else check.num_matches
    points = check.xy0[:count].astype(np.float64)
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    chosen = [int(np.argmin(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    distance = np.full(count, np.inf)
    while len(chosen) < min(_NUM_POINTS, count):
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(distance)))
    return np.array(chosen, dtype=np.int64)


def _header(check: PairCheck, width: int) -> Pixels:
    strip = np.full((_HEADER, width, 3), _HEADER_COLOURS[check.verdict], dtype=np.uint8)
    lines = (
        f"{check.verdict}  {check.pair.view0.name} | {check.pair.view1.name}",
        f"{check.num_agreeing} of {check.num_matches} matches on their lines, median {check.median_error_px:.2f} px",
    )
    for row, text in enumerate(lines):
        place = (6, 13 + 15 * row)
        cv2.putText(strip, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA)
    return strip


def _dot(image: Pixels, xy: Array, colour: tuple[int, int, int]) -> None:
    cv2.circle(image, _whole(xy), 4, (0, 0, 0), -1, cv2.LINE_AA)
    cv2.circle(image, _whole(xy), 3, colour, -1, cv2.LINE_AA)


def _whole(xy: Array) -> tuple[int, int]:
    return round(float(xy[0])), round(float(xy[1]))


def _padded(image: Pixels, height: int, width: int) -> Pixels:
    tile = np.zeros((height, width, 3), dtype=np.uint8)
    tile[: image.shape[0], : image.shape[1]] = image
    return tile
