"""Our model as an extractor of glue-factory, without importing that package. In a configuration of glue-factory:

    model:
      extractor:
        name: posfeat.interop.gluefactory
        weights: default
        max_num_keypoints: 2048

The centre of the top-left pixel is (0.5, 0.5) in glue-factory, so half a pixel is added here. The extractor is frozen: it is
there to train matchers on its features. With ``force_num_keypoints`` (batches of several images need equal numbers) the
places that are missing are taken at random and described, with score 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import options_from_mapping
from posfeat.types import Features, OptionsError

_CONFIGURATION: dict[str, Any] = {
    "weights": "default",
    "device": None,
    "max_num_keypoints": 2048,
    "force_num_keypoints": False,
    "extraction": {},
}


class GlueFactoryExtractor(nn.Module):
    """``forward({"image": (B, C, H, W) in [0, 1]}) -> {"keypoints", "keypoint_scores", "descriptors"}``."""

    required_data_keys = ("image",)
    default_conf = _CONFIGURATION

    def __init__(self, conf: Mapping[str, Any], model: PoSFeat | None = None) -> None:
        super().__init__()
        self.conf = {**_CONFIGURATION, **conf}
        self.model = (model or load(self.conf["weights"], self.conf["device"])).eval().requires_grad_(False)
        self.options = options_from_mapping(ExtractionOptions, dict(self.conf["extraction"]), "extraction.")

    def forward(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """Features of a batch; ``image_size`` (B, 2), if given, tells how much of each padded image is picture."""
        images: Tensor = data["image"]
        sizes = data.get("image_size")
        found = []
        for index, image in enumerate(images):
            width, height = (image.shape[-1], image.shape[-2]) if sizes is None else map(int, sizes[index].tolist())
            found.append(self._extract(image[:, :height, :width].clamp(0, 1)))
        if len({len(features) for features in found}) > 1:
            raise OptionsError("images of a batch have different numbers of keypoints; set force_num_keypoints: true")
        return {
            "keypoints": torch.stack([features.keypoints for features in found]).to(images) + COLMAP_OFFSET_PX,
            "keypoint_scores": torch.stack([features.scores for features in found]).to(images),
            "descriptors": torch.stack([features.descriptors for features in found]).to(images),
        }

    def loss(self, pred: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Nothing is learnt here."""
        return {"total": pred["keypoints0"].new_zeros(len(pred["keypoints0"]))}, {}

    def _extract(self, image: Tensor) -> Features:
        count = int(self.conf["max_num_keypoints"])
        features = self.model.extract(image, count, options=self.options)
        missing = count - len(features)
        if not missing or not self.conf["force_num_keypoints"]:
            return features
        size = torch.tensor([image.shape[-1] - 1.0, image.shape[-2] - 1.0])
        places = torch.rand(missing, 2, generator=torch.Generator().manual_seed(0)) * size
        more = self.model.describe(image, places, options=self.options)
        return Features(
            torch.cat([features.keypoints, more.keypoints]),
            torch.cat([features.scores, torch.zeros(missing)]),
            torch.cat([features.descriptors, more.descriptors]),
            features.image_size,
        )


__main_model__ = GlueFactoryExtractor
