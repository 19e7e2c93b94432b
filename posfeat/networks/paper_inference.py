"""The paper's networks as they run when they only have to give results: the same numbers by cheaper algebra.

Three things make the full-resolution part cheap. The convolutions of enlarged maps are computed before enlarging (see
upsampled_conv). The detector's image branch has no activation between its two convolutions, so that both and the
instance norm between them are one 5x5 convolution, once the norm's statistics are known; these follow from the
covariance of the image's 3x3 patches. And what an instance norm takes away again (biases) is never added.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfeat.networks.description import UpConvNormElu
from posfeat.networks.detection import PaperDetection
from posfeat.networks.upsampled_conv import ROW_BLOCK, UpsampledConv, bands
from posfeat.types import DescriptionMaps

EPSILON = 1e-5  # instance norm's default


def use_cheaper_algebra(network: nn.Module) -> None:
    """Replace the costly parts of the paper's networks inside ``network``; their batch norms are already folded."""
    for name, module in list(network.named_modules()):
        if isinstance(module, UpConvNormElu):
            network.set_submodule(name, FastUpConvElu(module))
        elif isinstance(module, PaperDetection):
            network.set_submodule(name, FastPaperDetection(module))


class FastUpConvElu(nn.Module):
    """Bilinear x2, 3x3 convolution, ELU."""

    def __init__(self, slow: UpConvNormElu) -> None:
        super().__init__()
        assert isinstance(slow.bn, nn.Identity), "batch norms must be folded"
        assert slow.conv.bias is not None
        self.conv = UpsampledConv(slow.conv.weight, align_corners=True)
        self.bias = nn.Parameter(slow.conv.bias.detach()[:, None, None], requires_grad=False)

    def forward(self, x: Annotated[Tensor, "batch c h w"]) -> Annotated[Tensor, "batch c2 2*h 2*w"]:
        return F.elu(self.conv(x, 2 * x.shape[2], 2 * x.shape[3]).add_(self.bias), inplace=True)


class ImageBranch(nn.Module):
    """Convolution of the image, instance norm, second convolution: as one 5x5 convolution made for the image at hand."""

    def __init__(self, first: nn.Conv2d, second_weight: Annotated[Tensor, "out hidden 3 3"]) -> None:
        super().__init__()
        self.register_buffer("first", first.weight.detach().clone())
        self.register_buffer("second", second_weight.detach().clone())
        self.first: Tensor
        self.second: Tensor

    def fit(self, image: Annotated[Tensor, "1 3 height width"]) -> FittedImageBranch:
        """Merge both convolutions and the norm between them, whose statistics follow from the image's patches."""
        first, mean, deviation = self.first.double(), *self._statistics(image)
        second = self.second.double() / deviation[:, None, None]
        # a convolution of kernels is a correlation with the other one turned round
        kernel = F.conv2d(first.transpose(0, 1), second.flip(2, 3), padding=2).transpose(0, 1)
        constant = -(second.sum((2, 3)) @ mean)
        rim = [self._top_row(torch.rot90(image, turn, (2, 3)), mean, second, turn) for turn in range(4)]
        return FittedImageBranch(kernel, constant, rim)

    def _statistics(self, image: Annotated[Tensor, "1 3 height width"]) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the first convolution's channels (bias left out)."""
        height, width = image.shape[-2:]
        patches = (
            F.pad(image[0].float(), (1, 1, 1, 1)).unfold(1, height, 1).unfold(2, width, 1).reshape(27, -1)
        )  # (channel, dy, dx)
        weight = self.first.double().flatten(1)
        mean = weight @ (patches.sum(1).double() / patches.shape[1])
        moments = weight @ ((patches @ patches.T).double() / patches.shape[1])
        variance = (moments * weight).sum(1) - mean.square()
        return mean, (variance.clamp(min=0) + EPSILON).sqrt()

    def _top_row(self, image: Tensor, mean: Tensor, second: Tensor, turn: int) -> Annotated[Tensor, "length out"]:
        """Result for the top row of the turned image: there the second convolution's zero padding is not the norm's zero."""
        first, second = (torch.rot90(kernel, turn, (2, 3)).float() for kernel in (self.first, second))
        hidden = F.conv2d(F.pad(image[:, :, :3].float(), (1, 1, 1, 0)), first) - mean.float()[:, None, None]
        return F.conv2d(F.pad(hidden, (1, 1, 1, 0)), second)[0, :, 0].T


class FittedImageBranch:
    """The image branch's 5x5 convolution for one image."""

    def __init__(
        self, kernel: Annotated[Tensor, "out 3 5 5"], constant: Annotated[Tensor, "out"], rim: list[Tensor]
    ) -> None:
        self.kernel, self.constant = kernel, constant
        self.top, self.right, self.bottom, self.left = rim[0], rim[1], rim[2].flip(0), rim[3].flip(0)

    def rows(
        self, padded: Annotated[Tensor, "1 3 height+4 width+4"], rows: slice, shift: Annotated[Tensor, "out"]
    ) -> Annotated[Tensor, "rows width out"]:
        """Rows of the result plus a constant; ``padded`` is the image within a frame of two zero pixels."""
        dtype, height = padded.dtype, padded.shape[2] - 4
        bias = (self.constant + shift).to(dtype)
        out = F.conv2d(padded[:, :, rows.start : rows.stop + 4], self.kernel.to(dtype), bias)[0].permute(1, 2, 0)
        out[:, 0], out[:, -1] = (side[rows] + shift for side in (self.left, self.right))
        if rows.start == 0:
            out[0] = self.top + shift
        if rows.stop == height:
            out[-1] = self.bottom + shift
        return out


class FastPaperDetection(nn.Module):
    """The paper's detection network, image by image, the full resolution in blocks of rows that fit a cache."""

    def __init__(self, slow: PaperDetection) -> None:
        super().__init__()
        features = slow.conv1.out_channels
        self.slope = float(slow.relu.weight)
        self.register_buffer("first", slow.conv1.weight.detach().clone())
        self.from_features = UpsampledConv(slow.conv2.weight[:, :features], align_corners=False)
        self.from_image = ImageBranch(slow.convimg, slow.conv2.weight[:, features:])
        self.register_buffer("last", slow.conv3.weight.detach().flatten())
        self.first: Tensor
        self.last: Tensor

    def forward(
        self, image: Annotated[Tensor, "batch 3 height width"], maps: DescriptionMaps
    ) -> Annotated[Tensor, "batch 1 height width"]:
        scores = []
        for item in range(image.shape[0]):
            one = slice(item, item + 1)
            features = F.conv2d(torch.cat([maps.descriptors[one], maps.stem[one]], dim=1), self.first, padding=1)
            # with one image a batch norm is an instance norm, and it keeps the memory layout
            features = F.leaky_relu_(F.batch_norm(features, None, None, training=True, eps=EPSILON), self.slope)
            scores.append(self._scores(self._hidden(image[one], features)))
        return torch.stack(scores)

    def _hidden(
        self, image: Annotated[Tensor, "1 3 height width"], features: Annotated[Tensor, "1 c rows columns"]
    ) -> list[Tensor]:
        """The second convolution's result in blocks (rows, width, channels), but for a constant of each channel."""
        height, width = image.shape[-2:]
        image_branch = self.from_image.fit(image)
        padded = F.pad(image, (2, 2, 2, 2)).contiguous(memory_format=torch.channels_last)
        mixed = self.from_features.mix(features)[0]
        shift = -self.from_features.mean(features, height, width)[0].double()  # near zero 16-bit numbers are finer
        blocks = []
        for band in bands(features.shape[2], height, False, ROW_BLOCK, mixed.dtype, mixed.device):
            block = image_branch.rows(padded, band.outputs, shift)
            self.from_features.enlarge(mixed, band, block, accumulate=True)
            blocks.append(block)
        return blocks

    def _scores(self, blocks: list[Tensor]) -> Annotated[Tensor, "1 height width"]:
        """Instance norm, activation, last convolution, instance norm, Softplus."""
        pixels = sum(block.shape[0] * block.shape[1] for block in blocks)
        mean, square = torch.stack([_moments(block) for block in blocks]).sum(0) / pixels
        inverse = ((square - mean.square()).clamp(min=0) + EPSILON).rsqrt()
        # the norm's division is by a positive number, so that it can wait until after the activation
        weight, centre = (self.last * inverse).float(), mean.to(blocks[0].dtype)
        raw = torch.cat([F.leaky_relu_(block - centre, self.slope).float() @ weight for block in blocks])
        raw = (raw - raw.mean()) * (raw.var(unbiased=False) + EPSILON).rsqrt()
        return F.softplus(raw)[None]


def _moments(block: Annotated[Tensor, "rows width channels"]) -> Annotated[Tensor, "2 channels"]:
    """Sum and sum of squares of each channel, by matrix products (a plain reduction takes several times as long)."""
    pixels = block.flatten(0, 1)
    ones = pixels.new_ones(1, pixels.shape[0])
    return torch.cat([ones @ pixels, ones @ (pixels * pixels)]).double()
