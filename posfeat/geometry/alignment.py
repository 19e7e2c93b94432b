"""The similarity that lays one set of points over another: reconstructions come in a frame and a scale of their own."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor


class Similarity(NamedTuple):
    """x -> scale * rotation x + translation."""

    scale: Annotated[Tensor, ""]
    rotation: Annotated[Tensor, "3 3"]
    translation: Annotated[Tensor, "3"]

    def moved(self, points: Annotated[Tensor, "*batch 3"]) -> Annotated[Tensor, "*batch 3"]:
        """Points of the source's frame in the target's."""
        return self.scale * points @ self.rotation.T + self.translation


def align_points(source: Annotated[Tensor, "count 3"], target: Annotated[Tensor, "count 3"]) -> Similarity:
    """The similarity with the least squared distances between moved source points and target points (Umeyama, 1991).

    Three points that are not on one line are needed for it to be the only one.
    """
    source_mean, target_mean = source.mean(dim=0), target.mean(dim=0)
    from_source, from_target = source - source_mean, target - target_mean
    u, singular_values, vt = torch.linalg.svd(from_target.T @ from_source)
    signs = torch.ones_like(singular_values)
    signs[2] = torch.sign(torch.det(u @ vt))  # a rotation, never a mirroring
    rotation = u @ torch.diag(signs) @ vt
    scale = (singular_values * signs).sum() / from_source.square().sum().clamp(min=torch.finfo(source.dtype).tiny)
    return Similarity(scale, rotation, target_mean - scale * rotation @ source_mean)
