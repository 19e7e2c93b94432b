"""Batch normalisation that sees the global batch when several processes train together, on CPU as on GPU.

torch's own SyncBatchNorm is for GPUs only. With one process this is torch's BatchNorm2d to the bit.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


class BatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose training statistics are those of all processes' batches together."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return super().forward(x)
        from torch.distributed.nn.functional import all_reduce

        values = x.float()
        count = values.new_tensor([values.numel() / values.shape[1] * dist.get_world_size()])
        sums = torch.cat([values.sum((0, 2, 3)), values.square().sum((0, 2, 3))])
        mean, square = (all_reduce(sums) / count).chunk(2)
        variance = (square - mean.square()).clamp(min=0)
        with torch.no_grad():
            momentum = self.momentum or 0.1
            assert self.running_mean is not None
            assert self.running_var is not None
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        scale = torch.rsqrt(variance + self.eps) * self.weight
        shift = self.bias - mean * scale
        return (values * scale[:, None, None] + shift[:, None, None]).to(x.dtype)
