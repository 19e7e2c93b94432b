"""Line contrast: of all of the other image, the correspondence must lie near the epipolar line (beyond the paper).

Minus the log of the softmax mass, over the whole map, that falls within a few pixels of the line. The expectation over
a window cannot tell a network that knows nothing from one that knows where the window's middle is; this can, so it
starts training even from random weights. It uses the pose and nothing else.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor


def line_contrast_loss(
    log_mass: Annotated[Tensor, "batch points"], valid: Annotated[Tensor, "batch points"]
) -> Annotated[Tensor, "batch"]:
    """Each pair's mean over queries whose line meets the image; ``log_mass`` comes from the similarity pass."""
    masked = torch.where(valid, -log_mass, torch.zeros_like(log_mass))
    return masked.sum(-1) / valid.sum(-1).clamp(min=1)
