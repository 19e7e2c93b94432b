"""Drawings of the demo's page as inline SVG: the gallery from above, and how every pair of views was matched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from posfeat.data.random_views import PosedCamera
from posfeat.demo.gallery import HANGINGS, WALL_WIDTH, WIDTH
from posfeat.demo.run import GalleryPair
from posfeat.types import Array

_SCALE = 100.0  # SVG units a metre
_SIGHT = 0.55  # length of the drawn fields of view, in metres
_CELL = 34


def plan(cameras: Sequence[PosedCamera], found_centres: Array | None = None) -> str:
    """The wall, the pictures and the cameras from above; rings where a reconstruction puts the cameras."""
    nearest = min(float(camera.centre[2]) for camera in cameras) - 0.3
    left, top = -WALL_WIDTH / 2 * _SCALE, -0.35 * _SCALE
    width, height = WALL_WIDTH * _SCALE, (0.35 - nearest) * _SCALE
    parts = [f'<line class="wall" x1="{left}" y1="0" x2="{left + width}" y2="0"/>']
    for hanging in HANGINGS:
        x, y, half = hanging.x * _SCALE, hanging.depth * _SCALE, hanging.width / 2 * _SCALE
        parts.append(f'<line class="picture" x1="{x - half:.1f}" y1="{y:.1f}" x2="{x + half:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}">{escape(hanging.photo)}</text>')
    for number, camera in enumerate(cameras, start=1):
        x, y = _on_plan(camera.centre)
        sides = camera.rays(np.array([0.0, WIDTH - 1.0]), np.full(2, camera.intrinsics[1, 2]))
        ends = [_on_plan(camera.centre + side / np.linalg.norm(side) * _SIGHT) for side in sides]
        corners = " ".join(f"{u:.1f},{v:.1f}" for u, v in ((x, y), *ends))
        parts.append(
            f'<polygon class="sight" points="{corners}"/><circle class="camera" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{y + 21:.1f}">{number}</text>')
    for centre in [] if found_centres is None else found_centres:
        x, y = _on_plan(centre)
        parts.append(f'<circle class="found" cx="{x:.1f}" cy="{y:.1f}" r="9"/>')
    return _svg("plan", (left, top, width, height), parts)


def pair_grid(pairs: Sequence[GalleryPair], num_views: int) -> str:
    """A square for each pair of views, the stronger the more right matches it has."""
    most = max((pair.num_right for pair in pairs), default=0) or 1
    parts = []
    for view in range(num_views):
        at = (view + 0.5) * _CELL
        parts.append(f'<text class="number" x="{at}" y="{at + 4}">{view + 1}</text>')
    for pair in pairs:
        x, y = pair.view1 * _CELL, pair.view0 * _CELL
        words = f"views {pair.view0 + 1} and {pair.view1 + 1}: {pair.num_right} of {len(pair.errors_px)} matches right"
        parts.append(
            f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}" rx="4" '
            f'fill-opacity="{0.06 + 0.94 * pair.num_right / most:.3f}"><title>{words}</title></rect>'
            f'<text class="{"on" if pair.num_right > 0.55 * most else "off"}" x="{x + _CELL / 2}" '
            f'y="{y + _CELL / 2 + 4}">{pair.num_right}</text>'
        )
    return _svg("grid", (0, 0, num_views * _CELL, num_views * _CELL), parts)


def _on_plan(point: Array) -> tuple[float, float]:
    """The wall at the top, the cameras below it."""
    return float(point[0] * _SCALE), float(-point[2] * _SCALE)


def _svg(kind: str, box: tuple[float, float, float, float], parts: Sequence[str]) -> str:
    view_box = " ".join(f"{value:.0f}" for value in box)
    return f'<svg class="{kind}" viewBox="{view_box}" role="img">{"".join(parts)}</svg>'
