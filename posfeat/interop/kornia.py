"""kornia's local affine frames, and our model as a module that stands where a kornia ``LocalFeature`` does.

A frame (2, 3) is [A | centre] with A in pixels; kornia's centre of the top-left pixel is (0, 0), as here. Our keypoints have
no scale of their own: frames are upright with the scale that the caller gives, which only programs that cut out
patches look at.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import Features, MissingExtraError

SCALE_PX = 12.0


def to_lafs(features: Features, scale_px: float = SCALE_PX) -> Annotated[Tensor, "1 num_keypoints 2 3"]:
    """Upright frames of one image's keypoints."""
    xy = features.keypoints[None]
    scale = torch.full((1, xy.shape[1], 1, 1), scale_px, dtype=xy.dtype, device=xy.device)
    frames: Tensor = _kornia_feature().laf_from_center_scale_ori(xy, scale)
    return frames


def from_lafs(
    lafs: Annotated[Tensor, "1 num_keypoints 2 3"],
    responses: Annotated[Tensor, "1 num_keypoints"],
    descriptors: Annotated[Tensor, "1 num_keypoints dim"],
    image_size: tuple[int, int],
) -> Features:
    """What a kornia LocalFeature gave for one image; slots that it did not fill are left out."""
    filled = (lafs[0] != 0).flatten(1).any(dim=1)
    xy, scores = _kornia_feature().get_laf_center(lafs)[0][filled], responses[0][filled]
    order = scores.argsort(descending=True, stable=True)
    rows = descriptors[0][filled][order]
    return Features(xy[order].float(), scores[order].float(), nn.functional.normalize(rows.float(), dim=1), image_size)


class KorniaLocalFeature(nn.Module):
    """``forward(image, mask) -> (frames, responses, descriptors)`` for ``kornia.feature.LocalFeatureMatcher`` and others.

    Images are (B, 1, H, W) or (B, 3, H, W) in [0, 1]. Where the images of a batch have different numbers of keypoints the
    rest is zero frames, kornia's sign for a slot that is not filled. Nothing is differentiated.
    """

    def __init__(
        self,
        model: PoSFeat,
        max_keypoints: int = 2048,
        scale_px: float = SCALE_PX,
        options: ExtractionOptions | None = None,
    ) -> None:
        super().__init__()
        _kornia_feature()  # says at once what to install
        self.model = model
        self.max_keypoints, self.scale_px, self.options = max_keypoints, scale_px, options

    def forward(
        self, img: Annotated[Tensor, "batch channels height width"], mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        masks = [None] * len(img) if mask is None else [one.squeeze() > 0 for one in mask]
        found = [self._extract(image, allowed) for image, allowed in zip(img, masks, strict=True)]
        most = max(len(features) for features in found)
        lafs = torch.cat([_filled_up(to_lafs(features, self.scale_px)[0], most)[None] for features in found])
        responses = torch.stack([_filled_up(features.scores, most) for features in found])
        descriptors = torch.stack([_filled_up(features.descriptors, most) for features in found])
        return lafs.to(img.device), responses.to(img.device), descriptors.to(img.device)

    def _extract(self, image: Tensor, allowed: Tensor | None) -> Features:
        mask = None if allowed is None else allowed.cpu().numpy()
        return self.model.extract(image.clamp(0, 1), self.max_keypoints, mask=mask, options=self.options)


def _filled_up(rows: Tensor, count: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])])


def _kornia_feature() -> Any:
    try:
        import kornia.feature
    except ImportError:
        raise MissingExtraError("local affine frames need kornia: pip install 'posfeat[baselines]'") from None
    return kornia.feature
