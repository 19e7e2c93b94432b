"""3x3 convolutions to few channels, for processors: two neighbouring pixels at once.

Vector registers hold 16 channels, so that one pixel of 8 channels leaves half of them empty. The same numbers come from a
convolution of 3 rows and 4 columns with stride 2 along x, which gives twice the channels for every second pixel: with the
channels last in memory these are the channels of all pixels. It takes 12 steps for two pixels instead of 9 for each.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST_CHANNELS = 8


def is_narrow(conv: nn.Conv2d) -> bool:
    """Whether a convolution is one that this pays for."""
    plain = (conv.kernel_size, conv.padding, conv.stride) == ((3, 3), (1, 1), (1, 1)) and conv.groups == 1
    return plain and conv.dilation == (1, 1) and conv.out_channels <= MOST_CHANNELS


def pair_kernel(weight: Annotated[Tensor, "channels in 3 3"]) -> Annotated[Tensor, "channels_of_two in 3 4"]:
    """The kernel for a pair of pixels: a pixel's own, and moved by one for the other pixel; padding 1 and stride (1, 2)."""
    both = torch.cat([F.pad(weight, (0, 1)), F.pad(weight, (1, 0))])
    return both.contiguous(memory_format=torch.channels_last)


def apart(
    pairs: Annotated[Tensor, "batch channels_of_two height half_width"],
) -> Annotated[Tensor, "batch channels height width"]:
    """The pixels of pairs as pixels."""
    batch, channels, height, width = pairs.shape
    return pairs.permute(0, 2, 3, 1).reshape(batch, height, 2 * width, channels // 2).permute(0, 3, 1, 2)
