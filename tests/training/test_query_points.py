"""Where the description stage asks its questions."""

from __future__ import annotations

import torch

from posfeat.data.images import denormalise
from posfeat.data.sift_queries import sift_positions
from posfeat.losses.epipolar_targets import epipolar_targets
from posfeat.training import description_stage
from posfeat.training.description_stage import description_loss
from posfeat.training.distributed import Workers
from posfeat.training.run import run_stage
from tests.training.test_stages import QUICK


def test_queries_are_asked_at_sift_keypoints_of_the_very_images(tiny, tmp_path, monkeypatch):
    seen = []

    def loss(maps, batch, *rest):
        seen.append([denormalise(torch.cat([batch.image0, batch.image1]))])
        return description_loss(maps, batch, *rest)

    def targets(xy, *cameras):
        seen[-1].append(xy)
        return epipolar_targets(xy, *cameras)

    monkeypatch.setattr(description_stage, "description_loss", loss)
    monkeypatch.setattr(description_stage, "epipolar_targets", targets)
    run_stage("description", tiny(*QUICK, "description.query_points=sift"), tmp_path / "run", Workers())
    assert len(seen) == 2
    for images, xy in seen:
        assert xy.shape == (len(images), (64 // 8) * (96 // 8), 2)
        for image, points in zip(images, xy, strict=True):
            assert set(map(tuple, points.tolist())) <= set(map(tuple, sift_positions(image).tolist()))
