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

CHUNK_ELEMENTS = 2_000_000  # similarities held at a time by a processor
ACCELERATOR_CHUNK_ELEMENTS = 200_000_000  # and by an accelerator, a few arrays of which take some gigabytes


@dataclass(frozen=True)
class PassSettings:
    """Sizes that the pass needs; all lengths in cells of the map except ``band_px``."""

    line_points: int
    window_rows: int
    window_columns: int
    stride: int
    band_px: float | None = None  # None: the mass near the line is not wanted
    mass_every: int = 1  # it is weighed for every so many-th query
    temperature: float = 60.0


class PassResult(NamedTuple):
    """``window`` holds similarities at (window_rows + 1) x (window_columns + 1) whole cells from ``corner`` on."""

    window: Annotated[Tensor, "batch points cells"]
    centre: Annotated[Tensor, "batch points 2"]
    corner: Annotated[Tensor, "batch points 2"]
    log_mass: Annotated[Tensor, "batch weighed_points"]


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
    """x / |x| with a backward pass that touches memory three times, where autograd's own takes nine."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=1e-12)
        unit = rows / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        unit, norm = ctx.saved_tensors
        along = torch.linalg.vecdot(grad, unit).unsqueeze(-1)
        return (unit * -along).add_(grad).div_(norm)  # not addcmul: it is slow where one factor is broadcast along rows


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
        log_mass = queries.new_zeros(batch, -(-points // settings.mass_every))
        chunks, products = _chunks(queries, reference, targets, settings.mass_every), _Products()
        for chunk in chunks:
            at = chunk.items, chunk.rows
            similarity = products.of(queries[at], reference[chunk.items].flatten(1, 2))
            best = _search_line(similarity, targets.start[at], targets.end[at], size, settings)
            centre[at] = best + noise_px[at]
            corner[at], index[at] = _window_cells(centre[at], size, settings)
            window[at] = similarity.gather(2, index[at])
            if settings.band_px is not None:
                near = _near_line(targets, chunk, size, settings)
                weighed = similarity[:, :: settings.mass_every]
                log_mass[chunk.items, chunk.masses] = _log_mass(weighed, near, settings.temperature)[0]
        ctx.save_for_backward(queries, reference, index)
        ctx.targets, ctx.settings, ctx.chunks = targets, settings, chunks
        ctx.mark_non_differentiable(centre, corner)
        ctx.set_materialize_grads(False)
        return window, centre, corner, log_mass

    @staticmethod
    def backward(ctx: Any, grad_window: Tensor | None, _c: Any, _k: Any, grad_log_mass: Tensor | None) -> Any:
        queries, reference, index = ctx.saved_tensors
        settings, products = ctx.settings, _Products()
        grad_queries, grad_reference = _window_gradients(queries, reference, index, grad_window)
        if grad_log_mass is None or settings.band_px is None:
            return grad_queries, grad_reference, None, None, None
        for chunk in ctx.chunks:
            q, r = queries[chunk.items, chunk.weighed], reference[chunk.items].flatten(1, 2)
            near = _near_line(ctx.targets, chunk, reference.shape[1:3], settings)
            of_chunk = grad_log_mass[chunk.items, chunk.masses]
            grad = _log_mass(products.of(q, r), near, settings.temperature, of_chunk)[1]
            assert grad is not None
            grad_queries[chunk.items, chunk.weighed] += grad @ r
            whole = grad_reference[chunk.items]  # a view of a slice, a copy of chosen items
            whole.flatten(1, 2).baddbmm_(grad.transpose(1, 2), q)
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
    weighed: slice  # those of the rows whose mass near the line is wanted
    masses: slice  # where these masses stand
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


def _chunks(queries: Tensor, reference: Tensor, targets: EpipolarTargets, every: int) -> list[_Chunk]:
    batch, points = queries.shape[:2]
    cells = reference.shape[1] * reference.shape[2]
    of_points = targets.is_point.tolist()
    if queries.device.type == "cpu":
        masses = max(1, CHUNK_ELEMENTS // (cells * every))
        step = masses * every
        return [
            _Chunk(
                slice(item, item + 1),
                slice(part * step, (part + 1) * step),
                slice(part * step, (part + 1) * step, every),
                slice(part * masses, (part + 1) * masses),
                of_points[item],
            )
            for item in range(batch)
            for part in range(-(-points // step))
        ]
    count = max(1, ACCELERATOR_CHUNK_ELEMENTS // (cells * points))
    chunks = []
    for is_point in (False, True):
        items = [item for item in range(batch) if of_points[item] == is_point]
        for first in range(0, len(items), count):
            group = torch.tensor(items[first : first + count], device=queries.device)
            chunks.append(_Chunk(group, slice(None), slice(None, None, every), slice(None), is_point))
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
    """Which cells' centres lie within ``band_px`` of each weighed query's line (or point)."""
    assert settings.band_px is not None
    lines, start = targets.lines[chunk.items, chunk.weighed], targets.start[chunk.items, chunk.weighed]
    y, x = (pixel_from_cell(torch.arange(n, dtype=lines.dtype, device=lines.device), settings.stride) for n in size)
    if chunk.is_point:
        across, down = (x - start[..., :1]).square_(), (y - start[..., 1:]).square_()
        return ((down[..., :, None] + across[..., None, :]) <= settings.band_px**2).flatten(-2)
    across, down = lines[..., :1] * x + lines[..., 2:], lines[..., 1:2] * y
    return ((down[..., :, None] + across[..., None, :]).abs_() <= settings.band_px).flatten(-2)


def _log_mass(
    similarity: Tensor, near: Tensor, temperature: float, grad: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Log of the softmax mass on ``near`` cells; with ``grad`` given, its gradient with respect to the similarities.

    Consumes ``similarity``. A query without any near cell has mass 1 (log 0) and no gradient.
    """
    largest = similarity.amax(-1, keepdim=True)
    exponentials = torch.add(largest.mul_(-temperature), similarity, alpha=temperature, out=similarity).exp_()
    tiny = torch.finfo(similarity.dtype).tiny
    everything = exponentials.sum(-1)
    near_part = torch.where(near, exponentials, exponentials.new_zeros(()))  # a product with bools is far slower
    on_line = near_part.sum(-1)
    usable = on_line > tiny * 1e6
    log_mass = torch.where(usable, (on_line.clamp(min=tiny) / everything).log(), torch.zeros_like(everything))
    if grad is None:
        return log_mass, None
    scale = torch.where(usable, grad * temperature, torch.zeros_like(grad))
    near_part.mul_((scale / on_line.clamp(min=tiny))[..., None])
    return log_mass, near_part.addcmul_(exponentials, (scale / everything)[..., None], value=-1)
