"""Image -> features: views, tiles, keypoints, descriptors, and their merging in the image's own pixels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from posfeat.data.images import RGB, as_mask, as_rgb, as_rgb_tensor, read_image, read_mask, shown
from posfeat.geometry.pixels import sample_map
from posfeat.networks.batch_features import batch_features
from posfeat.networks.descriptor_sampling import sample_descriptors
from posfeat.networks.inference import FastNetworks, Precision
from posfeat.networks.keypoint_selection import Peaks, SelectionOptions, best_peaks, find_peaks, refine_positions
from posfeat.networks.tiling import Tile, tiles
from posfeat.networks.views import ImageView, Mask, image_views
from posfeat.options import check_options, described, nested
from posfeat.types import DenseFeatures, Features, ImageError, OptionsError

SMALLEST_SIDE_PX = 8

Region = tuple[int, int, int, int]  # left, top, right, bottom; the last two are beyond it


class TileFeatures(Protocol):
    """Whatever finds the features of a part of an image that fits into memory."""

    def __call__(self, pixels: RGB, region: Region, allowed: Mask | None, selection: SelectionOptions) -> Features:
        """The best features of a tile, in its own pixels, that lie in the region and where ``allowed``."""
        ...


@dataclass(frozen=True)
class ExtractionOptions:
    """How an image is looked at and which keypoints are kept."""

    selection: SelectionOptions = nested(SelectionOptions, "which pixels become keypoints")
    scales: tuple[float, ...] = described((1.0,), "sizes at which the image is looked at, relative to its own")
    rotations_deg: tuple[float, ...] = described(
        (0.0,), "in-plane rotations, counter-clockwise, at which it is looked at"
    )
    precision: Precision = described("auto", "number format of the networks: auto, fp32, bf16 or fp16")
    tile_pixels: int = described(2**21, "larger images are run in tiles of about this many pixels", low=2**12)
    tile_overlap_px: int = described(224, "true image around each tile's own part, in pixels", low=0)

    def __post_init__(self) -> None:
        check_options(self)
        views = (*self.scales, *self.rotations_deg)
        if not (self.scales and self.rotations_deg and all(map(math.isfinite, views)) and min(self.scales) > 0):
            raise OptionsError("options scales and rotations_deg need a finite value each, and scales are above 0")


def read_pixels(image: Any, mask: Any | None) -> tuple[RGB, Mask | None]:
    """The image as RGB pixels and the mask as a boolean map of its size (False: masked)."""
    rgb = _pixels(image)
    if min(rgb.shape[:2]) < SMALLEST_SIDE_PX:
        name = shown(image) if isinstance(image, (str, os.PathLike)) else "the image"
        raise ImageError(
            f"{name} is {rgb.shape[1]}x{rgb.shape[0]} pixels: too small for features; leave it out "
            f"(the shorter side needs {SMALLEST_SIDE_PX})"
        )
    if mask is None:
        return rgb, None
    allowed = read_mask(mask) if isinstance(mask, (str, os.PathLike)) else as_mask(np.asarray(mask))
    if allowed.shape != rgb.shape[:2]:
        size, wanted = "x".join(map(str, allowed.shape[::-1])), f"{rgb.shape[1]}x{rgb.shape[0]}"
        raise ImageError(f"the mask is {size} and the image {wanted}: make the mask the same size")
    return rgb, allowed


def read_positions(keypoints: Any) -> Annotated[Tensor, "num_keypoints 2"]:
    """Positions (x, y) that somebody wants described, checked."""
    positions = torch.as_tensor(keypoints).detach().to(torch.float32)
    if positions.numel() == 0:
        return positions.reshape(0, 2)
    if positions.ndim != 2 or positions.shape[1] != 2:
        raise ImageError(f"keypoints to describe have shape {tuple(positions.shape)}; give (x, y) as (count, 2)")
    if not bool(torch.isfinite(positions).all()):
        raise ImageError("keypoints to describe hold values that are not finite; leave these out")
    return positions


def extract_image(find: TileFeatures, rgb: RGB, allowed: Mask | None, options: ExtractionOptions) -> Features:
    """Keypoints and descriptors of an image, over all views of it and all tiles of these."""
    height, width = rgb.shape[:2]
    found = []
    for view in image_views(rgb, allowed, options.scales, options.rotations_deg):
        features = _extract_view(find, view, options)
        found.append(
            Features(view.to_image(features.keypoints), features.scores, features.descriptors, (width, height))
        )
    return found[0] if len(found) == 1 else _merge_views(found, options.selection)


def extract_batch(networks: FastNetworks, photos: Sequence[RGB], options: ExtractionOptions) -> list[Features]:
    """Keypoints and descriptors of images of one size, in as few runs of the networks as ``tile_pixels`` allows."""
    height, width = photos[0].shape[:2]
    count, border = options.tile_pixels // (height * width), options.selection.border_px
    if count == 0 or (options.scales, options.rotations_deg) != ((1.0,), (0.0,)):
        return [extract_image(partial(network_features, networks), rgb, None, options) for rgb in photos]
    region = (border, border, width - border, height - border)
    parts = (np.stack(photos[start : start + count]) for start in range(0, len(photos), count))
    return [features for part in parts for features in batch_features(networks, part, region, None, options.selection)]


def describe_image(
    networks: FastNetworks, rgb: RGB, keypoints: Annotated[Tensor, "num_keypoints 2"], options: ExtractionOptions
) -> Features:
    """Scores and descriptors at given positions of an image, in the given order."""
    height, width = rgb.shape[:2]
    keypoints = keypoints.to(networks.device)
    cell = torch.stack([keypoints[:, 0].round().clamp(0, width - 1), keypoints[:, 1].round().clamp(0, height - 1)], -1)
    scores, descriptors, order = [], [], []
    for tile, maps in _run_tiles(networks, rgb, options):
        low, high = (
            cell.new_tensor([tile.core_left, tile.core_top]),
            cell.new_tensor([tile.core_right, tile.core_bottom]),
        )
        rows = ((cell >= low) & (cell < high)).all(dim=1).nonzero().squeeze(1)
        xy = keypoints[rows] - keypoints.new_tensor([tile.left, tile.top])
        order.append(rows)
        scores.append(sample_map(maps.scores.float(), xy[None])[0, 0])
        descriptors.append(sample_descriptors(maps.descriptors, xy, networks.descriptor_stride))
    back = torch.argsort(torch.cat(order))
    return Features(keypoints.cpu(), torch.cat(scores)[back].cpu(), torch.cat(descriptors)[back].cpu(), (width, height))


def _pixels(image: Any) -> RGB:
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    return as_rgb_tensor(image) if isinstance(image, Tensor) else as_rgb(image)


def network_features(
    networks: FastNetworks, pixels: RGB, region: Region, allowed: Mask | None, selection: SelectionOptions
) -> Features:
    """The features of a tile by our own networks; with the networks given, a TileFeatures."""
    if networks.device.type != "cpu":
        return batch_features(networks, pixels[None], region, allowed, selection)[0]
    maps = networks.dense(pixels)
    score_map = maps.scores[0, 0].float()
    mask = None if allowed is None else torch.from_numpy(allowed)
    peaks = best_peaks(find_peaks(score_map, selection, region, mask), selection.max_keypoints)
    xy = refine_positions(score_map, peaks, selection.subpixel)
    descriptors = sample_descriptors(maps.descriptors, xy, networks.descriptor_stride)
    return Features(xy, peaks.scores, descriptors, (pixels.shape[1], pixels.shape[0]))


def _run_tiles(networks: FastNetworks, rgb: RGB, options: ExtractionOptions) -> Iterator[tuple[Tile, DenseFeatures]]:
    height, width = rgb.shape[:2]
    for tile in tiles(height, width, options.tile_pixels, options.tile_overlap_px):
        yield tile, networks.dense(rgb[tile.top : tile.bottom, tile.left : tile.right])


def _extract_view(find: TileFeatures, view: ImageView, options: ExtractionOptions) -> Features:
    height, width = view.rgb.shape[:2]
    border, selection = options.selection.border_px, options.selection
    best: Features | None = None
    for tile in tiles(height, width, options.tile_pixels, options.tile_overlap_px):
        region = (
            max(tile.core_left, border) - tile.left,
            max(tile.core_top, border) - tile.top,
            min(tile.core_right, width - border) - tile.left,
            min(tile.core_bottom, height - border) - tile.top,
        )
        rows, columns = slice(tile.top, tile.bottom), slice(tile.left, tile.right)
        allowed = None if view.allowed is None else view.allowed[rows, columns]
        part = find(view.rgb[rows, columns], region, allowed, selection)
        corner = part.keypoints.new_tensor([tile.left, tile.top])
        found = Features(part.keypoints + corner, part.scores, part.descriptors, (width, height))
        best = found if best is None else _best_of([best, found], selection.max_keypoints)
    assert best is not None
    return best


def _best_of(parts: list[Features], count: int) -> Features:
    """The ``count`` best of several sets of features of one image."""
    keypoints, scores, descriptors = (
        torch.cat(c) for c in zip(*((p.keypoints, p.scores, p.descriptors) for p in parts), strict=True)
    )
    order = torch.sort(scores, descending=True, stable=True).indices[:count]
    return Features(keypoints[order], scores[order], descriptors[order], parts[0].image_size)


def _merge_views(found: list[Features], options: SelectionOptions) -> Features:
    """Several views' features as one set: where views found the same point, the best score counts."""
    width, height = found[0].image_size
    together = _best_of(found, sum(map(len, found)))
    x = together.keypoints[:, 0].round().long().clamp_(0, width - 1)
    y = together.keypoints[:, 1].round().long().clamp_(0, height - 1)
    first = torch.full((height * width,), len(together), dtype=torch.long)
    first.scatter_reduce_(0, y * width + x, torch.arange(len(together)), "amin")
    # the order stands in for the score: it has no ties, and a pixel's first entry is its best
    rank_map = -first.to(torch.float32).view(height, width)
    rank_map[rank_map == -len(together)] = float("-inf")
    whole = SelectionOptions(nms_size=options.nms_size, threshold=-float(len(together)), border_px=0)
    peaks: Peaks = find_peaks(rank_map, whole, (0, 0, width, height))
    kept = (-peaks.scores).long().sort().values[: options.max_keypoints]
    return Features(together.keypoints[kept], together.scores[kept], together.descriptors[kept], (width, height))
