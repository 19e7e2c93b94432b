"""What the processor at hand does fast, and how its memory is best used."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from functools import lru_cache
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h
_MIB = 2**20
_TRIALS = 5


@lru_cache(maxsize=1)
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of 16-bit numbers; emulated they are slower than float32."""
    try:
        capabilities = torch.cpu.get_capabilities()
    except AttributeError:  # an older torch does not say
        return False
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@lru_cache(maxsize=1)
def prefers_bfloat16() -> bool:
    """Whether 16-bit numbers are the faster ones: the processor has instructions for them, and a short trial bears it out.

    Some machines have the instructions but not the speed: virtual ones, or a torch built without what uses them.
    """
    if not multiplies_bfloat16():
        return False
    times: dict[torch.dtype, float] = dict.fromkeys((torch.bfloat16, torch.float32), float("inf"))
    with torch.no_grad():
        for _ in range(_TRIALS):
            for dtype, best in times.items():
                times[dtype] = min(best, _convolution_seconds(dtype))
    return times[torch.bfloat16] < times[torch.float32]


def _convolution_seconds(dtype: torch.dtype) -> float:
    """Time of a convolution such as the networks are made of, a few milliseconds."""
    image = torch.ones(1, 64, 60, 80, dtype=dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.ones(64, 64, 3, 3, dtype=dtype).contiguous(memory_format=torch.channels_last)
    start = time.perf_counter()
    torch.nn.functional.conv2d(image, weight, padding=1)
    return time.perf_counter() - start


def granted_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How many cores a container may keep busy, rounded up; None where there is no limit."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # version 2 and version 1
        try:
            quota, period = " ".join((cgroup / name).read_text() for name in files).split()
            cores = math.ceil(int(quota) / int(period))
        except (OSError, ValueError):  # not there, or "max"
            continue
        if cores > 0:
            return cores
    return None


def keep_to_granted_cores() -> None:
    """No more of torch's threads than a container has cores: torch counts those of the whole machine."""
    granted = granted_cores()
    if granted is not None and granted < torch.get_num_threads() and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(granted)


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Let the C library keep large buffers for the next use, up to 256 MiB of them; whether that was possible.

    By default it gives them back to the system at once, and a network spends a sixth of its time on getting them again.
    Does nothing where the environment says how memory is to be handled (MALLOC_...), and beyond glibc.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_M_MMAP_THRESHOLD, 128 * _MIB), (_M_TRIM_THRESHOLD, 256 * _MIB), (_M_TOP_PAD, 16 * _MIB))
    taken = [mallopt(option, value) for option, value in wanted]
    return all(taken)
