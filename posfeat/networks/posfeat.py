"""The assembled model: describe first, then detect from the frozen description; dense maps, keypoints, descriptors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Annotated, Any, Literal

import numpy.typing as npt
import torch
from torch import Tensor, nn

from posfeat.data.images import RGB, pad_to_multiple
from posfeat.networks.compact import (
    CompactDescription,
    CompactDescriptionOptions,
    CompactDetection,
    CompactDetectionOptions,
)
from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.detection import PaperDetection, PaperDetectionOptions
from posfeat.networks.extraction import (
    ExtractionOptions,
    describe_image,
    extract_batch,
    extract_image,
    network_features,
    read_pixels,
    read_positions,
)
from posfeat.networks.fusion import fuse
from posfeat.networks.inference import FastNetworks, Precision, choose_dtype, inference_copy, weights_fingerprint
from posfeat.networks.resnet import STEM_CHANNELS
from posfeat.networks.tiling import ALIGNMENT_PX
from posfeat.options import check_options, described, nested
from posfeat.processor import keep_freed_memory
from posfeat.types import DenseFeatures, Features

_MAKING = Lock()  # of fast copies: several threads may want the first one at once
_USUAL = ExtractionOptions()  # checking options takes a while
ImageLike = str | os.PathLike[str] | npt.NDArray[Any] | Tensor


@dataclass(frozen=True)
class ModelOptions:
    """Which networks a model is made of; the options of the other architecture are ignored."""

    architecture: Literal["paper", "compact"] = described("compact", "the paper's networks, or the small fast ones")
    paper_description: PaperDescriptionOptions = nested(PaperDescriptionOptions, "the paper's description network")
    paper_detection: PaperDetectionOptions = nested(PaperDetectionOptions, "the paper's detection network")
    compact_description: CompactDescriptionOptions = nested(CompactDescriptionOptions, "the small description network")
    compact_detection: CompactDetectionOptions = nested(CompactDetectionOptions, "the small detection network")

    def __post_init__(self) -> None:
        check_options(self)


def build_model(options: ModelOptions) -> PoSFeat:
    """A model with fresh weights."""
    if options.architecture == "paper":
        paper = PaperDescription(options.paper_description)
        return PoSFeat(options, paper, PaperDetection(options.paper_detection, paper.dim, STEM_CHANNELS))
    compact = CompactDescription(options.compact_description)
    return PoSFeat(options, compact, CompactDetection(compact, options.compact_detection))


class PoSFeat(nn.Module):
    """A description network and a detection network that reads its maps."""

    def __init__(
        self,
        options: ModelOptions,
        description: PaperDescription | CompactDescription,
        detection: PaperDetection | CompactDetection,
    ) -> None:
        super().__init__()
        self.options = options
        self.description = description
        self.detection = detection
        self._fast: FastNetworks | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the fast copy, whose weights lie as this processor wants them: whoever copies a model makes its own."""
        return vars(self) | {"_fast": None}

    def forward(self, image: Annotated[Tensor, "batch 3 height width"]) -> DenseFeatures:
        return self.dense(image)

    def dense(self, image: Annotated[Tensor, "batch 3 height width"]) -> DenseFeatures:
        """Descriptor map (before L2 normalisation) and full-resolution score map of normalised images of any size.

        The descriptor map belongs to the image padded to multiples of 16: its cells keep their stride of 4.
        """
        return DenseNetworks(self.description, self.detection)(image)

    def extract(
        self,
        image: ImageLike,
        max_keypoints: int | None = None,
        *,
        mask: ImageLike | None = None,
        scales: Sequence[float] | None = None,
        rotations: Sequence[float] | None = None,
        options: ExtractionOptions | None = None,
    ) -> Features:
        """Keypoints and descriptors of an image: a file, RGB pixels (H, W, 3), or a tensor (3, H, W).

        Positions are those of the original image, whatever scales and rotations (degrees) are looked at besides.
        Nothing is detected where ``mask`` is black (0).
        """
        options = options or _USUAL
        if max_keypoints is not None:
            selection = dataclasses.replace(options.selection, max_keypoints=max_keypoints)
            options = dataclasses.replace(options, selection=selection)
        if scales is not None:
            options = dataclasses.replace(options, scales=tuple(scales))
        if rotations is not None:
            options = dataclasses.replace(options, rotations_deg=tuple(rotations))
        rgb, allowed = read_pixels(image, mask)
        find = partial(network_features, self._fast_networks(options.precision))
        return extract_image(find, rgb, allowed, options)

    def extract_batch(self, images: Sequence[RGB], options: ExtractionOptions | None = None) -> list[Features]:
        """Keypoints and descriptors of several images (H, W, 3); neighbours of one size go through the networks together.

        Faster on accelerators; a processor is as fast with one image after another.
        """
        options = options or _USUAL
        networks = self._fast_networks(options.precision)
        alike = (list(group) for _, group in groupby((read_pixels(i, None)[0] for i in images), lambda rgb: rgb.shape))
        return [features for group in alike for features in extract_batch(networks, group, options)]

    def describe(
        self,
        image: ImageLike,
        keypoints: Tensor | npt.NDArray[Any],
        *,
        options: ExtractionOptions | None = None,
    ) -> Features:
        """Descriptors, and the detector's scores, at the caller's own positions (N, 2), in the caller's order."""
        options = options or _USUAL
        rgb, _ = read_pixels(image, None)
        return describe_image(self._fast_networks(options.precision), rgb, read_positions(keypoints), options)

    def freeze_description(self) -> PoSFeat:
        """Keep the description network as it is: no gradients, no change of its running statistics."""
        self.description.requires_grad_(False).eval()
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def _fast_networks(self, precision: Precision) -> FastNetworks:
        """The networks made fast, as they are now; made again when weights or the wanted precision have changed."""
        fingerprint, dtype = weights_fingerprint(self), choose_dtype(precision, self.device)
        with _MAKING:
            if self._fast is None or (self._fast.fingerprint, self._fast.dtype) != (fingerprint, dtype):
                size, seed = (1, 3, 4 * ALIGNMENT_PX, 4 * ALIGNMENT_PX), torch.Generator().manual_seed(0)
                probe = torch.randn(size, generator=seed).to(self.device).contiguous(memory_format=torch.channels_last)
                dense = inference_copy(DenseNetworks(self.description, self.detection), dtype, probe)
                if self.device.type == "cpu":
                    keep_freed_memory()
                    dense.fuse(probe.to(dtype))
                self._fast = FastNetworks(dense, self.device, dtype, self.description.stride, fingerprint)
            return self._fast


class DenseNetworks(nn.Module):
    """Both networks in a row: descriptors, and the scores that keypoints are chosen by."""

    def __init__(self, description: nn.Module, detection: PaperDetection | CompactDetection) -> None:
        super().__init__()
        self.description = description
        self.detection: nn.Module = detection

    def forward(self, image: Annotated[Tensor, "batch 3 height width"]) -> DenseFeatures:
        height, width = image.shape[-2:]
        padded = pad_to_multiple(image, ALIGNMENT_PX)
        maps = self.description(padded)
        scores = self.detection(padded, maps)
        return DenseFeatures(maps.descriptors, scores[..., :height, :width])

    def fuse(self, probe: Annotated[Tensor, "batch 3 height width"]) -> None:
        """Run both in fewer steps, where that is possible."""
        with torch.no_grad():
            maps = self.description(probe)
        self.detection = fuse(self.detection, probe, maps)
        self.description = fuse(self.description, probe)
