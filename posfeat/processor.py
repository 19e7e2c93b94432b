"""What the processor at hand does fast."""

from __future__ import annotations

from functools import lru_cache

import torch


@lru_cache(maxsize=1)
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of 16-bit numbers; emulated they are slower than float32."""
    try:
        capabilities = torch.cpu.get_capabilities()
    except AttributeError:  # an older torch does not say
        return False
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
