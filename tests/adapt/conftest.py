"""Sources for adaptation, and a tiny model with weights that are quick to tune."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from posfeat.adapt.options import AdaptOptions
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.posfeat import build_model
from posfeat.options import apply_overrides, options_from_mapping
from posfeat.training.run import read_run_options
from tests.adapt import corridor

CONFIGS = Path(__file__).parents[2] / "configs"
QUICK = (
    "minutes=30",
    "count_registered=false",
    "check.max_pairs_per_scene=200",
    "check.max_keypoints=400",
    "split.least_pairs=4",
    "tune.height=96",
    "tune.width=128",
    "tune.batch_size=4",
    "tune.steps=6",
    "tune.validate_every=2",
    "tune.validation_pairs=8",
    "measure.keypoints=96",
    "measure.pairs=6",
    "measure.rendered_pairs=4",
)


@pytest.fixture(scope="session")
def walk(tmp_path_factory):
    """Forty photos along a wall, in a folder with cameras.txt; tests copy what they change."""
    folder = tmp_path_factory.mktemp("adapt") / "walk"
    corridor.photograph(folder, corridor.walk(40))
    return folder


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory):
    """A checkpoint of the tiny networks with random weights."""
    torch.manual_seed(0)
    model = build_model(read_run_options(CONFIGS / "tiny.yaml", []).model)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_checkpoint(path, model, ModelCard(name="tiny"))
    return path


@pytest.fixture(scope="session")
def quick():
    """Options of an adaptation of seconds, with more set by key=value."""

    def options(*overrides: str) -> AdaptOptions:
        return options_from_mapping(AdaptOptions, apply_overrides({}, [*QUICK, *overrides]))

    return options
