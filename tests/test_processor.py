"""Settings of the process's memory: made where they can be, left alone where somebody else has made them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posfeat import processor

COUNT_FAULTS = """
import resource, torch
from posfeat.processor import keep_freed_memory
kept = keep_freed_memory()
torch.set_num_threads(1)
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(5_000_000) for _ in range(4)]
    del parts
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment: str) -> tuple[int, int]:
    """Whether memory is kept, and how many pages are asked for when 80 MB are used for the sixth time."""
    command = [sys.executable, "-c", COUNT_FAULTS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    return int(printed[0]), int(printed[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_freed_memory_is_used_again_unless_the_environment_says_otherwise() -> None:
    kept, faults = run()
    if kept:
        assert faults < 1000
    assert run(MALLOC_TRIM_THRESHOLD_="131072")[0] == 0


@pytest.mark.parametrize(("bfloat16_ms", "faster"), [(1.0, True), (9.0, False)])
def test_instructions_without_speed_are_not_used(
    monkeypatch: pytest.MonkeyPatch, bfloat16_ms: float, faster: bool
) -> None:
    times = {torch.bfloat16: bfloat16_ms, torch.float32: 4.0}
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(processor, "_convolution_seconds", times.__getitem__)
    assert processor.prefers_bfloat16.__wrapped__() is faster
    monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: False)
    assert not processor.prefers_bfloat16.__wrapped__()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_cores_that_a_container_is_granted(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert processor.granted_cores(tmp_path) == cores
