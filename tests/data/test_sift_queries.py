from __future__ import annotations

import cv2
import numpy as np
import torch

from posfeat.data.images import normalise
from posfeat.data.sift_queries import sift_positions, sift_query_points


def blobs() -> np.ndarray:
    """Eight dark dots in the left half of a bright picture."""
    image = np.full((96, 128, 3), 220, np.uint8)
    for row in (15, 37, 59, 81):
        for column in (15, 40):
            cv2.circle(image, (column, row), 5, (30, 30, 30), cv2.FILLED, cv2.LINE_AA)
    return image


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(count)]


def test_queries_are_keypoints_and_lie_where_there_is_something() -> None:
    image = blobs()
    known = sift_positions(image)
    batch = normalise(np.stack([image, np.full_like(image, 90)]))
    drawn = sift_query_points(batch, 48, generators(2))
    assert drawn.shape == (2, 48, 2)
    assert set(map(tuple, drawn[0].tolist())) <= set(map(tuple, known.tolist()))
    assert (drawn[0, :, 0] < 64).all(), "the empty half is never asked about"
    assert (drawn[1] == torch.tensor([63.5, 47.5])).all()


def test_the_draw_follows_from_the_generators() -> None:
    batch = normalise(blobs()[None])
    few = [sift_query_points(batch, 4, generators(1)) for _ in range(2)]
    assert torch.equal(few[0], few[1])
    assert len(torch.unique(few[0][0], dim=0)) == 4, "no keypoint twice while there are others"
    other = sift_query_points(batch, 4, [torch.Generator().manual_seed(9)])
    assert not torch.equal(few[0], other)
