"""Features in one call."""

from __future__ import annotations

import numpy as np
import torch

import posfeat


def test_one_call_gives_what_the_shipped_model_gives() -> None:
    image = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    options = posfeat.ExtractionOptions(posfeat.SelectionOptions(nms_size=5), precision="fp32")
    found = posfeat.extract(image, 50, options=options)
    expected = posfeat.load().extract(image, 50, options=options)
    assert 0 < len(found) <= 50
    assert torch.equal(found.keypoints, expected.keypoints)
    assert torch.equal(found.descriptors, expected.descriptors)
    mask = np.zeros((64, 96), np.uint8)
    assert len(posfeat.extract(image, mask=mask)) == 0
