"""A few small photos to train on, made by the tests."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from posfeat.training.run import RunOptions, read_run_options

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """24 photos of coloured shapes and texture at several scales."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(24):
        image = np.zeros((192, 256, 3), np.float32)
        for cell in (64, 32, 16, 8):
            noise = rng.normal(size=(192 // cell + 1, 256 // cell + 1, 3)).astype(np.float32)
            image += cv2.resize(noise, (256, 192), interpolation=cv2.INTER_CUBIC) * cell**0.5
        image = ((image - image.min()) / np.ptp(image) * 255).astype(np.uint8)
        for _ in range(40):
            corners = rng.integers(0, 256, (int(rng.integers(3, 6)), 2)) % [256, 192]
            cv2.fillPoly(image, [corners // 3 + rng.integers(0, 170, 2)], rng.integers(0, 256, 3).tolist())
        cv2.imwrite(str(folder / f"photo_{number:02d}.png"), image)
    return folder


@pytest.fixture
def tiny(photos):
    """Options of the tiny configuration, with more set by key=value."""

    def read(*overrides: str) -> RunOptions:
        return read_run_options(CONFIGS / "tiny.yaml", [f"data.photos=[{photos}]", *overrides])

    return read
