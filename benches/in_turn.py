"""What every bench shares: ways that take turns in one process, and the rows of the table."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posfeat.data.images import resize_image
from posfeat.demo.sample_photos import sample_photo

Pixels = npt.NDArray[np.uint8]
Ways = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Row:
    """Ours beside a peer's in the same run; smaller is better, and so is a smaller ratio."""

    name: str
    peer: str
    ours: float
    theirs: float
    unit: str
    target: float | None = None  # the largest ratio that was asked for
    cpu_ratio: float | None = None  # of processor time: on a busy machine, with one thread, it says more than the clock

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def key(self) -> str:
        return f"{self.name} / {self.peer}"


class Times(NamedTuple):
    """Of one way, in ms: by the clock the median and the least, and the least of the processor's."""

    median: float
    least: float
    cpu: float


def in_turn(ways: Ways, rounds: int = 30, seconds: float = 20.0) -> dict[str, Times]:
    """Times of several ways that take turns, so that all meet the same weather; at least one round after a first."""
    clock: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    started = time.perf_counter()
    for turn in range(rounds + 1):
        if turn > 1 and time.perf_counter() - started > seconds:
            break
        for name, run in ways.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            if turn:
                clock[name].append((time.perf_counter() - start) * 1e3)
                cpu[name].append((time.process_time() - start_cpu) * 1e3)
    return {name: Times(statistics.median(clock[name]), min(clock[name]), min(cpu[name])) for name in ways}


def against(times: dict[str, Times], name: str, peer: str, target: float | None = None, label: str = "") -> Row:
    """A row of two of the ways, by their least times."""
    ours, theirs = times[name], times[peer]
    return Row(label or name, peer, ours.least, theirs.least, "ms", target, ours.cpu / theirs.cpu)


def photo(width: int = 640, height: int = 480) -> Pixels:
    """A photo of that size."""
    return np.ascontiguousarray(resize_image(sample_photo("coffee"), width, height))


def peak_mb() -> float:
    """The most memory that this process has ever had in RAM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not say how much memory a process has used")


def resident_mb() -> float:
    """Memory of this process in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
