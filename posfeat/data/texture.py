"""Reading a picture at arbitrary positions without aliasing: the picture is smoothed to the local scale of the reading."""

from __future__ import annotations

from typing import Annotated

import cv2
import numpy as np
import numpy.typing as npt

from posfeat.data.pair_sample import Pixels
from posfeat.types import Array32

GRID_STEP_PX = 8  # the local scale changes slowly: it is computed this far apart
STRETCHED = 1.3  # from this ratio of the longer to the shorter axis on, two readings along the longer one are averaged
LEVEL_BIAS = -0.35  # sharpest without aliasing, against the mean of 6x6 readings in every pixel


class Texture:
    """A picture and its successive halves. Positions are pixels of the picture.

    Beyond its rim the picture is mirrored, or there is nothing: readings are RGBA, premultiplied, and alpha is 0 there.
    Four channels are read more than twice as fast as three.
    """

    def __init__(self, picture: Annotated[Pixels, "height width channels"], mirrored: bool = True) -> None:
        self.mirrored = mirrored
        self._levels = [_with_alpha(picture)]
        self._highest = min(6, max(0, int(np.log2(min(picture.shape[:2]) / 4))))

    @property
    def picture(self) -> Pixels:
        """The picture itself, RGBA and premultiplied."""
        return self._levels[0]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture."""
        return self.picture.shape[0], self.picture.shape[1]

    def read(self, x: Array32, y: Array32) -> Pixels:
        """RGBA (H, W, 4) at positions (H, W) that vary smoothly; both sides must be longer than GRID_STEP_PX."""
        longer_x, longer_y, longer, shorter = _footprint_axes(x, y)
        if float(np.median(longer / shorter)) < STRETCHED:
            return self._read_smoothed(self._level(np.sqrt(longer * shorter), x.shape), x, y)
        level = self._level(np.maximum(longer / 2, shorter), x.shape)
        step_x, step_y = _full_size(longer_x / 4, x.shape), _full_size(longer_y / 4, x.shape)
        ahead, behind = (self._read_smoothed(level, x + sign * step_x, y + sign * step_y) for sign in (1, -1))
        return np.asarray(cv2.addWeighted(ahead, 0.5, behind, 0.5, 0), dtype=np.uint8)

    def _level(self, span: Array32, shape: tuple[int, ...]) -> Array32:
        """How often to halve the picture where an image pixel spans ``span`` of its pixels."""
        level = np.log2(np.maximum(span, 1e-6)) + LEVEL_BIAS
        return _full_size(np.clip(level, 0, self._highest), shape)

    def _read_smoothed(self, level: Array32, x: Array32, y: Array32) -> Pixels:
        """Bilinear within the two halvings next to ``level``, linear between them."""
        first, last = int(np.floor(level.min())), int(np.ceil(level.max()))
        image = self._read_level(first, x, y)
        for index in range(first + 1, last + 1):
            weight = np.clip(level - (index - 1), 0, 1)
            finer, coarser = image, self._read_level(index, x, y)
            image = np.asarray(cv2.blendLinear(finer, coarser, 1 - weight, weight), dtype=np.uint8)
        return image

    def _read_level(self, index: int, x: Array32, y: Array32) -> Pixels:
        picture = self._halved(index)
        if index > 0:
            scale_x = np.float32(picture.shape[1] / self.picture.shape[1])
            scale_y = np.float32(picture.shape[0] / self.picture.shape[0])
            x, y = x * scale_x + (scale_x - 1) / 2, y * scale_y + (scale_y - 1) / 2
        beyond = cv2.BORDER_REFLECT if self.mirrored else cv2.BORDER_CONSTANT
        return np.asarray(cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=beyond), dtype=np.uint8)

    def _halved(self, times: int) -> Pixels:
        while len(self._levels) <= times:
            rows, columns = self._levels[-1].shape[:2]
            half = cv2.resize(self._levels[-1], (columns // 2, rows // 2), interpolation=cv2.INTER_AREA)
            self._levels.append(np.asarray(half, dtype=np.uint8))
        return self._levels[times]


def lay_over(above: Pixels, below: Pixels) -> Pixels:
    """One RGBA reading in front of another."""
    uncovered = cv2.bitwise_not(cv2.extractChannel(above, 3))
    rest = cv2.multiply(below, cv2.merge([uncovered] * 4), scale=1 / 255)
    return np.asarray(cv2.add(above, rest), dtype=np.uint8)


def opaque(reading: Pixels) -> Pixels:
    """RGB of a reading that is nowhere transparent."""
    return np.asarray(cv2.cvtColor(reading, cv2.COLOR_RGBA2RGB), dtype=np.uint8)


def _with_alpha(picture: Pixels) -> Pixels:
    if picture.shape[2] == 3:
        return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2RGBA), dtype=np.uint8)
    alpha = np.ascontiguousarray(picture[..., 3])
    premultiplied = cv2.multiply(picture, cv2.merge([alpha] * 4), scale=1 / 255)
    premultiplied[..., 3] = alpha
    return np.asarray(premultiplied, dtype=np.uint8)


def _footprint_axes(x: Array32, y: Array32) -> tuple[Array32, Array32, Array32, Array32]:
    """On a coarse grid: the longer axis (x, y) of what an image pixel covers of the picture, and both axes' lengths.

    With the Jacobian J of the positions, the squared lengths are the eigenvalues of J J^T.
    """
    coarse_x, coarse_y = x[::GRID_STEP_PX, ::GRID_STEP_PX], y[::GRID_STEP_PX, ::GRID_STEP_PX]
    (x_row, x_column), (y_row, y_column) = _slopes(coarse_x), _slopes(coarse_y)
    xx, yy, xy = x_row**2 + x_column**2, y_row**2 + y_column**2, x_row * y_row + x_column * y_column
    mean, half_difference = (xx + yy) / 2, (xx - yy) / 2
    radius = np.hypot(half_difference, xy)
    longer, shorter = np.sqrt(mean + radius), np.sqrt(np.maximum(mean - radius, 1e-12))
    angle = np.arctan2(xy, half_difference) / 2
    return longer * np.cos(angle), longer * np.sin(angle), longer, shorter


def _slopes(coarse: Array32) -> tuple[Array32, Array32]:
    """Differences along the rows and columns of the coarse grid, a pixel."""
    down, right = np.empty_like(coarse), np.empty_like(coarse)
    np.subtract(coarse[1:], coarse[:-1], out=down[:-1])
    np.subtract(coarse[:, 1:], coarse[:, :-1], out=right[:, :-1])
    down[-1], right[:, -1] = down[-2], right[:, -2]
    step = np.float32(GRID_STEP_PX)
    return down / step, right / step


def _full_size(coarse: npt.NDArray[np.floating], shape: tuple[int, ...]) -> Array32:
    """Values at all pixels, bilinear between those at every GRID_STEP_PX-th, which cv2.resize would displace."""
    to_coarse = np.array([[1 / GRID_STEP_PX, 0, 0], [0, 1 / GRID_STEP_PX, 0]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (shape[1], shape[0])
    full = cv2.warpAffine(coarse.astype(np.float32), to_coarse, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(full, dtype=np.float32)
