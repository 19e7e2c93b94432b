"""An untrained model and two photos that overlap, for all programs that extract and match by themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model


@pytest.fixture(scope="session")
def model() -> PoSFeat:
    """Networks that nothing has trained; the same each time."""
    torch.manual_seed(0)
    return build_model(ModelOptions()).eval()


@pytest.fixture(scope="session")
def two_photos() -> tuple[np.ndarray, np.ndarray]:
    """RGB pixels; image 1 is image 0 moved by (32, 16) pixels."""
    texture = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    large = np.kron(texture, np.ones((4, 4, 1), dtype=np.uint8))
    return np.ascontiguousarray(large[16:144, 32:192]), np.ascontiguousarray(large[:128, :160])


@pytest.fixture(scope="session")
def untrained_checkpoint(model: PoSFeat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same networks as a file."""
    path = tmp_path_factory.mktemp("weights") / "untrained.safetensors"
    save_checkpoint(path, model, ModelCard(name="untrained"))
    return path
