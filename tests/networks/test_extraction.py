"""Where keypoints lie: exact under moving, padding, tiling, rescaling and turning the image, with networks that mark blobs.

The networks here have known answers: the score map is the brightness, smoothed; the descriptor of a cell tells which
colours are around it. The images are smooth blobs at known places between pixels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfeat.data.images import write_image
from posfeat.networks.compact import CompactDescriptionOptions, CompactDetectionOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.types import DescriptionMaps, Features, ImageError, OptionsError

Pixels = npt.NDArray[np.uint8]


class ColourDescription(nn.Module):
    """The mean colour of each 4x4 cell, and of the 12x12 pixels around it."""

    stride = 4
    dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> DescriptionMaps:
        cells = F.avg_pool2d(image, 4) * self.weight
        around = F.avg_pool2d(F.pad(cells, (1, 1, 1, 1), mode="replicate"), 3, 1)
        return DescriptionMaps(torch.cat([cells + 3, around + 3], dim=1), cells)


class BrightnessDetection(nn.Module):
    """Brightness, smoothed a little."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        self.register_buffer("kernel", (weights[:, None] * weights).view(1, 1, 5, 5))

    def forward(self, image: Tensor, maps: DescriptionMaps) -> Tensor:
        grey = F.pad(image.float().mean(dim=1, keepdim=True), (2, 2, 2, 2), mode="replicate")
        return (F.conv2d(grey, self.kernel.float()) + 3).clamp(min=0)


@pytest.fixture(scope="module")
def blob_model() -> PoSFeat:
    parts: tuple[Any, Any] = ColourDescription(), BrightnessDetection()
    return PoSFeat(ModelOptions(), *parts).eval()


def blobs(height: int, width: int, seed: int = 0, spacing: int = 24, scale: float = 1.0) -> tuple[Pixels, Tensor]:
    """Coloured blobs on a jittered grid, at true positions between pixels; ``scale`` renders it all larger."""
    rng = np.random.default_rng(seed)
    grid = np.stack(
        np.meshgrid(np.arange(spacing, width - spacing, spacing), np.arange(spacing, height - spacing, spacing)), -1
    )
    centres = grid.reshape(-1, 2) + rng.uniform(-5, 5, (grid.size // 2, 2))
    heights = rng.uniform(60, 200, (len(centres), 3))
    centres = (centres + 0.5) * scale - 0.5
    rows, columns = np.arange(round(height * scale)), np.arange(round(width * scale))
    image, sigma = np.full((len(rows), len(columns), 3), 20.0), 2.5 * scale
    for (x, y), colour in zip(centres, heights, strict=True):
        near_y, near_x = np.abs(rows - y) < 5 * sigma, np.abs(columns - x) < 5 * sigma
        bump = np.exp(
            -((rows[near_y] - y) ** 2)[:, None] / (2 * sigma**2) - (columns[near_x] - x) ** 2 / (2 * sigma**2)
        )
        image[np.ix_(near_y, near_x)] += bump[..., None] * colour
    return np.rint(image.clip(0, 255)).astype(np.uint8), torch.from_numpy(centres).float()


def options_of(**others: Any) -> ExtractionOptions:
    return ExtractionOptions(SelectionOptions(nms_size=9, threshold=1.6, border_px=0), precision="fp32", **others)


def offsets(found: Features, expected: Tensor, reach: float = 3.0) -> Tensor:
    """From each expected position to the found keypoint there; there has to be exactly one."""
    distance = torch.cdist(expected, found.keypoints)
    assert bool(((distance < reach).sum(1) == 1).all())
    return found.keypoints[distance.argmin(1)] - expected


def test_blobs_are_found_where_they_are(blob_model: PoSFeat) -> None:
    image, centres = blobs(240, 320)
    features = blob_model.extract(image, options=options_of())
    residual = offsets(features, centres)
    assert len(features) == len(centres)
    assert float(residual.norm(dim=1).mean()) < 0.05
    assert float(residual.median(0).values.abs().max()) < 0.02
    assert features.image_size == (320, 240)
    assert all(t.dtype == torch.float32 for t in (features.keypoints, features.scores, features.descriptors))
    assert torch.allclose(features.descriptors.norm(dim=1), torch.ones(len(features)), atol=1e-5)
    assert bool((features.scores[1:] <= features.scores[:-1]).all())


@pytest.mark.parametrize(("left", "top"), [(16, 32), (1, 0), (5, 3), (17, 50)])
def test_moving_the_image_moves_the_keypoints(blob_model: PoSFeat, left: int, top: int) -> None:
    image, centres = blobs(240, 320)
    whole, part = (blob_model.extract(i, options=options_of()) for i in (image, image[top:, left:]))
    inside = centres[(centres > torch.tensor([left + 8, top + 8])).all(1)]
    shift = torch.tensor([left, top])
    difference = offsets(whole, inside) - offsets(part, inside - shift)
    assert float(difference.norm(dim=1).mean()) < 1e-4


@pytest.mark.parametrize(("height", "width"), [(240, 320), (241, 319), (250, 333), (239, 305), (47, 320), (97, 35)])
def test_any_size_is_used_to_its_rim(blob_model: PoSFeat, height: int, width: int) -> None:
    image, centres = blobs(288, 352)
    image = image[:height, :width]
    features = blob_model.extract(image, options=options_of())
    inside = centres[(centres < torch.tensor([width - 4, height - 4])).all(1)]
    assert float(offsets(features, inside).norm(dim=1).mean()) < 0.05
    assert features.image_size == (width, height)
    assert bool((features.keypoints <= torch.tensor([width - 0.5, height - 0.5])).all())
    framed = np.pad(image, ((0, 64), (0, 64), (0, 0)), mode="edge")
    more = blob_model.extract(framed, options=options_of())
    assert float((offsets(more, inside) - offsets(features, inside)).norm(dim=1).mean()) < 1e-4


@pytest.mark.parametrize("tile_pixels", [10_000, 40_000])
def test_tiled_equals_whole(blob_model: PoSFeat, tile_pixels: int) -> None:
    image, _ = blobs(250, 333)
    whole = blob_model.extract(image, options=options_of())
    tiled = blob_model.extract(image, options=options_of(tile_pixels=tile_pixels, tile_overlap_px=16))
    assert torch.equal(whole.scores, tiled.scores)
    assert torch.allclose(whole.keypoints, tiled.keypoints, atol=1e-4)
    assert torch.allclose(whole.descriptors, tiled.descriptors, atol=1e-5)
    few = blob_model.extract(image, 20, options=options_of(tile_pixels=tile_pixels, tile_overlap_px=16))
    assert torch.equal(few.keypoints, tiled.keypoints[:20])


@pytest.mark.parametrize("tile_pixels", [10_000, 2**21])
def test_describe_equals_extract(blob_model: PoSFeat, tile_pixels: int) -> None:
    image, _ = blobs(250, 333)
    options = options_of(tile_pixels=tile_pixels, tile_overlap_px=16)
    features = blob_model.extract(image, options=options)
    order = torch.randperm(len(features))
    described = blob_model.describe(image, features.keypoints[order].numpy(), options=options)
    assert torch.equal(described.keypoints, features.keypoints[order])
    assert torch.allclose(described.descriptors, features.descriptors[order], atol=1e-5)
    assert float((described.scores - features.scores[order]).abs().max()) < 0.2  # between pixels a little lower
    assert len(blob_model.describe(image, torch.zeros(0, 2), options=options)) == 0
    rim = torch.tensor([[-0.4, -0.4], [332.4, 249.4]])
    assert bool(torch.isfinite(blob_model.describe(image, rim, options=options).descriptors).all())
    assert len(blob_model.describe(image, np.array([]), options=options)) == 0
    with pytest.raises(ImageError, match="not finite"):
        blob_model.describe(image, torch.full((2, 2), float("nan")), options=options)
    for wrong in (np.zeros((4, 3)), np.zeros(2)):
        with pytest.raises(ImageError, match=r"have shape \(.*give \(x, y\) as \(count, 2\)"):
            blob_model.describe(image, wrong, options=options)


@pytest.mark.parametrize("scale", [0.5, 2.0, 1.5])
def test_rescaling_has_no_half_pixel_bias(blob_model: PoSFeat, scale: float) -> None:
    """A scene rendered larger or smaller, and the image resized by ourselves: both land on the true positions."""
    image, centres = blobs(240, 320)
    rendered, true = blobs(240, 320, scale=scale)
    options = ExtractionOptions(SelectionOptions(nms_size=5, threshold=1.6, border_px=0), precision="fp32")
    residual = offsets(blob_model.extract(rendered, options=options), true)
    assert float(residual.median(0).values.abs().max()) < 0.03
    resized = blob_model.extract(image, scales=(scale,), options=options)
    assert float(offsets(resized, centres).median(0).values.abs().max()) < 0.03
    assert resized.image_size == (320, 240)


@pytest.mark.parametrize("degrees", [90, 180, 270, 30, -77.5])
def test_rotations_come_back_to_the_image(blob_model: PoSFeat, degrees: float) -> None:
    image, centres = blobs(200, 320)
    turned = blob_model.extract(image, rotations=(degrees,), options=options_of())
    residual = offsets(turned, centres)
    assert float(residual.norm(dim=1).mean()) < 0.06
    assert float(residual.median(0).values.abs().max()) < 0.03
    if degrees % 90 == 0:
        upright = blob_model.extract(image, options=options_of())
        assert float((offsets(upright, centres) - residual).norm(dim=1).mean()) < 1e-3


def test_several_views_give_each_point_once(blob_model: PoSFeat) -> None:
    image, centres = blobs(200, 320)
    many = blob_model.extract(image, scales=(1, 0.75, 1.5), rotations=(0, 90, 45), options=options_of())
    assert len(many) == len(centres)
    offsets(many, centres)
    assert bool((many.scores[1:] <= many.scores[:-1]).all())
    best = blob_model.extract(image, 7, scales=(1, 0.75, 1.5), rotations=(0, 90, 45), options=options_of())
    assert torch.equal(best.keypoints, many.keypoints[:7])


def test_turning_the_image_turns_the_features(blob_model: PoSFeat) -> None:
    image, _ = blobs(200, 320)
    quarters = (0, 90, 180, 270)
    upright = blob_model.extract(image, rotations=quarters, options=options_of())
    turned = blob_model.extract(np.ascontiguousarray(np.rot90(image)), rotations=quarters, options=options_of())
    assert len(upright) == len(turned)
    expected = torch.stack([upright.keypoints[:, 1], 319 - upright.keypoints[:, 0]], dim=1)
    assert float((offsets(turned, expected)).norm(dim=1).max()) < 0.01


@pytest.mark.parametrize("views", [{}, {"rotations": (90, 20), "scales": (0.5, 1)}, {"options": "tiled"}])
def test_nothing_is_found_in_masked_areas(blob_model: PoSFeat, views: dict[str, Any], tmp_path: Path) -> None:
    image, centres = blobs(200, 320)
    mask = np.zeros((200, 320), np.uint8)
    mask[30:150, 100:250] = 255
    tiled = views == {"options": "tiled"}
    options = options_of(tile_pixels=20_000, tile_overlap_px=16) if tiled else options_of()
    views = {} if tiled else views
    write_image(tmp_path / "mask.png", mask)
    for given in (mask, mask > 0, np.stack([mask] * 3, axis=2), torch.from_numpy(mask), tmp_path / "mask.png"):
        found = blob_model.extract(image, mask=given, options=options, **views)
        x, y = found.keypoints.round().long().T
        assert bool((torch.from_numpy(mask)[y, x] > 0).all())
        inner = (centres > torch.tensor([103, 33])) & (centres < torch.tensor([246, 146]))
        offsets(found, centres[inner.all(1)])
    with pytest.raises(ImageError, match="320x199"):
        blob_model.extract(image, mask=mask[1:])


def test_every_way_to_give_an_image_is_the_same(blob_model: PoSFeat, tmp_path: Path) -> None:
    image, _ = blobs(120, 160)
    write_image(tmp_path / "a b ü.png", image)
    expected = blob_model.extract(image, options=options_of())
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for same in (tmp_path / "a b ü.png", str(tmp_path / "a b ü.png"), tensor, tensor[None], tensor / 255, image / 255):
        features = blob_model.extract(same, options=options_of())
        assert torch.equal(features.keypoints, expected.keypoints)
        assert torch.equal(features.descriptors, expected.descriptors)
    grey = blob_model.extract(image[..., 0], options=options_of())
    assert torch.equal(grey.keypoints, blob_model.extract(image[..., :1].repeat(3, 2), options=options_of()).keypoints)


def test_images_too_small_and_options_that_make_no_sense(blob_model: PoSFeat) -> None:
    for height, width in ((1, 1), (7, 300), (20000, 1)):
        with pytest.raises(ImageError, match=f"{width}x{height}"):
            blob_model.extract(np.zeros((height, width, 3), np.uint8))
    assert len(blob_model.extract(np.zeros((8, 8, 3), np.uint8), options=options_of())) == 0
    infinite = float("inf")
    for wrong in (
        {"scales": ()}, {"scales": (0,)}, {"scales": (float("nan"),)}, {"scales": ("1",)},
        {"rotations": ()}, {"rotations": (infinite,)},
    ):  # fmt: skip
        with pytest.raises(OptionsError):
            blob_model.extract(np.zeros((8, 8, 3), np.uint8), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="at scale 1e\\+06 the image has 8000000x8000000 pixels; take a smaller scale"):
        blob_model.extract(np.zeros((8, 8, 3), np.uint8), scales=[1e6])


@pytest.fixture(scope="module")
def small_model() -> PoSFeat:
    """The compact architecture, narrow, with weights and statistics that matter."""
    torch.manual_seed(0)
    description = CompactDescriptionOptions(widths=(8, 12, 16, 24), blocks=(1, 1, 1), dim=32)
    options = ModelOptions(
        compact_description=description,
        compact_detection=CompactDetectionOptions(feature_channels=8, image_channels=4),
    )
    model = build_model(options)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return model.eval()


def photo(height: int, width: int) -> Pixels:
    rng = np.random.default_rng(3)
    noise = torch.from_numpy(rng.random((1, 3, height, width)).astype(np.float32))
    smooth = sum(F.interpolate(F.avg_pool2d(noise, k, k), (height, width), mode="bilinear") * k for k in (2, 5, 13))
    smooth = (smooth - smooth.amin()) / (smooth.amax() - smooth.amin())  # type: ignore[union-attr]
    return (smooth[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()


def common(a: Features, b: Features, shift: tuple[int, int], margin: int, size: tuple[int, int]) -> tuple[float, float]:
    """Of b's keypoints away from its rim: the share found in a, shifted, within 0.02 px, and the mean error of these."""
    inner = ((b.keypoints > margin) & (b.keypoints < torch.tensor(size) - margin)).all(1)
    expected = (b.keypoints[inner] + torch.tensor(shift)).double()
    distance = torch.cdist(expected, a.keypoints.double()).amin(1)  # in float32 it is off by a tenth of a pixel
    same = distance < 0.5
    return float(same.float().mean()), float(distance[same].mean())


def test_real_networks_move_pad_and_tile_exactly(small_model: PoSFeat) -> None:
    image = photo(336, 416)
    options = ExtractionOptions(SelectionOptions(max_keypoints=100_000, nms_size=5), precision="fp32")
    whole = small_model.extract(image, options=options)
    part = small_model.extract(image[48:, 32:], options=options)
    share, error = common(whole, part, (32, 48), 112, (384, 288))
    assert share > 0.995
    assert error < 0.02
    padded = small_model.extract(np.pad(image, ((0, 70), (0, 45), (0, 0))), options=options)
    share, error = common(padded, whole, (0, 0), 112, (416, 336))
    assert share > 0.995
    assert error < 0.02
    tiles = ExtractionOptions(options.selection, precision="fp32", tile_pixels=340**2, tile_overlap_px=112)
    share, error = common(whole, small_model.extract(image, options=tiles), (0, 0), 0, (416, 336))
    assert share > 0.995
    assert error < 0.02


def test_fast_copies_follow_the_weights(small_model: PoSFeat) -> None:
    image, options = photo(96, 128), ExtractionOptions(precision="fp32")
    places = torch.rand(50, 2) * 90
    before = small_model.describe(image, places, options=options)
    weight = small_model.description.head.weight  # type: ignore[union-attr]
    with torch.no_grad():
        weight[:, :8] += 1
    changed = small_model.describe(image, places, options=options)
    assert not torch.allclose(before.descriptors, changed.descriptors, atol=1e-3)
    with torch.no_grad():
        weight[:, :8] -= 1
    again = small_model.describe(image, places, options=options)
    assert torch.allclose(before.descriptors, again.descriptors, atol=1e-5)


def test_extraction_in_training_mode_uses_and_leaves_the_statistics(small_model: PoSFeat) -> None:
    image, options = photo(96, 128), ExtractionOptions(precision="fp32")
    before = small_model.extract(image, options=options)
    state = {key: value.clone() for key, value in small_model.state_dict().items()}
    small_model.train()
    during = small_model.extract(image, options=options)
    small_model.eval()
    assert torch.equal(before.keypoints, during.keypoints)
    assert all(torch.equal(value, state[key]) for key, value in small_model.state_dict().items())
    assert all(p.requires_grad for p in small_model.parameters())
