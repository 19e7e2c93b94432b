"""Keypoint selection against its definition, pixel by pixel, and against surfaces whose top is known."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posfeat.networks.keypoint_selection import SelectionOptions, SubPixel, best_first, select_keypoints, window_maximum
from posfeat.types import OptionsError


def plain(nms_size: int = 3, **others: object) -> SelectionOptions:
    return SelectionOptions(**{"nms_size": nms_size, "border_px": 0, "threshold": -1.0, "subpixel": "none", **others})  # type: ignore[arg-type]


def positions(scores: Tensor, options: SelectionOptions, mask: Tensor | None = None) -> list[tuple[float, float]]:
    return [(x, y) for x, y in select_keypoints(scores[None, None], options, mask)[0].tolist()]


def positions_by_definition(scores: Tensor, nms_size: int) -> set[tuple[float, float]]:
    """Pixels that nothing in their window beats, without those that have an equal such pixel before them."""
    height, width = scores.shape
    radius, values = nms_size // 2, scores.tolist()

    def window(x: int, y: int) -> list[tuple[int, int]]:
        rows, columns = range(y - radius, y + radius + 1), range(x - radius, x + radius + 1)
        return [(j, i) for j, i in itertools.product(rows, columns) if 0 <= j < height and 0 <= i < width]

    pixels = list(itertools.product(range(height), range(width)))
    best = {(y, x) for y, x in pixels if all(values[j][i] <= values[y][x] for j, i in window(x, y))}
    return {(x, y) for y, x in best if not any(pixel in best and pixel < (y, x) for pixel in window(x, y))}


@settings(max_examples=40)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([1, 3, 5, 7, 9]),
    st.sampled_from([2, 4, 1000]),
    st.integers(0, 10**6),
)
def test_equals_the_definition(height: int, width: int, nms_size: int, levels: int, seed: int) -> None:
    scores = torch.randint(levels, (height, width), generator=torch.Generator().manual_seed(seed)).float()
    found = positions(scores, plain(nms_size))
    assert len(set(found)) == len(found)
    assert set(found) == positions_by_definition(scores, nms_size)


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9, 11, 15, 31])
def test_window_maximum_equals_pooling(size: int) -> None:
    scores = torch.randn(40, 53)
    pooled = torch.nn.functional.max_pool2d(scores[None], size, 1, size // 2)[0]
    assert torch.equal(window_maximum(scores, size), pooled)


@pytest.mark.parametrize("nms_size", [3, 5, 9])
@pytest.mark.parametrize("subpixel", ["none", "mean", "quadratic"])
def test_moves_with_the_score_map_to_the_bit(nms_size: int, subpixel: SubPixel) -> None:
    scores = (torch.rand(60, 70) * 30).round() / 32 + 1 / 32  # many ties
    options = plain(nms_size, subpixel=subpixel, threshold=0.0)
    keypoints, values = select_keypoints(scores[None, None], options)
    inner = ((keypoints > 1) & (keypoints < torch.tensor([68, 58]))).all(1)  # at the rim the frame changes the position
    for left, top in ((1, 0), (0, 1), (37, 5), (64, 128)):
        framed = torch.zeros(200, 300)
        framed[top : top + 60, left : left + 70] = scores
        keypoints1, values1 = select_keypoints(framed[None, None], options)
        assert torch.equal(values1, values)
        back = keypoints1 - torch.tensor([left, top])
        if subpixel == "none":
            assert torch.equal(back, keypoints)
        assert torch.allclose(back[inner], keypoints[inner], atol=1e-5, rtol=0)  # what float32 can say of 300


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 5), (2, 2), (40, 3), (40, 50)])
def test_a_plateau_gives_one_keypoint(height: int, width: int) -> None:
    scores = torch.rand(60, 60) * 0.5
    scores[10 : 10 + height, 5 : 5 + width] = 1.0
    assert positions(scores, plain(threshold=0.9)) == [(5.0, 10.0)]


def test_best_first_cut_threshold_border_and_mask() -> None:
    scores = torch.rand(100, 120)
    keypoints, values = select_keypoints(scores[None, None], plain())
    assert bool((values[1:] <= values[:-1]).all())
    best = select_keypoints(scores[None, None], plain(max_keypoints=37))
    assert torch.equal(best[0], keypoints[:37])
    assert torch.equal(best[1], values[:37])
    limit = float(values[20])
    assert len(positions(scores, plain(threshold=limit))) == 20  # above, not at
    inner = positions(scores, plain(border_px=5))
    assert inner == [(x, y) for x, y in keypoints.tolist() if 5 <= x < 115 and 5 <= y < 95]
    mask = torch.rand(100, 120) > 0.5
    assert positions(scores, plain(), mask) == [(x, y) for x, y in keypoints.tolist() if mask[int(y), int(x)]]
    assert positions(scores, plain(), torch.zeros(100, 120, dtype=torch.bool)) == []
    assert positions(scores, plain(border_px=60)) == []


def test_equal_scores_stay_in_reading_order() -> None:
    scores = torch.zeros(9, 30000)
    scores[4, 10::10] = 1
    found = positions(scores, plain(max_keypoints=100, threshold=0.5))
    assert found == [(10.0 * i, 4.0) for i in range(1, 101)]


def test_best_first_is_a_stable_sort() -> None:
    extremes = torch.tensor([float("inf"), -float("inf"), 1e-42, -1e-42, 3e38])
    for scores in (torch.randn(500), torch.randint(1, 3, (500,)).float(), torch.tensor([]), extremes):
        assert torch.equal(best_first(scores), torch.sort(scores, descending=True, stable=True).indices)


@given(st.floats(-0.45, 0.45), st.floats(-0.45, 0.45), st.floats(0.02, 0.2), st.floats(0.02, 0.2), st.floats(-0.6, 0.6))
def test_the_top_of_a_quadratic_is_found_exactly(x: float, y: float, a: float, b: float, mixed: float) -> None:
    rows, columns = torch.meshgrid(torch.arange(21.0), torch.arange(31.0), indexing="ij")
    dx, dy = columns - 15 - x, rows - 10 - y
    scores = 1 - a * dx**2 - b * dy**2 + mixed * 2 * (a * b) ** 0.5 * dx * dy
    found = select_keypoints(scores[None, None], plain(border_px=5, subpixel="quadratic"))[0]
    top = found[0] - torch.tensor([15.0, 10.0])
    if max(abs(x), abs(y)) < 0.3:  # else, on a slanted ridge, the highest pixel may be another than the nearest
        assert torch.allclose(top, torch.tensor([x, y]), atol=1e-3)


@pytest.mark.parametrize(("subpixel", "limit"), [("quadratic", 0.03), ("mean", 0.35)])
def test_blobs_are_found_without_bias(subpixel: SubPixel, limit: float) -> None:
    centres = (
        torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), -1).reshape(-1, 2) * 20 + 20
    )
    centres = centres + torch.rand(64, 2) - 0.5
    rows, columns = torch.meshgrid(torch.arange(180.0), torch.arange(180.0), indexing="ij")
    distance = (columns[..., None] - centres[:, 0]) ** 2 + (rows[..., None] - centres[:, 1]) ** 2
    scores = torch.exp(-distance / (2 * 1.5**2)).sum(-1)
    found = select_keypoints(scores[None, None], plain(threshold=0.3, subpixel=subpixel))[0]
    assert len(found) == 64
    residual = found - centres[torch.cdist(found, centres).argmin(1)]
    assert float(residual.norm(dim=1).mean()) < limit
    assert float(residual.median(0).values.abs().max()) < 0.05


def test_the_mean_is_the_papers() -> None:
    scores = torch.rand(3, 3)
    scores[1, 1] = 2
    grid = torch.stack(torch.meshgrid(torch.arange(3.0), torch.arange(3.0), indexing="xy"), -1)
    expected = (grid * scores[..., None]).sum((0, 1)) / scores.sum()
    found = select_keypoints(scores[None, None], plain(border_px=1, subpixel="mean"))[0]
    assert torch.allclose(found[0], expected)


def test_an_even_window_is_refused() -> None:
    with pytest.raises(OptionsError, match="odd"):
        SelectionOptions(nms_size=4)
