"""Every picture of a report: curves of matching accuracy (Fig. 5) and matches coloured by their error (Fig. 6).

The only file that imports matplotlib. Pictures come back as bytes, ready to stand in a page.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from posfeat.benchmarks.metrics import MMA_THRESHOLDS_PX
from posfeat.types import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RGB = npt.NDArray[np.uint8]
ERROR_LIMITS_PX = (3.0, 10.0)
ERROR_COLOURS = ("#2ca02c", "#ffb000", "#d62728")  # right, near, wrong
_MOST_LINES = 200  # more hide the photos
_COLOURS = (
    "#1f77b4",
    "#d62728",
    "#2ca02c",
    "#9467bd",
    "#ff7f0e",
    "#17becf",
    "#8c564b",
    "#e377c2",
    "#000000",
    "#bcbd22",
)
_DASHES = ((4, 2), (1, 1.5))


@dataclass(frozen=True)
class Curve:
    """MMA at 1..10 px of one method; published ones are drawn thin and dashed."""

    name: str
    mma: tuple[float, ...]
    published: bool = False


def mma_curves(panels: dict[str, list[Curve]]) -> bytes:
    """Fig. 5: one panel for each split, as SVG."""
    pyplot = _pyplot()
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 3.6 * rows), squeeze=False, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        _draw_panel(axis, title, curves)
    for row in axes:
        row[0].set_ylabel("MMA")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(6, len(labels)), fontsize=8, frameon=False)
    lines = -(-len(labels) // 6)
    figure.tight_layout(rect=(0, 0.06 * (lines + 0.5) / rows, 1, 1))
    return _as_bytes(figure, "svg")


def matches_by_error(image0: RGB, image1: RGB, xy0: Tensor, xy1: Tensor, errors_px: Tensor) -> bytes:
    """Fig. 6: both photos, a dot for every match and lines for some, green to 3 px, yellow to 10 px, red beyond; JPEG."""
    pyplot = _pyplot()
    height = max(image0.shape[0], image1.shape[0])
    gap = image0.shape[1] // 50
    canvas = np.full((height, image0.shape[1] + gap + image1.shape[1], 3), 255, np.uint8)
    canvas[: image0.shape[0], : image0.shape[1]] = image0
    canvas[: image1.shape[0], image0.shape[1] + gap :] = image1
    figure = pyplot.figure(figsize=(7.2, 7.2 * height / canvas.shape[1]), dpi=100)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.imshow(canvas // 2 + 64)  # paler, so that the colours stand out
    axis.set_axis_off()
    start, end = xy0.numpy(), xy1.numpy() + np.array([image0.shape[1] + gap, 0])
    colours = np.array(ERROR_COLOURS)[np.searchsorted(ERROR_LIMITS_PX, errors_px.numpy())]
    some = np.random.default_rng(0).permutation(len(start))[:_MOST_LINES]
    for index in some:
        x, y = zip(start[index], end[index], strict=True)
        axis.plot(x, y, color=colours[index], linewidth=0.4, alpha=0.5)
    axis.scatter(*np.concatenate([start, end]).T, s=1.5, c=np.concatenate([colours, colours]), linewidths=0)
    axis.set(xlim=(-0.5, canvas.shape[1] - 0.5), ylim=(height - 0.5, -0.5))
    return _as_bytes(figure, "jpg")


def _draw_panel(axis: Any, title: str, curves: Sequence[Curve]) -> None:
    """Those of this run thick and solid, the published ones thin and dashed behind them."""
    published = [curve for curve in curves if curve.published]
    measured = [curve for curve in curves if not curve.published]
    for index, curve in enumerate(published):
        colour, dashes = _COLOURS[index % len(_COLOURS)], _DASHES[index // len(_COLOURS) % len(_DASHES)]
        axis.plot(MMA_THRESHOLDS_PX, curve.mma, color=colour, dashes=dashes, linewidth=1, alpha=0.8, label=curve.name)
    for index, curve in enumerate(measured):
        colour = _COLOURS[index % len(_COLOURS)]
        axis.plot(MMA_THRESHOLDS_PX, curve.mma, color=colour, linewidth=2.2, label=curve.name, zorder=3)
    axis.set(title=title, xlabel="threshold [px]", xlim=(1, 10), ylim=(0, 1), xticks=MMA_THRESHOLDS_PX)
    axis.grid(alpha=0.3)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'posfeat[viz]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "posfeat"  # the same picture has the same bytes
    import matplotlib.pyplot

    return matplotlib.pyplot


def _as_bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(buffer, format=kind, metadata=metadata)
    _pyplot().close(figure)
    return buffer.getvalue()
