"""One pass over the similarities of query points with all of a map: line search, windows, and mass near the line.

Cosine similarity commutes with the bilinear interpolation of a normalised map, so a query's similarity anywhere in the
other image is read from one small map of similarities with its cells: a matrix product and cheap look-ups in place of
gathering descriptors at every line and window point. The map is made and dropped in chunks, and made again in the
backward pass: memory does not grow with lines, windows or batch. On a processor a chunk is a part of one image that
stays in the cache; on an accelerator it is many whole images, so that few, large steps do all the work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.pixels import cell_from_pixel, pixel_from_cell
from posfeat.losses.epipolar_targets import EpipolarTargets

CHUNK_ELEMENTS = 3_000_000  # similarities held at a time by a processor
ACCELERATOR_CHUNK_ELEMENTS = 200_000_000  # and by an accelerator, a few arrays of which take some gigabytes


@dataclass(frozen=True)
class PassSettings:
    """Sizes that the pass needs; all lengths in cells of the map except ``band_px``."""

    line_points: int
    window_rows: int
    window_columns: int
    stride: int
    band_px: float | None = None  # None: the mass near the line is not wanted
    temperature: float = 60.0
    gradient_dtype: torch.dtype = torch.float32  # of the products of gradients, where queries have float32


class PassResult(NamedTuple):
    """``window`` holds similarities at (window_rows + 1) x (window_columns + 1) whole cells from ``corner`` on."""

    window: Annotated[Tensor, "batch points cells"]
    centre: Annotated[Tensor, "batch points 2"]
    corner: Annotated[Tensor, "batch points 2"]
    log_mass: Annotated[Tensor, "batch points"]


def normalised_rows(dense: Annotated[Tensor, "batch dim rows columns"]) -> Annotated[Tensor, "batch rows columns dim"]:
    """A map's cells as rows of unit length (zero cells stay zero), in float32 or wider."""
    rows = dense.permute(0, 2, 3, 1)
    return _UnitRows.apply(rows if rows.dtype == torch.float64 else rows.float())


def sample_rows(
    rows: Annotated[Tensor, "batch rows columns dim"], xy: Annotated[Tensor, "batch points 2"], stride: int
) -> Annotated[Tensor, "batch points dim"]:
    """A map's rows read bilinearly at pixel positions (the rim's value beyond the rim), without changing their layout."""
    batch, height, width, dim = rows.shape
    cell = cell_from_pixel(xy, stride)
    first = cell.floor()
    fraction = cell - first
    weights, indices = [], []
    for down in (0, 1):
        for across in (0, 1):
            x, y = (
                (first[..., 0].long() + across).clamp(0, width - 1),
                (first[..., 1].long() + down).clamp(0, height - 1),
            )
            indices.append(y * width + x)
            weight_x, weight_y = (fraction if one else 1 - fraction for one in (across, down))
            weights.append(weight_x[..., 0] * weight_y[..., 1])
    table = rows.reshape(-1, dim)
    of_item = torch.arange(batch, device=xy.device)[:, None, None] * (height * width)
    index = (torch.stack(indices, dim=-1) + of_item).reshape(-1, 4)
    weight = torch.stack(weights, dim=-1).reshape(-1, 4).to(table.dtype)
    return F.embedding_bag(index, table, mode="sum", per_sample_weights=weight).view(batch, -1, dim)


def similarity_pass(
    queries: Annotated[Tensor, "batch points dim"],
    reference: Annotated[Tensor, "batch rows columns dim"],
    targets: EpipolarTargets,
    noise_px: Annotated[Tensor, "batch points 2"],
    settings: PassSettings,
) -> PassResult:
    """Search along each line, cut the window around its best point (plus noise), and weigh the map's mass by the line.

    Both inputs have unit length along ``dim``. Gradients reach them through ``window`` and ``log_mass`` (the log of the
    softmax mass of the whole map that lies within ``band_px`` of the line), never through the search.
    """
    return PassResult(*_SimilarityPass.apply(queries, reference, targets, noise_px, settings))


class _UnitRows(torch.autograd.Function):
    """x / |x| with a backward pass that touches memory three times, where autograd's own takes nine.

    Map by map: what one leaves behind in the cache, and in freed memory, serves the next.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=1e-12)
        unit = rows / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        result = torch.empty_like(grad)
        for one, given, unit, norm in zip(result, grad, *ctx.saved_tensors, strict=True):
            along = torch.linalg.vecdot(given, unit).unsqueeze(-1)
            # not addcmul: it is slow where one factor is broadcast along rows
            torch.mul(unit, -along, out=one).add_(given).div_(norm)
        return result


class _SimilarityPass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, reference: Tensor, targets: EpipolarTargets, noise_px: Tensor, settings: PassSettings
    ) -> Any:
        batch, points, _ = queries.shape
        size = reference.shape[1:3]
        cells = (settings.window_rows + 1) * (settings.window_columns + 1)
        window = queries.new_empty(batch, points, cells)
        index = torch.empty(batch, points, cells, dtype=torch.long, device=queries.device)
        centre, corner = torch.zeros_like(noise_px), torch.zeros_like(noise_px)
        log_mass = queries.new_zeros(batch, points)
        chunks, products = _chunks(queries, reference, targets), _Products()
        for chunk in chunks:
            at = chunk.items, chunk.rows
            similarity = products.of(queries[at], reference[chunk.items].flatten(1, 2))
            best = _search_line(similarity, targets.start[at], targets.end[at], size, settings)
            centre[at] = best + noise_px[at]
            corner[at], index[at] = _window_cells(centre[at], size, settings)
            window[at] = similarity.gather(2, index[at])
            if settings.band_px is not None:
                near = _near_line(targets, chunk, size, settings)
                log_mass[at] = _log_mass(similarity, near, settings.temperature)[0]
        ctx.save_for_backward(queries, reference, index)
        ctx.targets, ctx.settings, ctx.chunks = targets, settings, chunks
        ctx.mark_non_differentiable(centre, corner)
        ctx.set_materialize_grads(False)
        return window, centre, corner, log_mass

    @staticmethod
    def backward(ctx: Any, grad_window: Tensor | None, _c: Any, _k: Any, grad_log_mass: Tensor | None) -> Any:
        queries, reference, index = ctx.saved_tensors
        settings, products = ctx.settings, _Products()
        if grad_log_mass is None or settings.band_px is None:
            return *_window_gradients(queries, reference, index, grad_window), None, None, None
        grad_queries, grad_reference = torch.zeros_like(queries), torch.zeros_like(reference)
        for chunk in ctx.chunks:
            at = chunk.items, chunk.rows
            q, r = queries[at], reference[chunk.items].flatten(1, 2)
            near = _near_line(ctx.targets, chunk, reference.shape[1:3], settings)
            grad = _log_mass(products.of(q, r), near, settings.temperature, grad_log_mass[at])[1]
            assert grad is not None
            if grad_window is not None:
                grad.scatter_add_(2, index[at], grad_window[at])
            if grad.dtype == torch.float32:
                grad, q, r = (part.to(settings.gradient_dtype) for part in (grad, q, r))
            grad_queries[at] = (grad @ r).to(grad_queries.dtype)
            whole = grad_reference[chunk.items]  # a view of a slice, a copy of chosen items
            whole.flatten(1, 2).add_(grad.transpose(1, 2) @ q)
            if isinstance(chunk.items, Tensor):
                grad_reference[chunk.items] = whole
        return grad_queries, grad_reference, None, None, None


def _window_gradients(queries: Tensor, reference: Tensor, index: Tensor, grad: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradients through the windows alone: they touch a hundredth of the similarities, so these stay sparse."""
    if grad is None:
        return torch.zeros_like(queries), torch.zeros_like(reference)
    grad_queries, grad_reference = torch.empty_like(queries), torch.empty_like(reference)
    points, cells = index.shape[1:]
    column = torch.arange(points, device=index.device).repeat_interleave(cells)
    for item in range(len(queries)):
        rows = reference[item].flatten(0, 1)
        grad_queries[item] = F.embedding_bag(index[item], rows, mode="sum", per_sample_weights=grad[item])
        at = torch.stack([index[item].flatten(), column])
        touched = torch.sparse_coo_tensor(at, grad[item].flatten(), (len(rows), points), check_invariants=False)
        grad_reference[item] = torch.sparse.mm(touched, queries[item]).view_as(reference[item])
    return grad_queries, grad_reference


class _Chunk(NamedTuple):
    """Queries whose similarities are held together: of some items, all with a line or all with a point."""

    items: slice | Tensor
    rows: slice
    is_point: bool


class _Products:
    """Similarities of one chunk after another in the same memory: new memory each time would be page faults."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def of(self, queries: Tensor, cells: Tensor) -> Annotated[Tensor, "items points cells"]:
        shape = (*queries.shape[:2], cells.shape[1])
        if self._memory is None or self._memory.numel() < math.prod(shape):
            self._memory = queries.new_empty(shape)
        out = self._memory.view(-1)[: math.prod(shape)].view(shape)
        return torch.bmm(queries, cells.transpose(1, 2), out=out)


def _chunks(queries: Tensor, reference: Tensor, targets: EpipolarTargets) -> list[_Chunk]:
    batch, points = queries.shape[:2]
    cells = reference.shape[1] * reference.shape[2]
    of_points = targets.is_point.tolist()
    if queries.device.type == "cpu":
        step = max(1, CHUNK_ELEMENTS // cells)
        starts = range(0, points, step)
        return [
            _Chunk(slice(item, item + 1), slice(first, first + step), of_points[item])
            for item in range(batch)
            for first in starts
        ]
    count = max(1, ACCELERATOR_CHUNK_ELEMENTS // (cells * points))
    chunks = []
    for is_point in (False, True):
        items = [item for item in range(batch) if of_points[item] == is_point]
        for first in range(0, len(items), count):
            group = torch.tensor(items[first : first + count], device=queries.device)
            chunks.append(_Chunk(group, slice(None), is_point))
    return chunks


def _search_line(similarity: Tensor, start: Tensor, end: Tensor, size: torch.Size, settings: PassSettings) -> Tensor:
    """The most similar of ``line_points`` evenly spaced points of each line (equations 1 and 2)."""
    along = torch.linspace(0, 1, settings.line_points, dtype=start.dtype, device=start.device)[:, None]
    candidates = start[..., None, :] + along * (end - start)[..., None, :]
    map_size = torch.tensor([size[1], size[0]], dtype=start.dtype, device=start.device)
    grid = (cell_from_pixel(candidates, settings.stride) + 0.5) * 2 / map_size - 1
    maps = similarity.view(-1, 1, *size)
    read = F.grid_sample(
        maps, grid.flatten(0, 1)[:, None].to(maps.dtype), mode="bilinear", padding_mode="border", align_corners=False
    )
    best = read[:, 0, 0].argmax(dim=1).view(*similarity.shape[:2], 1, 1)
    return candidates.gather(2, best.expand(-1, -1, 1, 2)).squeeze(2)


def _window_cells(centre: Tensor, size: torch.Size, settings: PassSettings) -> tuple[Tensor, Tensor]:
    """Upper left corner (in cells, a fraction) of each window, and the flat indices of the whole cells it touches."""
    span = torch.tensor(
        [settings.window_columns - 1, settings.window_rows - 1], dtype=centre.dtype, device=centre.device
    )
    corner = cell_from_pixel(centre, settings.stride) - span / 2
    first = corner.floor().long()
    columns = (first[..., :1] + torch.arange(settings.window_columns + 1, device=centre.device)).clamp(0, size[1] - 1)
    rows = (first[..., 1:] + torch.arange(settings.window_rows + 1, device=centre.device)).clamp(0, size[0] - 1)
    return corner, (rows[..., :, None] * size[1] + columns[..., None, :]).flatten(-2)


def _near_line(targets: EpipolarTargets, chunk: _Chunk, size: torch.Size, settings: PassSettings) -> Tensor:
    """1 where a cell's centre lies within ``band_px`` of a query's line (or point), else 0.

    A number and not a bool, since a processor multiplies numbers ten times faster than it chooses by bools.
    """
    assert settings.band_px is not None
    lines, start = targets.lines[chunk.items, chunk.rows], targets.start[chunk.items, chunk.rows]
    y, x = (pixel_from_cell(torch.arange(n, dtype=lines.dtype, device=lines.device), settings.stride) for n in size)
    if chunk.is_point:
        across, down = (x - start[..., :1]).square_(), (y - start[..., 1:]).square_()
        return (down[..., :, None] + across[..., None, :]).le_(settings.band_px**2).flatten(-2)
    across, down = lines[..., :1] * x + lines[..., 2:], lines[..., 1:2] * y
    return (down[..., :, None] + across[..., None, :]).abs_().le_(settings.band_px).flatten(-2)


def _log_mass(
    similarity: Tensor, near: Tensor, temperature: float, grad: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Log of the softmax mass on ``near`` cells; with ``grad`` given, its gradient with respect to the similarities.

    Consumes ``similarity`` and ``near``. A query without any near cell has mass 1 (log 0) and no gradient.
    """
    largest = similarity.amax(-1, keepdim=True)
    exponentials = torch.add(largest.mul_(-temperature), similarity, alpha=temperature, out=similarity).exp_()
    tiny = torch.finfo(similarity.dtype).tiny
    everything = exponentials.sum(-1)
    near_part = near.mul_(exponentials)
    on_line = near_part.sum(-1)
    usable = on_line > tiny * 1e6
    log_mass = torch.where(usable, (on_line.clamp(min=tiny) / everything).log(), torch.zeros_like(everything))
    if grad is None:
        return log_mass, None
    scale = torch.where(usable, grad * temperature, torch.zeros_like(grad))
    near_part.mul_((scale / on_line.clamp(min=tiny))[..., None])
    return log_mass, near_part.addcmul_(exponentials, (scale / everything)[..., None], value=-1)
