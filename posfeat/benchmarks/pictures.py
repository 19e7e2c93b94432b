"""The paper's pictures: matches coloured by their error (Fig. 6), keypoints that do and don't become landmarks (Fig. 1),
descriptors as colours (supplement), score maps, and sparse models. They come back encoded: jpg, png, svg or pdf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from posfeat.benchmarks.plots import as_bytes, pyplot
from posfeat.data.images import RGB
from posfeat.types import Array

ERROR_LIMITS_PX = (3.0, 10.0)
ERROR_COLOURS = ("#2ca02c", "#ffb000", "#d62728")  # right, near, wrong
LANDMARK_COLOURS = ("#e6194b", "#1f4fff")  # fails, succeeds: red and blue as in the paper
_MOST_LINES = 200  # more hide the photos
_MOST_POINTS = 60_000
_WIDTH_INCHES = 7.2
_MARGIN = 0.04  # of the points of a model that lie far out, and would make the rest small


def matches_by_error(image0: RGB, image1: RGB, xy0: Tensor, xy1: Tensor, errors_px: Tensor, kind: str = "jpg") -> bytes:
    """Fig. 6: both photos, a dot for every match and lines for some, green to 3 px, yellow to 10 px, red beyond."""
    canvas, left1 = _beside(image0, image1)
    figure, axis = _photo_axis(canvas)
    start, end = xy0.numpy(), xy1.numpy() + np.array([left1, 0])
    colours = np.array(ERROR_COLOURS)[np.searchsorted(ERROR_LIMITS_PX, errors_px.numpy())]
    some = np.random.default_rng(0).permutation(len(start))[:_MOST_LINES]
    for index in some:
        x, y = zip(start[index], end[index], strict=True)
        axis.plot(x, y, color=colours[index], linewidth=0.4, alpha=0.5)
    axis.scatter(*np.concatenate([start, end]).T, s=1.5, c=np.concatenate([colours, colours]), linewidths=0)
    _whole(axis, canvas)
    return as_bytes(figure, kind)


def landmarks(image: RGB, xy: npt.NDArray[Any], succeeded: npt.NDArray[np.bool_], kind: str = "jpg") -> bytes:
    """Fig. 1: the photo's keypoints, blue where they became part of a 3D point and red where they did not."""
    figure, axis = _photo_axis(_paler(image))
    for good in (False, True):  # those that succeed on top
        chosen = xy[succeeded == good]
        axis.scatter(chosen[:, 0], chosen[:, 1], s=4, c=LANDMARK_COLOURS[good], linewidths=0)
    _whole(axis, image)
    return as_bytes(figure, kind)


def panels(rows: Sequence[Sequence[RGB]], titles: Sequence[str] = (), kind: str = "jpg") -> bytes:
    """Pictures in rows, with a title over each column."""
    plt = pyplot()
    columns = max(map(len, rows))
    shapes = [max(image.shape[0] / image.shape[1] for image in row) for row in rows]
    width = _WIDTH_INCHES * max(1.0, columns / 2)
    heights = [shape * width / columns for shape in shapes]
    grid = {"height_ratios": heights, "wspace": 0.02, "hspace": 0.02}
    size = (width, sum(heights) + (0.3 if titles else 0))
    figure, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False, gridspec_kw=grid, dpi=130)
    for row, images in zip(axes, rows, strict=True):
        for axis in row:
            axis.set_axis_off()
        for axis, image in zip(row, images, strict=False):
            axis.imshow(image)
    for axis, title in zip(axes[0], titles, strict=False):
        axis.set_title(title, fontsize=10)
    figure.subplots_adjust(0.005, 0.005, 0.995, 1 - (0.3 / size[1] if titles else 0.005))
    return as_bytes(figure, kind)


def with_keypoints(image: RGB, xy: npt.NDArray[Any]) -> RGB:
    """The photo with a dot at each keypoint, in its own pixels."""
    dotted = _paler(image)
    reach = max(1, round(max(image.shape[:2]) / 500))
    columns, rows = np.rint(xy).astype(int).T
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            inside_rows, inside_columns = (
                (rows + dy).clip(0, image.shape[0] - 1),
                (columns + dx).clip(0, image.shape[1] - 1),
            )
            dotted[inside_rows, inside_columns] = (38, 222, 129)
    return dotted


def sparse_model(points: Array, colours: npt.NDArray[np.uint8], poses: Sequence[Array], kind: str = "png") -> bytes:
    """A model's points as its cameras see them and from above, with the cameras in red."""
    forward = _mean_rotation(poses)
    centres = np.array([-pose[:3, :3].T @ pose[:3, 3] for pose in poses])
    chosen = np.random.default_rng(0).permutation(len(points))[:_MOST_POINTS]
    seen, cameras = points[chosen] @ forward.T, centres @ forward.T
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.6), dpi=110)
    far_first = np.argsort(-seen[:, 2])
    views = ((axes[0], (0, 1), far_first, "as the cameras look"), (axes[1], (0, 2), np.arange(len(seen)), "from above"))
    for axis, (x, y), order, title in views:
        axis.scatter(seen[order, x], seen[order, y], s=1.2, c=colours[chosen][order] / 255, linewidths=0)
        axis.scatter(cameras[:, x], cameras[:, y], s=9, c="#d62728", linewidths=0)
        both = np.concatenate([seen, cameras])
        low, high = np.quantile(both, [_MARGIN, 1 - _MARGIN], axis=0)
        low, high = np.minimum(low, cameras.min(axis=0)), np.maximum(high, cameras.max(axis=0))
        room = 0.05 * (high - low)
        axis.set(xlim=(low[x] - room[x], high[x] + room[x]), ylim=(low[y] - room[y], high[y] + room[y]), title=title)
        axis.set_aspect("equal")
        axis.set_axis_off()
    axes[0].invert_yaxis()  # y points down
    figure.tight_layout()
    return as_bytes(figure, kind, tight=True)


def _mean_rotation(poses: Sequence[Array]) -> Array:
    """The rotation nearest to all cameras' own."""
    u, _, vt = np.linalg.svd(np.sum([pose[:3, :3] for pose in poses], axis=0))
    return np.asarray(u @ np.diag([1, 1, np.linalg.det(u @ vt)]) @ vt)


def _beside(image0: RGB, image1: RGB) -> tuple[RGB, int]:
    """Both photos on one white canvas, and where the second begins."""
    left1 = image0.shape[1] + image0.shape[1] // 50
    canvas = np.full((max(image0.shape[0], image1.shape[0]), left1 + image1.shape[1], 3), 255, np.uint8)
    canvas[: image0.shape[0], : image0.shape[1]] = _paler(image0)
    canvas[: image1.shape[0], left1:] = _paler(image1)
    return canvas, left1


def _paler(image: RGB) -> RGB:
    """With less contrast, so that colours drawn over it stand out."""
    return np.asarray(image // 5 * 3 + 45, dtype=np.uint8)


def _photo_axis(image: RGB) -> tuple[Any, Any]:
    figure = pyplot().figure(figsize=(_WIDTH_INCHES, _WIDTH_INCHES * image.shape[0] / image.shape[1]), dpi=150)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.imshow(image)
    axis.set_axis_off()
    return figure, axis


def _whole(axis: Any, image: RGB) -> None:
    """Nothing beyond the photo is shown, whatever was drawn."""
    axis.set(xlim=(-0.5, image.shape[1] - 0.5), ylim=(image.shape[0] - 0.5, -0.5))
