"""The nearest neighbours of every descriptor in another set, both ways, exact in float32, without the whole matrix.

On a processor the matrix of cosines is computed once, in blocks that stay in its cache, with 16-bit numbers where it
multiplies these much faster. Of each block only maxima are kept, over groups of columns and over groups of rows. A bound
on the rounding errors says which few groups can hold the true maximum of a row or a column; these are computed again, in
float32. Other devices compute float32 blocks and fold their maxima into running ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.processor import prefers_bfloat16

_BLOCK_ON_CPU = (1024, 1024)  # rows and columns: 2 MiB of 16-bit numbers
_BLOCK_ELSEWHERE = (4096, 4096)
_SMALLEST_GROUP = 64
_MOST_GROUPS = 256  # with more the kept maxima would take more memory than the descriptors
_QUERIES_AT_A_TIME = 2**13
_CALLS_AT_A_TIME = 2**16  # groups of queries that are computed again
_TIES_AT_A_TIME = 2**13
_SUM_NOISE = 1e-6  # float32 sums of the same products, added in another order, differ by less


class Neighbours(NamedTuple):
    """Each row's highest cosine, its column (-1: not looked for), and the second highest cosine."""

    best: Annotated[Tensor, "num_rows"]
    nearest: Annotated[Tensor, "num_rows"]
    second: Annotated[Tensor, "num_rows"]

    @classmethod
    def none(cls, count: int, like: Tensor) -> Neighbours:
        """Nothing found yet."""
        best = like.new_full((count,), float("-inf"))
        return cls(best, torch.full((count,), -1, device=like.device), best.clone())


def nearest_neighbours(
    descriptors0: Annotated[Tensor, "num_rows dim"],
    descriptors1: Annotated[Tensor, "num_columns dim"],
    *,
    seconds: bool = False,
    both: bool = True,
) -> tuple[Neighbours, Neighbours]:
    """The nearest in set 1 of each of set 0 and, with ``both``, in set 0 of each of set 1 that is somebody's nearest.

    Neither set is empty; both are float32, on one device. Of equal cosines the first counts. Second highest cosines are
    -inf unless ``seconds`` are asked for.
    """
    if descriptors0.device.type != "cpu":
        return _by_running_maxima(descriptors0, descriptors1, seconds)
    dtype = torch.bfloat16 if prefers_bfloat16() else torch.float32
    set0, set1 = _Rounded.of(descriptors0, dtype), _Rounded.of(descriptors1, dtype)
    maxima0, maxima1 = _group_maxima(set0, set1, both)
    rows = _settle(set0, set1, maxima0, torch.arange(len(descriptors0)), seconds)
    if not both:
        return rows, Neighbours.none(len(descriptors1), descriptors1)
    asked = rows.nearest.unique()
    return rows, _settle(set1, set0, maxima1, asked[asked >= 0], seconds)


class _Rounded(NamedTuple):
    """Descriptors, and what multiplies fast: a rounded copy, padded with zeros to whole groups of ``group`` rows."""

    exact: Annotated[Tensor, "count dim"]
    rounded: Annotated[Tensor, "groups*group dim"]
    group: int
    length: Annotated[Tensor, "count"]
    error: Annotated[Tensor, "count"]  # length of the difference between the two

    @classmethod
    def of(cls, exact: Tensor, dtype: torch.dtype) -> _Rounded:
        count, group = len(exact), _SMALLEST_GROUP
        while count > group * _MOST_GROUPS:
            group *= 2
        rounded = F.pad(exact, (0, 0, 0, -count % group)).to(dtype)
        error = torch.linalg.vector_norm(exact - rounded[:count].float(), dim=1)
        return cls(exact, rounded, group, torch.linalg.vector_norm(exact, dim=1), error)

    @property
    def num_groups(self) -> int:
        return len(self.rounded) // self.group


def _group_maxima(
    set0: _Rounded, set1: _Rounded, both: bool
) -> tuple[Annotated[Tensor, "groups1 num_rows"], Annotated[Tensor, "groups0 num_columns"]]:
    """The highest rounded cosines of each row in each group of columns, and of each column in each group of rows.

    Where all of a group are negative, zero or another negative number may stand in the place of the highest.
    """
    rows, columns = len(set0.rounded), len(set1.rounded)
    maxima0 = set0.rounded.new_empty(rows, set1.num_groups)
    maxima1 = set0.rounded.new_empty(set0.num_groups if both else 0, columns)
    height, width = max(_BLOCK_ON_CPU[0], set0.group), max(_BLOCK_ON_CPU[1], set1.group)
    buffer = set0.rounded.new_empty(min(height, rows) * min(width, columns))
    for across in _spans(columns, width):
        part1 = set1.rounded[across].T
        for down in _spans(rows, height):
            block = buffer[: (down.stop - down.start) * part1.shape[1]].view(-1, part1.shape[1])
            torch.mm(set0.rounded[down], part1, out=block)
            values = _orderable(block)
            groups1 = slice(across.start // set1.group, across.stop // set1.group)
            _orderable(maxima0)[down, groups1] = values.unflatten(1, (-1, set1.group)).amax(2)
            if both:
                groups0 = slice(down.start // set0.group, down.stop // set0.group)
                _orderable(maxima1)[groups0, across] = values.unflatten(0, (-1, set0.group)).amax(1)
    return maxima0[: len(set0.exact)].T, maxima1[:, : len(set1.exact)]


def _orderable(values: Tensor) -> Tensor:
    """16-bit numbers as the whole numbers of the same bits, whose maxima are fast: where one is positive they agree."""
    return values.view(torch.int16) if values.dtype == torch.bfloat16 else values


def _spans(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _settle(
    queries: _Rounded,
    others: _Rounded,
    maxima: Annotated[Tensor, "groups num_queries"],
    asked: Annotated[Tensor, "num_asked"],
    seconds: bool,
) -> Neighbours:
    """The neighbours of the queries asked for: of each, the groups that can hold it are computed again."""
    found = Neighbours.none(len(queries.exact), queries.exact)
    for some in asked.split(_QUERIES_AT_A_TIME):
        possible = _can_hold_best(queries, others, maxima[:, some].float(), some, 1 + seconds)
        pieces = int(possible.sum()) // _CALLS_AT_A_TIME + 1  # one, unless most descriptors are alike
        for part, groups in zip(some.chunk(pieces), possible.chunk(pieces, dim=1), strict=True):
            place, calls = _compute_again(queries.exact[part], others, groups, seconds)
            for kept, new in zip(found, _decide(queries.exact[part], others.exact, place, calls), strict=True):
                kept[part] = new
    return found


def _compute_again(
    queries: Annotated[Tensor, "num_queries dim"],
    others: _Rounded,
    possible: Annotated[Tensor, "groups num_queries"],
    seconds: bool,
) -> tuple[Annotated[Tensor, "num_calls"], Neighbours]:
    """Each possible group's best in float32: which query it is for, and what it is."""
    place = possible.nonzero()[:, 1]  # group by group
    calls = Neighbours.none(len(place), queries)
    start = 0
    for group, count in enumerate(possible.sum(1).tolist()):
        if not count:
            continue
        here = slice(start, start + count)
        start, first = here.stop, group * others.group
        cosines = queries[place[here]] @ others.exact[first : first + others.group].T
        if seconds and cosines.shape[1] > 1:
            (value, calls.second[here]), (where, _) = (t.unbind(1) for t in cosines.topk(2, dim=1))
        else:
            value, where = cosines.max(dim=1)
        calls.best[here], calls.nearest[here] = value, where + first
    return place, calls


def _can_hold_best(
    queries: _Rounded, others: _Rounded, maxima: Annotated[Tensor, "groups num_asked"], asked: Tensor, rank: int
) -> Annotated[Tensor, "groups num_asked"]:
    """Which groups can hold a query's highest cosine (rank 2: or the second highest), whatever rounding did."""
    rank = min(rank, len(maxima))
    highest = maxima.topk(rank, dim=0).values[-1] if rank > 1 else maxima.amax(0)
    sums = queries.exact.shape[1] * 2.0**-24
    longest, worst = (others.length + others.error).max(), others.error.max()
    length, error = queries.length[asked], queries.error[asked]
    margin = 2 * (error * longest + length * worst + sums * length * longest)
    if queries.rounded.dtype == torch.bfloat16:  # the cosine itself was rounded too, twice
        margin += 2.0**-8 * (highest.abs() + margin)
    threshold = highest - margin
    return (maxima >= threshold) | (threshold <= 0)  # below zero the maxima mean nothing


def _decide(
    queries: Annotated[Tensor, "num_asked dim"],
    others: Annotated[Tensor, "num_others dim"],
    place: Annotated[Tensor, "num_calls"],
    calls: Neighbours,
) -> Neighbours:
    """One answer for each query from those of several groups; what float32 cannot tell apart is decided in float64."""
    found = Neighbours.none(len(queries), queries)
    best = found.best.scatter_reduce(0, place, calls.best, "amax")
    close = calls.best >= best[place] - _SUM_NOISE * best[place].abs()
    contested = (close & (torch.bincount(place[close], minlength=len(queries)) > 1)[place]).nonzero()[:, 0]
    precise = calls.best.double()
    for some in contested.split(_TIES_AT_A_TIME):
        pairs = queries[place[some]].double() * others[calls.nearest[some]].double()
        precise[some] = pairs.sum(1)
    precise = precise.masked_fill(~close, float("-inf"))
    highest = precise.new_full((len(queries),), float("-inf")).scatter_reduce(0, place, precise, "amax")
    wins = close & (precise == highest[place])
    index = found.nearest.new_full((len(queries),), len(others))
    index = index.scatter_reduce(0, place[wins], calls.nearest[wins], "amin")
    first = wins & (calls.nearest == index[place])
    rest = torch.where(first, calls.second, calls.best)
    second = found.second.scatter_reduce(0, place, rest, "amax")
    return Neighbours(best, torch.where(index < len(others), index, -1), second)


def _by_running_maxima(descriptors0: Tensor, descriptors1: Tensor, seconds: bool) -> tuple[Neighbours, Neighbours]:
    """Float32 blocks; nothing here waits for the device."""
    rows, columns = (Neighbours.none(len(d), descriptors0) for d in (descriptors0, descriptors1))
    for across in _spans(len(descriptors1), _BLOCK_ELSEWHERE[1]):
        for down in _spans(len(descriptors0), _BLOCK_ELSEWHERE[0]):
            block = descriptors0[down] @ descriptors1[across].T
            of_rows, of_columns = (_block_maxima(block, dim, seconds) for dim in (1, 0))
            _fold(rows, down, of_rows, across.start)
            _fold(columns, across, of_columns, down.start)
    return rows, columns


def _block_maxima(block: Annotated[Tensor, "height width"], dim: int, seconds: bool) -> Neighbours:
    best, index = block.max(dim=dim)
    if not seconds:
        return Neighbours(best, index, torch.full_like(best, float("-inf")))
    without = block.scatter(dim, index.unsqueeze(dim), float("-inf"))
    return Neighbours(best, index, without.amax(dim=dim))


def _fold(known: Neighbours, where: slice, block: Neighbours, offset: int) -> None:
    best, index, second = (values[where] for values in known)
    loser = torch.minimum(best, block.best)
    torch.maximum(torch.maximum(loser, block.second), second, out=second)
    torch.where(block.best > best, block.nearest + offset, index, out=index)
    torch.maximum(best, block.best, out=best)
