"""A picture of matches: two photos side by side, a line for each match, coloured by whether the geometry bears it out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posfeat.data.images import RGB, resize_image

TALLEST_PX = 900
SHORTEST_PX = 360
GAP_PX = 6
MOST_LINES = 150  # more hide the photos
GROUND = (255, 255, 255)
VERIFIED = (38, 222, 129)
UNVERIFIED = (235, 77, 75)
LINE_STRENGTH = 0.6
PHOTO_STRENGTH = 0.8  # photos a little darker, so that lines and dots stand out
SUBPIXEL_BITS = 4  # OpenCV draws at sixteenths of a pixel

Positions = npt.NDArray[np.float32]
Colour = tuple[int, int, int]


def draw_matches(
    image0: RGB, image1: RGB, xy0: Positions, xy1: Positions, verified: npt.NDArray[np.bool_], caption: str = ""
) -> RGB:
    """The picture: a dot for each match in both photos, and lines for so many of them as the eye can follow."""
    height = int(np.clip(max(image0.shape[0], image1.shape[0]), SHORTEST_PX, TALLEST_PX))
    (view0, scale0), (view1, scale1) = (_with_height(image, height) for image in (image0, image1))
    left1 = view0.shape[1] + GAP_PX
    canvas = np.full((height, left1 + view1.shape[1], 3), GROUND, dtype=np.uint8)
    canvas[:, : view0.shape[1]], canvas[:, left1:] = _dimmed(view0), _dimmed(view1)
    start, end = (xy0 + 0.5) * scale0 - 0.5, (xy1 + 0.5) * scale1 - 0.5 + np.array([left1, 0], dtype=np.float32)
    with_line = _spread(start, MOST_LINES)
    for kind, colour in ((False, UNVERIFIED), (True, VERIFIED)):  # verified ones on top
        chosen = with_line & (verified == kind)
        canvas = _with_lines(canvas, start[chosen], end[chosen], colour)
    for kind, colour in ((False, UNVERIFIED), (True, VERIFIED)):
        _put_dots(canvas, np.concatenate([start[verified == kind], end[verified == kind]]), colour)
    return _with_caption(canvas, caption) if caption else canvas


def _with_height(image: RGB, height: int) -> tuple[RGB, npt.NDArray[np.float32]]:
    """The image at the given height, and by how much x and y grew."""
    width = max(1, round(image.shape[1] * height / image.shape[0]))
    scale = np.array([width / image.shape[1], height / image.shape[0]], dtype=np.float32)
    return resize_image(image, width, height), scale


def _spread(xy: Positions, most: int) -> npt.NDArray[np.bool_]:
    """At most ``most`` of the positions, evenly over the picture: the first of each square cell, then the second, ..."""
    extent = np.ptp(xy, axis=0) + 1 if len(xy) else np.ones(2)
    column, row = (xy / np.sqrt(extent.prod() / most)).astype(np.int64).T
    by_cell = np.lexsort((column, row))
    starts = np.any(np.diff(np.stack([column, row])[:, by_cell], axis=1) != 0, axis=0)
    first_of_cell = np.maximum.accumulate(np.where(np.append(True, starts), np.arange(len(xy)), 0))[: len(xy)]
    rank = np.empty(len(xy), dtype=np.int64)
    rank[by_cell] = np.arange(len(xy)) - first_of_cell
    chosen = np.zeros(len(xy), dtype=bool)
    chosen[np.argsort(rank, kind="stable")[:most]] = True
    return chosen


def _dimmed(image: RGB) -> RGB:
    return (image * np.float32(PHOTO_STRENGTH)).astype(np.uint8)


def _fixed_point(xy: Positions) -> npt.NDArray[np.int32]:
    return np.rint(xy * (1 << SUBPIXEL_BITS)).astype(np.int32)


def _with_lines(canvas: RGB, start: Positions, end: Positions, colour: Colour) -> RGB:
    """Thin lines that let the photo through."""
    import cv2

    lines = canvas.copy()
    segments = _fixed_point(np.stack([start, end], axis=1))
    cv2.polylines(lines, list(segments), False, colour, 1, cv2.LINE_AA, SUBPIXEL_BITS)
    return np.asarray(cv2.addWeighted(lines, LINE_STRENGTH, canvas, 1 - LINE_STRENGTH, 0), dtype=np.uint8)


def _put_dots(canvas: RGB, xy: Positions, colour: Colour) -> None:
    import cv2

    for x, y in _fixed_point(xy).tolist():
        cv2.circle(canvas, (x, y), round(1.7 * (1 << SUBPIXEL_BITS)), colour, cv2.FILLED, cv2.LINE_AA, SUBPIXEL_BITS)


def _with_caption(canvas: RGB, caption: str) -> RGB:
    import cv2

    strip = np.full((34, canvas.shape[1], 3), GROUND, dtype=np.uint8)
    cv2.putText(strip, caption, (10, 23), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (40, 40, 40), 1, cv2.LINE_AA)
    return np.concatenate([canvas, strip])
