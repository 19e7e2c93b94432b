"""Mutual nearest neighbours of 8192 and 8192 descriptors of 128 numbers, beside the bare fp32 matrix product.

    python benches/matching.py --threads 2

All take turns in one process: the product alone (no maxima), the full matrix with a maximum along each axis, kornia's
``match_mnn`` if it is installed, and ours, which gives the same matches. Memory is what a fresh process needs at most beyond
what it held with the descriptors loaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial

import torch
import torch.nn.functional as F
from in_turn import Row, Ways, against, in_turn, peak_mb, resident_mb
from torch import Tensor

from posfeat.matching import mutual_nearest

OURS, PRODUCT, FULL, KORNIA = (
    "match 8192 x 8192 x 128",
    "bare fp32 product",
    "full matrix, two argmax",
    "kornia match_mnn",
)
MOST_MEMORY_MB = 64


def descriptors(count: int = 8192, dim: int = 128) -> tuple[Tensor, Tensor]:
    """Two sets of unit length; half of the first are in the second too, changed a little, as in a pair of photos."""
    generator = torch.Generator().manual_seed(0)
    one, noise = torch.randn(2, count, dim, generator=generator)
    strength = torch.where(torch.arange(count) < count // 2, 0.5, 10.0)[:, None]
    first = F.normalize(one, dim=1)
    second = F.normalize(first + strength * noise / dim**0.5, dim=1)
    return first, second[torch.randperm(count, generator=generator)].contiguous()


def full_matrix(first: Tensor, second: Tensor) -> Tensor:
    """The textbook's way: pairs of rows that are each other's nearest."""
    similarity = first @ second.T
    nearest1, nearest0 = similarity.argmax(1), similarity.argmax(0)
    places = torch.arange(len(first))
    mutual = nearest0[nearest1] == places
    return torch.stack([places[mutual], nearest1[mutual]], dim=1)


def all_ways(first: Tensor, second: Tensor) -> Ways:
    """Ours and the peers that are there."""
    ways: Ways = {OURS: partial(mutual_nearest, first, second), PRODUCT: lambda: first @ second.T}
    ways[FULL] = partial(full_matrix, first, second)
    try:
        from kornia.feature import match_mnn

        ways[KORNIA] = partial(match_mnn, first, second)
    except ImportError:
        print(f"{KORNIA} is not installed: left out", file=sys.stderr)
    return ways


def memory_mb() -> float:
    """The most that matching needs beyond its input, in this process."""
    first, second = descriptors()
    mutual_nearest(first[:128], second[:128])  # what the libraries need themselves
    before = resident_mb()
    mutual_nearest(first, second)
    return peak_mb() - before


def memory_of_a_fresh_process() -> float:
    command = [sys.executable, __file__, "--memory", "--threads", str(torch.get_num_threads())]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rows() -> list[Row]:
    first, second = descriptors()
    ours, expected = mutual_nearest(first, second)[0], full_matrix(first, second)
    assert set(map(tuple, ours.tolist())) == set(map(tuple, expected.tolist()))
    ways = all_ways(first, second)
    times = in_turn(ways, rounds=15, seconds=25)
    found = [
        against(times, OURS, peer, target)
        for peer, target in ((PRODUCT, 1.3), (FULL, None), (KORNIA, None))
        if peer in ways
    ]
    return [*found, Row("memory to match", "limit", memory_of_a_fresh_process(), MOST_MEMORY_MB, "MB", 1.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory", action="store_true", help="only the memory in MB")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory:
        print(memory_mb())
        return
    for name, times in in_turn(all_ways(*descriptors()), arguments.rounds, 60).items():
        print(f"{name:32}" + "".join(f"{part} {value:8.1f} ms   " for part, value in times._asdict().items()))
    print(f"memory beyond input: {memory_of_a_fresh_process():.0f} MB")


if __name__ == "__main__":
    main()
