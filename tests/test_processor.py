"""Settings of the process's memory: made where they can be, left alone where somebody else has made them."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, torch
from posfeat.processor import keep_freed_memory
kept = keep_freed_memory()
torch.set_num_threads(1)
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(5_000_000) for _ in range(4)]
    del parts
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment: str) -> tuple[int, int]:
    """Whether memory is kept, and how many pages are asked for when 80 MB are used for the third time."""
    command = [sys.executable, "-c", COUNT_FAULTS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    return int(printed[0]), int(printed[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_freed_memory_is_used_again_unless_the_environment_says_otherwise() -> None:
    kept, faults = run()
    if kept:
        assert faults < 1000
    assert run(MALLOC_TRIM_THRESHOLD_="131072")[0] == 0
