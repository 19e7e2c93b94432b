"""Rewritten networks: the same numbers in fewer steps, and what does not fit a rewriting is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from posfeat.networks import fusion
from posfeat.networks.enlargement import double, enlarge
from posfeat.networks.fusion import FusedConv, fuse
from posfeat.networks.posfeat import ModelOptions, build_model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN's convolutions")


class Network(nn.Module):
    """Some layers and a function of them."""

    def __init__(self, run: Callable[[Network, Tensor], Tensor], channels: int = 6) -> None:
        super().__init__()
        self.run = run
        self.first, self.second = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.mix = nn.Conv2d(2 * channels, 5, 1)
        self.norm, self.activation = nn.Identity(), nn.ReLU()
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def layers(network: nn.Module) -> list[str]:
    """What a traced network consists of: the kinds of its layers, and the functions that it calls."""
    assert isinstance(network, fx.GraphModule)
    steps = [node for node in network.graph.nodes if node.op.startswith("call")]
    return [
        type(network.get_submodule(str(node.target))).__name__ if node.op == "call_module" else
        node.target if isinstance(node.target, str) else node.target.__name__
        for node in steps
    ]  # fmt: skip


def assert_same(network: nn.Module, steps: list[str], size: tuple[int, int] = (21, 34)) -> None:
    fused = fuse(network, torch.randn(1, 3, 16, 16))
    assert layers(fused) == steps
    image = torch.randn(2, 3, *size).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert torch.allclose(fused(image), network(image), atol=1e-5)


def test_activations_and_additions_join_the_convolution() -> None:
    assert_same(Network(lambda n, x: F.relu(n.norm(n.first(x)))), ["FusedConv"])
    assert_same(Network(lambda n, x: n.activation(n.first(x))), ["FusedConv"])
    residual = Network(lambda n, x: (lambda y: F.relu(y + n.second(F.relu(n.second(y)))))(n.first(x)))
    assert_same(residual, ["FusedConv", "FusedConv", "FusedConv"])
    assert_same(Network(lambda n, x: F.relu(n.first(x) + n.first(2 * x))), ["FusedConv", "mul", "FusedConv"])
    assert_same(Network(lambda n, x: (lambda y: n.second(y) + y)(n.first(x))), ["FusedConv", "FusedConv"])


def test_what_is_used_twice_or_is_broadcast_stays() -> None:
    twice = Network(lambda n, x: (lambda y: F.relu(y) * y)(n.first(x)))
    assert_same(twice, ["FusedConv", "relu", "mul"])
    assert_same(
        Network(lambda n, x: F.relu(n.first(x) + x.mean(1, keepdim=True))), ["FusedConv", "mean", "add", "relu"]
    )
    assert_same(Network(lambda n, x: (lambda y: y + y)(n.first(x))), ["FusedConv", "add"])


def test_concatenations_become_sums() -> None:
    plain = Network(lambda n, x: F.relu(n.mix(torch.cat([n.first(x), n.second(n.first(x))], dim=1))))
    assert_same(plain, ["FusedConv", "FusedConv", "FusedConv", "FusedConv", "FusedConv"])
    unit = Network(lambda n, x: (lambda y: n.mix(torch.cat([F.normalize(y, dim=1) * 6**0.5, y], dim=1)))(n.first(x)))
    assert_same(unit, ["FusedConv", "FusedConv", "over_length", "mul", "FusedConv"])
    wide = Network(lambda n, x: n.second(torch.cat([x, x], dim=1)))  # a 3x3 convolution
    assert_same(wide, ["cat", "FusedConv"])


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("channels", [1, 8, 16, 17])
def test_enlargement(factor: int, channels: int) -> None:
    small = torch.randn(2, channels, 9, 13).contiguous(memory_format=torch.channels_last)
    other = torch.randn(2, channels, 9 * factor, 13 * factor)
    expected = F.interpolate(small, scale_factor=factor, mode="bilinear", align_corners=False)
    assert torch.allclose(enlarge(small, None, None, factor), expected, atol=1e-5)
    assert torch.allclose(enlarge(small, other, (9 * factor, 13 * factor), None), expected + other, atol=1e-5)


@pytest.mark.parametrize("size", [(9, 13), (1, 1), (2, 5)])
def test_double(size: tuple[int, int]) -> None:
    for small in (torch.randn(2, 7, *size), torch.randn(2, 7, *size).contiguous(memory_format=torch.channels_last)):
        expected = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
        assert torch.allclose(double(small), expected, atol=1e-6)


def test_enlargement_by_other_factors() -> None:
    small = torch.randn(1, 4, 9, 13)
    for size in ((9, 13), (20, 26), (19, 27), (5, 39)):
        expected = F.interpolate(small, size=size, mode="bilinear", align_corners=False)
        assert torch.allclose(enlarge(small, None, size, None), expected, atol=1e-5)


def test_enlargements_in_a_network() -> None:
    def up(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    assert_same(Network(lambda n, x: up(n.first(x))), ["FusedConv", "enlarge"])
    together = Network(lambda n, x: up(n.first(x)) + n.first(up(x)))
    assert_same(together, ["FusedConv", "enlarge", "FusedConv", "enlarge"])
    many = Network(lambda n, x: F.relu(up(n.first(x)) + n.first(up(x))), channels=40)
    assert_same(many, ["FusedConv", "interpolate", "enlarge", "FusedConv"])


@pytest.mark.parametrize("size", [(21, 34), (21, 35), (8, 2)])
def test_narrow_convolutions_take_pixels_in_pairs(size: tuple[int, int]) -> None:
    assert_same(Network(lambda n, x: n.second(F.relu(n.first(x)))), ["FusedConv", "FusedConv"], size)


def test_means_after_a_1x1_convolution_join_it() -> None:
    mean = Network(lambda n, x: F.avg_pool2d(n.mix(x.repeat(1, 4, 1, 1)), 2))
    assert_same(mean, ["repeat", "FusedConv"], (22, 35))
    assert_same(Network(lambda n, x: F.avg_pool2d(n.first(x), 2)), ["FusedConv", "avg_pool2d"])


def test_a_layer_fits_the_size_of_each_image() -> None:
    fused = fuse(network := Network(lambda n, x: F.relu(n.first(x)), channels=48), torch.randn(1, 3, 16, 16))
    for size in ((1, 3, 120, 160), (2, 3, 7, 9), (1, 3, 120, 160)):
        image = torch.randn(size)
        with torch.no_grad():
            assert torch.allclose(fused(image), network(image), atol=1e-5)


def test_networks_that_cannot_be_rewritten_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    branching = Network(lambda n, x: n.first(x) if float(x.sum()) > 0 else x)
    assert fuse(branching, torch.randn(1, 3, 8, 8)) is branching
    network = Network(lambda n, x: F.relu(n.first(x)))
    monkeypatch.setattr(FusedConv, "forward", lambda self, x, other=None: F.conv2d(x, self.weight, padding=1))
    assert fuse(network, torch.randn(1, 3, 8, 8)) is network
    monkeypatch.setattr(fusion, "CONVOLUTION", None)
    assert fuse(network, torch.randn(1, 3, 8, 8)) is network


def test_the_compact_model_is_rewritten() -> None:
    networks = build_model(ModelOptions()).eval()._fast_networks("fp32").networks
    for part in ("description", "detection"):
        steps = layers(networks.get_submodule(part))
        assert steps.count("FusedConv") > 4
        assert steps.count("relu") < 2
        assert "cat" not in steps
    bf16 = build_model(ModelOptions()).eval()._fast_networks("bf16").networks
    if isinstance(bf16.get_submodule("description"), fx.GraphModule):  # as elsewhere convolutions of such numbers fail
        assert layers(bf16.get_submodule("description")).count("double") == 2
        assert layers(bf16.get_submodule("detection"))[-1] == "fast_weighted_scores"
