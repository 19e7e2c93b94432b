"""The numbers of the paper's tables as pure functions: errors in, shares and scores out.

A pair without matches has an accuracy of 0, as in D2-Net's evaluation that the paper follows; it is never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from posfeat.geometry.epipolar import symmetric_epipolar_distance
from posfeat.geometry.homography import warp_points
from posfeat.geometry.pixels import inside_image

MMA_THRESHOLDS_PX = tuple(range(1, 11))
POSE_THRESHOLDS_DEG = (5.0, 10.0, 20.0)


def transfer_errors(
    homography: Annotated[Tensor, "3 3"], xy0: Annotated[Tensor, "matches 2"], xy1: Annotated[Tensor, "matches 2"]
) -> Annotated[Tensor, "matches"]:
    """Distance in pixels of image 1 between matched points and where the homography 0 -> 1 sends their partners."""
    errors = (warp_points(homography.double(), xy0.double()) - xy1.double()).norm(dim=-1)
    return torch.where(errors.isfinite(), errors, torch.full_like(errors, float("inf")))


def share_within(
    errors: Annotated[Tensor, "errors"], thresholds: Sequence[float] = MMA_THRESHOLDS_PX
) -> Annotated[Tensor, "thresholds"]:
    """Share of errors that are at most each threshold; 0 where there are no errors at all.

    For the transfer errors of one pair this is its matching accuracy; MMA is the mean of it over pairs.
    """
    limits = torch.tensor(thresholds, dtype=torch.float64)
    if errors.numel() == 0:
        return torch.zeros_like(limits)
    return (errors.double()[:, None] <= limits).double().mean(dim=0)


def mma_score(mma: Annotated[Tensor, "10"]) -> float:
    """MMAscore (equation 12): MMA at 1..10 px averaged with weights falling from 1.9 to 1.0."""
    weights = 2 - 0.1 * torch.tensor(MMA_THRESHOLDS_PX, dtype=torch.float64)
    return float((weights * mma.double()).sum() / weights.sum())


def recall_auc(errors: Annotated[Tensor, "errors"], thresholds: Sequence[float]) -> list[float]:
    """Area under the curve of recall over error up to each threshold, divided by the threshold.

    The curve joins (error, share of errors up to it) by straight lines from (0, 0), and is held level from the last
    error below the threshold to the threshold; a failure is an infinite error. Used for pose and homography AUC.
    """
    ordered = errors.double().sort().values
    count = ordered.numel()
    if count == 0:
        return [0.0 for _ in thresholds]
    zero = torch.zeros(1, dtype=torch.float64)
    recall = torch.arange(1, count + 1, dtype=torch.float64) / count
    ordered, recall = torch.cat([zero, ordered]), torch.cat([zero, recall])
    areas = []
    for threshold in thresholds:
        last = int(torch.searchsorted(ordered, torch.tensor(float(threshold), dtype=torch.float64)))
        x = torch.cat([ordered[:last], torch.tensor([threshold], dtype=torch.float64)])
        y = torch.cat([recall[:last], recall[last - 1 : last]])
        areas.append(float(torch.trapezoid(y, x)) / threshold)
    return areas


def epipolar_precision(
    fundamental: Annotated[Tensor, "3 3"],
    xy0: Annotated[Tensor, "matches 2"],
    xy1: Annotated[Tensor, "matches 2"],
    thresholds_px: Sequence[float],
) -> Annotated[Tensor, "thresholds"]:
    """Share of matches whose two points are both within each threshold of each other's true epipolar line."""
    distance0, distance1 = symmetric_epipolar_distance(fundamental.double(), xy0.double(), xy1.double())
    return share_within(torch.maximum(distance0, distance1), thresholds_px)


def repeatability(
    keypoints0: Annotated[Tensor, "num_keypoints0 2"],
    keypoints1: Annotated[Tensor, "num_keypoints1 2"],
    homography: Annotated[Tensor, "3 3"],
    size0: tuple[int, int],
    size1: tuple[int, int],
    threshold_px: float = 3.0,
) -> float:
    """Share of the keypoints in the common part of two images that have a keypoint within the threshold in the other.

    Each image's keypoints are carried into the other image, where distances are measured, and both directions count
    alike; sizes are (width, height). NaN where no keypoint lies in the common part.
    """
    homography = homography.double()
    forward = _found_again(keypoints0.double(), keypoints1.double(), homography, size1, threshold_px)
    backward = _found_again(keypoints1.double(), keypoints0.double(), torch.linalg.inv(homography), size0, threshold_px)
    common = forward.numel() + backward.numel()
    return float(forward.sum() + backward.sum()) / common if common else float("nan")


def _found_again(source: Tensor, target: Tensor, homography: Tensor, size: tuple[int, int], limit: float) -> Tensor:
    warped = warp_points(homography, source)
    warped = warped[inside_image(warped, height=size[1], width=size[0])]
    if target.shape[0] == 0:
        return torch.zeros(warped.shape[0], dtype=torch.bool)
    # in pieces, so that 20,000 keypoints need no 3 GB table of distances
    pieces = [torch.cdist(part, target).amin(dim=1) <= limit for part in warped.split(1024)]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.bool)


@dataclass(frozen=True)
class TrackStatistics:
    """Observations and track lengths of a sparse model."""

    points: int
    observations: int
    mean_length: float
    median_length: float
    histogram: dict[int, int]  # length -> number of points


def track_statistics(lengths: Annotated[Tensor, "points"]) -> TrackStatistics:
    """Observations, mean, median and distribution of the number of images that see each 3D point."""
    if lengths.numel() == 0:
        return TrackStatistics(0, 0, 0.0, 0.0, {})
    values, counts = lengths.long().unique(return_counts=True)
    return TrackStatistics(
        points=lengths.numel(),
        observations=int(lengths.sum()),
        mean_length=float(lengths.double().mean()),
        median_length=float(lengths.double().quantile(0.5)),
        histogram={int(value): int(count) for value, count in zip(values, counts, strict=True)},
    )
