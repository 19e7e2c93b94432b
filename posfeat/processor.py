"""What the processor at hand does fast, and how its memory is best used."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h
_MIB = 2**20


@lru_cache(maxsize=1)
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of 16-bit numbers; emulated they are slower than float32."""
    try:
        capabilities = torch.cpu.get_capabilities()
    except AttributeError:  # an older torch does not say
        return False
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


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
