"""The curves of reports: matching accuracy (Fig. 5), track lengths. The only file that imports matplotlib.

They come back as bytes, ready to stand in a page.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posfeat.benchmarks.metrics import MMA_THRESHOLDS_PX
from posfeat.types import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    in_a_line = 2 * columns - 1
    lines = -(-max(map(len, panels.values())) // in_a_line)
    height = 3.3 * rows + 0.24 * (lines + 1)
    figure, axes = pyplot().subplots(rows, columns, figsize=(4.2 * columns, height), squeeze=False, sharey=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        _draw_panel(axis, title, curves)
    for row in axes:
        row[0].set_ylabel("MMA")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(in_a_line, len(labels)), fontsize=10, frameon=False)
    figure.tight_layout(rect=(0, 0.24 * (lines + 0.5) / height, 1, 1))
    return as_bytes(figure, "svg")


def track_lengths(histograms: dict[str, dict[int, int]]) -> bytes:
    """How many images see a point: for each method the share of its points by their track's length, as SVG."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.2, 3.4))
    longest = max((length for histogram in histograms.values() for length in histogram), default=2)
    lengths = np.arange(2, max(longest, 3) + 1)
    for index, (name, histogram) in enumerate(histograms.items()):
        counts = np.array([histogram.get(int(length), 0) for length in lengths], dtype=float)
        at_least = counts[::-1].cumsum()[::-1] / max(counts.sum(), 1)
        axis.step(lengths, at_least, where="mid", color=_COLOURS[index % len(_COLOURS)], linewidth=1.8, label=name)
    axis.set(xlabel="track length of at least", ylabel="share of points", yscale="log", xlim=(2, lengths[-1]))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return as_bytes(figure, "svg")


def accuracy_over_angle(curves: dict[str, dict[int, float]]) -> bytes:
    """MMAscore of each method over the angle by which photos are turned, as SVG."""
    figure, axis = pyplot().subplots(figsize=(6.4, 3.4))
    for index, (name, scores) in enumerate(curves.items()):
        axis.plot(list(scores), list(scores.values()), color=_COLOURS[index % len(_COLOURS)], linewidth=1.8, label=name)
    axis.set(xlabel="turned by [°]", ylabel="MMAscore", xlim=(0, 360), ylim=(0, 1), xticks=range(0, 361, 45))
    axis.grid(alpha=0.3)
    figure.legend(loc="lower center", ncols=min(3, max(len(curves), 1)), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07 * -(-len(curves) // 3), 1, 1))
    return as_bytes(figure, "svg")


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


def pyplot() -> Any:
    """matplotlib's plotting module, which draws into memory and the same each time."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'posfeat[viz]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "posfeat"  # the same picture has the same bytes
    import matplotlib.pyplot

    return matplotlib.pyplot


def as_bytes(figure: Figure, kind: str, tight: bool = False) -> bytes:
    """The figure as svg, pdf, jpg or png; ``tight`` cuts its empty rim off."""
    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(buffer, format=kind, metadata=metadata, bbox_inches="tight" if tight else None)
    pyplot().close(figure)
    return buffer.getvalue()
