"""``posfeat match A B`` from nothing, beside ``python -c "import torch"``.

    python benches/cold_start.py

Processes take turns; the time that the command takes beyond torch's own import must stay below 2.5 s.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from in_turn import Row, in_turn, photo

from posfeat.data.images import write_image

LIMIT_MS = 2500
TORCH, MATCH = "import torch", "posfeat match"


def cold_times(rounds: int) -> dict[str, float]:
    """The least time of each, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("a.jpg", "b.jpg")]
        picture = photo()
        for path, shift in zip(paths, (0, 8), strict=True):
            write_image(Path(path), picture[shift:, shift:])
        commands = {TORCH: ["-c", "import torch"], MATCH: ["-m", "posfeat", "match", *paths]}
        ways = {
            name: partial(subprocess.run, [sys.executable, *command], check=True, capture_output=True)
            for name, command in commands.items()
        }
        return {name: times.least for name, times in in_turn(ways, rounds, 40).items()}


def rows() -> list[Row]:
    times = cold_times(6)
    return [Row("posfeat match beyond import torch", "limit", times[MATCH] - times[TORCH], LIMIT_MS, "ms", 1.0)]


if __name__ == "__main__":
    for name, milliseconds in cold_times(6).items():
        print(f"{name:20}{milliseconds:8.0f} ms")
