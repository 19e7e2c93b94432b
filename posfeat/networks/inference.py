"""How a network runs when it only has to give results: device, precision, memory layout, folded batch norms.

The network that trains is never touched: inference works on a copy, made again whenever the weights have changed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

from posfeat.data.images import normalise
from posfeat.networks.paper_inference import use_cheaper_algebra
from posfeat.processor import prefers_bfloat16
from posfeat.types import DenseFeatures

Network = TypeVar("Network", bound=nn.Module)
Precision = Literal["auto", "fp32", "bf16", "fp16"]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The number format of weights and maps; ``auto`` takes 16 bits where the device is faster for it."""
    if precision != "auto":
        return _DTYPES[precision]
    if device.type == "cuda":  # before these units (Volta), 16-bit numbers are no faster, or much slower
        return torch.float16 if torch.cuda.get_device_capability(device)[0] >= 7 else torch.float32
    return torch.bfloat16 if device.type == "cpu" and prefers_bfloat16() else torch.float32


def weights_fingerprint(network: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes whenever a weight or a running statistic is replaced or written to."""
    found, waiting = list[tuple[int, int]](), [network]
    while waiting:  # network.parameters() would make names as well, which takes thrice as long, at each extraction
        module = waiting.pop()
        waiting.extend(child for child in module._modules.values() if child is not None)
        for tensors in (module._parameters, module._buffers):
            found.extend((tensor.data_ptr(), tensor._version) for tensor in tensors.values() if tensor is not None)
    return tuple(found)


@dataclass(frozen=True)
class FastNetworks:
    """A model's networks, copied and made fast, and the state of the weights that they were copied from."""

    networks: nn.Module
    device: torch.device
    dtype: torch.dtype
    descriptor_stride: int
    fingerprint: tuple[tuple[int, int], ...]

    def dense(self, pixels: npt.NDArray[np.uint8]) -> DenseFeatures:
        """Dense maps of RGB pixels, (H, W, 3) or (batch, H, W, 3)."""
        with torch.no_grad():
            image = normalise(torch.from_numpy(np.require(pixels, requirements=["C", "W"])).to(self.device)).to(
                self.dtype
            )
            features: DenseFeatures = self.networks(image)
            return features


def inference_copy(module: Network, dtype: torch.dtype, probe: Tensor, *, portable: bool = False) -> Network:
    """The module in evaluation mode with batch norms folded, in ``dtype`` and channels-last memory.

    ``portable`` keeps to layers that other programs know too.

    ``probe`` is a small valid input: running it shows which batch norm follows which convolution, and which convolutions
    the module itself feeds with float32, whatever its input. Those keep float32 weights.
    """
    fast = copy.deepcopy(module).eval().requires_grad_(False)
    _fold_batch_norms(fast, probe)
    if (
        probe.device.type == "cpu" and not portable
    ):  # accelerators have multiplications to spare, and would pay for many small steps
        use_cheaper_algebra(fast)
    fast.to(dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def keep_float32(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].dtype == torch.float32:
            layer.float()

    _run_with_hooks(
        fast,
        [m.register_forward_pre_hook(keep_float32) for m in fast.modules() if isinstance(m, nn.Conv2d)],
        probe.to(dtype),
    )
    return fast


def _fold_batch_norms(network: nn.Module, probe: Tensor) -> None:
    """Fold each batch norm into the convolution whose output it reads, as seen while the network runs."""
    names = {module: name for name, module in network.named_modules()}
    for conv, norm in _convolution_norm_pairs(network, probe):
        network.set_submodule(names[conv], fuse_conv_bn_eval(conv, norm))
        network.set_submodule(names[norm], nn.Identity())


def _convolution_norm_pairs(network: nn.Module, probe: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    made_by: list[tuple[Tensor, nn.Conv2d]] = []  # the tensors are held, so that none takes another's place
    pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]] = []

    def watch(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, nn.Conv2d):
            made_by.append((output, module))
        elif isinstance(module, nn.BatchNorm2d):
            pairs.extend((conv, module) for made, conv in made_by if made is inputs[0])

    _run_with_hooks(network, [module.register_forward_hook(watch) for module in network.modules()], probe)
    return pairs


def _run_with_hooks(network: nn.Module, hooks: list[RemovableHandle], probe: Tensor) -> None:
    with torch.no_grad():
        network(probe)
    for hook in hooks:
        hook.remove()
