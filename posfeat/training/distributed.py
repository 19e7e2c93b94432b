"""One process or many: what torchrun sets up, and random numbers that do not depend on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Workers:
    """This process's place among those that train together."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def items(self, batch_size: int) -> range:
        """The numbers, within the global batch, of the items that this process holds."""
        share = batch_size // self.world_size
        return range(self.rank * share, (self.rank + 1) * share)


@contextmanager
def join_workers(device: str = "auto") -> Iterator[Workers]:
    """Join the processes that torchrun started (gloo on CPU, nccl on GPUs), or be alone."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    kind = "cuda" if use_cuda else "cpu" if device == "auto" else device
    if world_size == 1:
        yield Workers(device=torch.device(kind))
        return
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if use_cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if use_cuda else "gloo")
    try:
        yield Workers(rank, world_size, torch.device("cuda", local_rank) if use_cuda else torch.device(kind))
    finally:
        dist.destroy_process_group()


def item_generators(seed: int, step: int, items: range) -> list[torch.Generator]:
    """A generator for each item of a batch, the same whichever process holds the item and however often it is resumed."""
    seeds = (np.random.SeedSequence([seed, step, item]).generate_state(1, np.uint64)[0] >> 1 for item in items)
    return [torch.Generator().manual_seed(int(value)) for value in seeds]
