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
    log_mass: Annotated[Tensor, "batch points"]  # of the whole map's softmax near the line; 0 unless asked for


def search_line_to_window(
    map0: Annotated[Tensor, "batch dim rows columns"],
    map1: Annotated[Tensor, "batch dim rows1 columns1"],
    xy0: Annotated[Tensor, "batch points 2"],
    targets: EpipolarTargets,
    options: SearchOptions,
    stride: int = 4,
    band_px: float | None = None,
    uniform: Annotated[Tensor, "batch points 2"] | None = None,
) -> SearchResult:
    """Expected positions in image 1 of points of image 0; maps need not be normalised.

    ``uniform`` holds random numbers in [0, 1) for the windows' noise; without it there is none. ``band_px``
    also asks for the log mass that the line contrast needs, from the same similarities.
    """
    height, width = map1.shape[-2] * stride, map1.shape[-1] * stride
    unit0, unit1 = normalised_rows(map0), normalised_rows(map1)
    queries = F.normalize(sample_rows(unit0, xy0, stride), dim=-1)
    columns, rows = (max(2, round(options.window * size / stride)) for size in (width, height))
    gradient_dtype = map1.dtype if map1.dtype == torch.bfloat16 else torch.float32  # what reaches the maps has theirs
    settings = PassSettings(options.line_points, rows, columns, stride, band_px, options.temperature, gradient_dtype)
    noise_px = torch.zeros_like(xy0) if uniform is None else window_noise(uniform, height, width, options)
    found = similarity_pass(queries, unit1, targets, noise_px, settings)
    valid = targets.valid & inside_image(found.centre, height, width)
    similarity = blend_window(found.window, found.corner, rows, columns)
    x, y = (
        found.centre[..., axis, None] + window_offsets(number, stride, xy0)
        for axis, number in enumerate((columns, rows))
    )
    usable = ((y >= -0.5) & (y <= height - 0.5)).unsqueeze(-1) & ((x >= -0.5) & (x <= width - 0.5)).unsqueeze(-2)
    usable = usable | ~valid[..., None, None]
    logits = (similarity * options.temperature).masked_fill(~usable, float("-inf"))
    probability = logits.flatten(-2).softmax(dim=-1).view_as(logits)
    # the window's columns and rows are straight, so each axis' mean and spread need the sums along the other one only
    moments = [mean_and_variance(probability.sum(-2), x), mean_and_variance(probability.sum(-1), y)]
    expected = torch.stack([mean for mean, _ in moments], dim=-1)
    variance = torch.stack([spread for _, spread in moments], dim=-1) / xy0.new_tensor([width / 2, height / 2]).square()
    sigma = variance.clamp(min=1e-10).sqrt().sum(-1)  # the root's slope at 0 is infinite
    return SearchResult(expected, sigma, valid, found.centre, found.log_mass)


def window_noise(uniform: Tensor, height: int, width: int, options: SearchOptions) -> Tensor:
    """The shift of each window's centre in pixels (equation 3) from random numbers in [0, 1)."""
    if options.noise == "none":
        return torch.zeros_like(uniform)
    shift = 0.5 * uniform if options.noise == "paper" else 0.707 * (2 * uniform - 1)
    return shift * options.window * uniform.new_tensor([width / 2, height / 2])


def window_offsets(number: int, stride: int, like: Tensor) -> Annotated[Tensor, "number"]:
    """Where the columns (or rows) of a window lie from its centre: the map's own spacing."""
    return (torch.arange(number, dtype=like.dtype, device=like.device) - (number - 1) / 2) * stride


def mean_and_variance(
    probability: Annotated[Tensor, "batch points cells"], position: Annotated[Tensor, "batch points cells"]
) -> tuple[Annotated[Tensor, "batch points"], Annotated[Tensor, "batch points"]]:
    """Of positions along one axis; the variance has no gradient through the mean, as that is least at the mean anyway."""
    mean = (probability * position).sum(-1)
    return mean, (probability * (position - mean.detach().unsqueeze(-1)).square()).sum(-1)


def blend_window(
    window: Tensor, corner: Tensor, rows: int, columns: int
) -> Annotated[Tensor, "batch points rows columns"]:
    """Bilinear values at the window's points: all share the corner's fraction, so four shifted sums serve them all."""
    cells = window.unflatten(-1, (rows + 1, columns + 1))
    x, y = (corner - corner.floor()).to(window.dtype)[..., None, None].unbind(2)
    along_x = torch.lerp(cells[..., :-1], cells[..., 1:], x)
    return torch.lerp(along_x[..., :-1, :], along_x[..., 1:, :], y)
