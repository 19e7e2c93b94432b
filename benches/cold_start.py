"""``posfeat match A B`` from nothing, beside ``python -c "import torch"``.

    python benches/cold_start.py

Processes take turns; the time that the command takes beyond torch's own import must stay below 2.5 s.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from in_turn import Row, photo

from posfeat.data.images import write_image

LIMIT_MS = 2500
TORCH, MATCH = "import torch", "posfeat match"


def processor_ms() -> float:
    """What all processes that have ended here have used of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def cold_times(rounds: int = 6, seconds: float = 40) -> dict[str, tuple[float, float]]:
    """The least time of each by the clock and of the processor, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("a.jpg", "b.jpg")]
        picture = photo()
        for path, shift in zip(paths, (0, 8), strict=True):
            write_image(Path(path), picture[shift:, shift:])
        commands = {TORCH: ["-c", "import torch"], MATCH: ["-m", "posfeat", "match", *paths]}
        clock: dict[str, list[float]] = {name: [] for name in commands}
        cpu: dict[str, list[float]] = {name: [] for name in commands}
        started = time.perf_counter()
        for turn in range(rounds):
            if turn > 1 and time.perf_counter() - started > seconds:
                break
            for name, command in commands.items():
                start, start_cpu = time.perf_counter(), processor_ms()
                subprocess.run([sys.executable, *command], check=True, capture_output=True)
                clock[name].append((time.perf_counter() - start) * 1e3)
                cpu[name].append(processor_ms() - start_cpu)
        return {name: (min(clock[name]), min(cpu[name])) for name in commands}


def rows() -> list[Row]:
    times = cold_times()
    clock, cpu = (ours - torchs for ours, torchs in zip(times[MATCH], times[TORCH], strict=True))
    return [Row("posfeat match beyond import torch", "limit", clock, LIMIT_MS, "ms", 1.0, cpu / LIMIT_MS)]


if __name__ == "__main__":
    for name, (clock, cpu) in cold_times().items():
        print(f"{name:20}{clock:8.0f} ms   processor {cpu:8.0f} ms")
