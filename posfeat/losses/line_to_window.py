"""The paper's search: the best point along the epipolar line, then an expectation over a window around it (eq. 1-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.pixels import inside_image
from posfeat.losses.epipolar_targets import EpipolarTargets
from posfeat.losses.similarity_pass import PassSettings, normalised_rows, sample_rows, similarity_pass
from posfeat.options import check_options, described


@dataclass(frozen=True)
class SearchOptions:
    """How a query point's correspondence is looked for."""

    line_points: int = described(100, "points sampled along the epipolar line (N_line)", low=2)
    window: float = described(
        0.1, "the window spans plus and minus this much of [-1, 1] in x and y (w_patch)", low=0.005, high=1
    )
    noise: Literal["paper", "symmetric", "none"] = described(
        "paper", "shift of the window's centre: 0.5 w U(0,1) as in equation 3, 0.707 w U(-1,1), or none"
    )
    temperature: float = described(60.0, "factor of cosine similarities before the softmax", low=0)

    def __post_init__(self) -> None:
        check_options(self)


class SearchResult(NamedTuple):
    """Where the query points are expected in image 1."""

    expected: Annotated[Tensor, "batch points 2"]  # pixels
    sigma: Annotated[Tensor, "batch points"]  # its distribution's deviations in x and y, added; [-1, 1] coordinates
    valid: Annotated[Tensor, "batch points"]
    centre: Annotated[Tensor, "batch points 2"]
    log_mass: Annotated[Tensor, "batch weighed_points"]  # of the whole map's softmax near the line; 0 unless asked for


def search_line_to_window(
    map0: Annotated[Tensor, "batch dim rows columns"],
    map1: Annotated[Tensor, "batch dim rows1 columns1"],
    xy0: Annotated[Tensor, "batch points 2"],
    targets: EpipolarTargets,
    options: SearchOptions,
    stride: int = 4,
    band_px: float | None = None,
    uniform: Annotated[Tensor, "batch points 2"] | None = None,
    mass_every: int = 1,
) -> SearchResult:
    """Expected positions in image 1 of points of image 0; maps need not be normalised.

    ``uniform`` holds random numbers in [0, 1) for the windows' noise; without it there is none. ``band_px``
    also asks for the log mass that the line contrast needs, of every ``mass_every``-th query, from the same similarities.
    """
    height, width = map1.shape[-2] * stride, map1.shape[-1] * stride
    unit0, unit1 = normalised_rows(map0), normalised_rows(map1)
    queries = F.normalize(sample_rows(unit0, xy0, stride), dim=-1)
    columns, rows = (max(2, round(options.window * size / stride)) for size in (width, height))
    settings = PassSettings(options.line_points, rows, columns, stride, band_px, mass_every, options.temperature)
    noise_px = torch.zeros_like(xy0) if uniform is None else window_noise(uniform, height, width, options)
    found = similarity_pass(queries, unit1, targets, noise_px, settings)
    points = window_points(found.centre, rows, columns, stride)
    similarity = blend_window(found.window, found.corner, rows, columns)
    valid = targets.valid & inside_image(found.centre, height, width)
    usable = inside_image(points, height, width) | ~valid.unsqueeze(-1)
    logits = (similarity * options.temperature).masked_fill(~usable, float("-inf"))
    probability = logits.softmax(dim=-1).unsqueeze(-1)
    expected = (probability * points).sum(2)
    half_size = points.new_tensor([width / 2, height / 2])
    variance = (probability * ((points - expected.detach().unsqueeze(2)) / half_size).square()).sum(2)
    sigma = variance.clamp(min=1e-10).sqrt().sum(-1)  # the root's slope at 0 is infinite
    return SearchResult(expected, sigma, valid, found.centre, found.log_mass)


def window_noise(uniform: Tensor, height: int, width: int, options: SearchOptions) -> Tensor:
    """The shift of each window's centre in pixels (equation 3) from random numbers in [0, 1)."""
    if options.noise == "none":
        return torch.zeros_like(uniform)
    shift = 0.5 * uniform if options.noise == "paper" else 0.707 * (2 * uniform - 1)
    return shift * options.window * uniform.new_tensor([width / 2, height / 2])


def window_points(centre: Tensor, rows: int, columns: int, stride: int) -> Annotated[Tensor, "batch points cells 2"]:
    """Positions of the window's points: the map's own spacing, centred on ``centre``."""
    y = torch.arange(rows, dtype=centre.dtype, device=centre.device) - (rows - 1) / 2
    x = torch.arange(columns, dtype=centre.dtype, device=centre.device) - (columns - 1) / 2
    offsets = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 2) * stride
    return centre.unsqueeze(2) + offsets


def blend_window(window: Tensor, corner: Tensor, rows: int, columns: int) -> Annotated[Tensor, "batch points cells"]:
    """Bilinear values at the window's points: all share the corner's fraction, so four shifted sums serve them all."""
    cells = window.unflatten(-1, (rows + 1, columns + 1))
    fraction = (corner - corner.floor()).to(window.dtype)[..., None, None]
    x, y = fraction[:, :, 0], fraction[:, :, 1]
    along_x = cells[..., :-1] * (1 - x) + cells[..., 1:] * x
    return (along_x[..., :-1, :] * (1 - y) + along_x[..., 1:, :] * y).flatten(-2)
