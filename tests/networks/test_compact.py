from __future__ import annotations

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.compact import CompactDetectionOptions, GaussianSmoothing
from posfeat.networks.posfeat import ModelOptions, build_model


def test_within_its_budget_of_work_and_size(tmp_path):
    model = build_model(ModelOptions()).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.dense(torch.zeros(1, 3, 480, 640))
    assert counter.get_total_flops() < 16e9
    save_checkpoint(tmp_path / "model.safetensors", model, ModelCard(trained=True), half=True)
    assert (tmp_path / "model.safetensors").stat().st_size < 10e6


def test_maps_have_the_promised_shapes_and_scores_are_positive():
    model = build_model(ModelOptions()).eval()
    with torch.no_grad():
        dense = model.dense(torch.randn(2, 3, 64, 96))
    assert dense.descriptors.shape == (2, 128, 16, 24)
    assert dense.scores.shape == (2, 1, 64, 96)
    assert dense.scores.min() >= 0


def test_cells_are_centred_on_their_pixels():
    """Shrinking by even kernels and growing bilinearly move nothing: mirrored weights and a mirrored image mirror the map."""
    model = build_model(ModelOptions()).eval().double()
    image = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        upright = model.description(image)
        for module in model.description.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.weight.copy_(module.weight.flip(-1).flip(-2))
        turned = model.description(image.flip(-1).flip(-2))
    torch.testing.assert_close(turned.descriptors.flip(-1).flip(-2), upright.descriptors)
    torch.testing.assert_close(turned.stem.flip(-1).flip(-2), upright.stem)


def test_smoothed_scores_are_those_of_a_gaussian_and_a_flat_map_stays():
    smooth = GaussianSmoothing(0.8)
    flat = torch.full((1, 1, 9, 11), 0.3)
    torch.testing.assert_close(smooth(flat), flat)
    spike = torch.zeros(1, 1, 21, 21)
    spike[0, 0, 10, 10] = 1
    smoothed = smooth(spike)[0, 0]
    assert float(smoothed.sum()) == pytest.approx(1, abs=1e-6)
    assert float(smoothed[10, 11] / smoothed[10, 10]) == pytest.approx(math.exp(-0.5 / 0.8**2), rel=1e-5)
    torch.testing.assert_close(smoothed, smoothed.T)


def test_smoothing_leaves_the_weights_as_they_are():
    plain = build_model(ModelOptions())
    smoothed = build_model(ModelOptions(compact_detection=CompactDetectionOptions(smoothing_px=0.5)))
    smoothed.load_state_dict(plain.state_dict())
    assert isinstance(smoothed.detection.smooth, GaussianSmoothing)
