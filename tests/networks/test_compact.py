from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from posfeat.networks.checkpoint import ModelCard, save_checkpoint
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
