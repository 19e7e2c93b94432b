"""The test run really checks the shapes that stand in signatures."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from posfeat.geometry import epipolar, homography


def test_every_signature_could_be_checked(shape_check_failures: list[str]) -> None:
    assert shape_check_failures == []


def test_right_shapes_pass() -> None:
    assert homography.warp_points(torch.eye(3), torch.zeros(5, 2)).shape == (5, 2)


def test_wrong_shape_is_caught() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        homography.warp_points(torch.eye(3), torch.zeros(5, 3))


def test_sizes_that_must_agree_are_caught() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        homography.warp_points(torch.eye(3).expand(2, 3, 3), torch.zeros(4, 5, 2))


def test_names_imported_by_siblings_are_checked_too() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        epipolar.essential_from_pose(torch.eye(3))
