from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benches.line_to_window import direct_search, problem
from posfeat.geometry.pixels import inside_image
from posfeat.geometry.pose import invert_pose, pose_from_rotation_translation, rotation_from_axis_angle
from posfeat.losses import similarity_pass
from posfeat.losses.epipolar_loss import certainty_weights, epipolar_loss
from posfeat.losses.epipolar_targets import EpipolarTargets, epipolar_targets
from posfeat.losses.line_contrast import line_contrast_loss
from posfeat.losses.line_to_window import SearchOptions, SearchResult, search_line_to_window
from posfeat.losses.query_points import grid_query_points
from posfeat.losses.similarity_pass import normalised_rows
from tests.losses.perfect_features import perfect_pair

EXACT = SearchOptions(line_points=200, window=0.3, noise="symmetric")


def targets_of(batch, xy, size):
    return epipolar_targets(xy, batch.intrinsics0, batch.intrinsics1, batch.cam1_from_cam0, batch.has_baseline, *size)


def find_true_matches(seed, height, width, options):
    """Errors in pixels of the expected positions where the peak is not cut by a map's rim, and the loss there."""
    pair = perfect_pair(seed, height, width)
    generator = torch.Generator().manual_seed(seed)
    xy = grid_query_points(height, width, 16, generator)[None]
    targets = targets_of(pair.batch, xy, (height, width))
    uniform = torch.rand(xy.shape, generator=generator)
    found = search_line_to_window(pair.map0, pair.map1, xy, targets, options, uniform=uniform)
    truth = pair.truth(xy)
    shown = inside_image(truth.nan_to_num(-99), height, width, margin=20) & inside_image(xy, height, width, margin=12)
    clear = found.valid & shown
    assert clear.float().mean() > 0.15
    loss, counted = epipolar_loss(found._replace(valid=clear), targets, min(height, width))
    assert torch.equal(counted, clear)
    return (found.expected - truth).norm(dim=-1)[clear], loss.item()


@pytest.mark.parametrize("seed", range(6))
def test_perfect_features_find_the_true_match(seed):
    error, loss = find_true_matches(seed, 240, 320, EXACT)
    assert error.max() < 0.1
    assert loss < 0.05


def test_the_papers_settings_find_it_too():
    error, loss = find_true_matches(0, 480, 640, SearchOptions())
    assert error.max() < 0.1
    assert loss < 0.05


def test_equals_the_direct_way():
    map0, map1, xy, targets, uniform = problem(2, 96, 128, 16)
    results = []
    for search in (direct_search, search_line_to_window):
        inputs = [m.detach().clone().requires_grad_() for m in (map0, map1)]
        found = search(*inputs, xy, targets, SearchOptions(line_points=30), uniform=uniform)
        loss = epipolar_loss(found, targets, 96)[0].sum()
        loss.backward()
        results.append([found.expected, found.sigma, found.valid.float(), loss, *(m.grad for m in inputs)])
    for direct, ours in zip(*results, strict=True):
        torch.testing.assert_close(direct, ours, atol=2e-3, rtol=1e-4)


def test_gradients_in_float64():
    _, _, xy, targets, uniform = problem(1, 32, 32, 16)
    generator = torch.Generator().manual_seed(3)
    maps = [torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    xy, uniform = xy.double(), uniform.double()
    targets = replace(targets, **{name: vars(targets)[name].double() for name in ("lines", "start", "end")})
    options = SearchOptions(line_points=5, window=0.3, temperature=5.0)

    def loss(map0, map1):
        found = search_line_to_window(map0, map1, xy, targets, options, 4, 6.0, uniform)
        distance = targets.distance(found.expected) * found.valid
        return distance, found.sigma * found.valid, line_contrast_loss(found.log_mass, targets.valid)

    def search(map0, map1):  # takes the sparse way back, as there is no contrast
        return search_line_to_window(map0, map1, xy, targets, options, uniform=uniform).expected

    assert torch.autograd.gradcheck(loss, maps, fast_mode=True)
    assert torch.autograd.gradcheck(search, maps, fast_mode=True)
    assert torch.autograd.gradcheck(normalised_rows, maps[0], fast_mode=True)


def test_maps_of_16_bits_get_nearly_the_gradient_of_exact_ones(monkeypatch):
    monkeypatch.setattr(similarity_pass, "CHUNK_ELEMENTS", 3000)  # so that chunks hold several queries, but not all
    map0, map1, xy, targets, uniform = problem(2, 96, 128, 16)
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [m.bfloat16().to(dtype).requires_grad_() for m in (map0, map1)]
        found = search_line_to_window(*inputs, xy, targets, SearchOptions(), 4, 6.0, uniform)
        found.log_mass.sum().backward()
        gradients.append([m.grad.float() for m in inputs])
    for exact, rounded in zip(*gradients, strict=True):
        assert (rounded - exact).norm() < 0.01 * exact.norm()


def test_gradient_of_the_epipolar_loss_in_float64():
    _, _, xy, targets, _ = problem(1, 64, 96, 16)
    targets = replace(targets, **{name: vars(targets)[name].double() for name in ("lines", "start", "end")})
    generator = torch.Generator().manual_seed(5)
    near = (targets.start + targets.end) / 2 + torch.rand(xy.shape, generator=generator, dtype=torch.float64)
    sigma = 0.01 + torch.rand(xy.shape[:2], generator=generator, dtype=torch.float64)

    def loss(expected):
        return epipolar_loss(SearchResult(expected, sigma, targets.valid, expected, sigma), targets, 64)[0]

    assert loss(near).min() > 0
    assert torch.autograd.gradcheck(loss, near.requires_grad_())
    points = replace(targets, is_point=torch.ones_like(targets.is_point))  # no baseline: distance to a point
    around = (points.start + 1 + torch.rand(xy.shape, generator=generator, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda expected: points.distance(expected), around)


def test_uncertainty_adds_the_deviations_of_both_axes():
    """Two equally likely places 24 px apart in x and 16 px in y: deviations of 12 of 64 and 8 of 56 pixels."""
    map0, map1 = torch.zeros(1, 2, 28, 32), torch.zeros(1, 2, 28, 32)
    map0[:, 0], map1[:, 1] = 1, 1
    for column, row in ((13, 10), (19, 14)):
        map1[0, :, row, column] = torch.tensor([1.0, 0.0])
    xy = torch.tensor([[[60.0, 40.0]]])
    centre = torch.tensor([[[4 * 16 + 1.5, 4 * 12 + 1.5]]])
    targets = EpipolarTargets(
        torch.zeros(1, 1, 3), centre, centre, torch.tensor([True]), torch.ones(1, 1, dtype=torch.bool)
    )
    found = search_line_to_window(map0, map1, xy, targets, SearchOptions(window=0.4, noise="none"))
    torch.testing.assert_close(found.expected, centre)
    torch.testing.assert_close(found.sigma, torch.tensor([[12 / 64 + 8 / 56]]))


def test_swapping_the_views_swaps_the_result():
    pair = perfect_pair(1)
    batch, xy = pair.batch, grid_query_points(240, 320, 16, torch.Generator().manual_seed(0))[None]
    back = epipolar_targets(
        xy, batch.intrinsics1, batch.intrinsics0, invert_pose(batch.cam1_from_cam0), batch.has_baseline, 240, 320
    )
    found = search_line_to_window(pair.map1, pair.map0, xy, back, EXACT)
    swapped = type(batch)(
        image0=batch.image1,
        image1=batch.image0,
        intrinsics0=batch.intrinsics1,
        intrinsics1=batch.intrinsics0,
        cam1_from_cam0=invert_pose(batch.cam1_from_cam0),
        has_baseline=batch.has_baseline,
    )
    again = search_line_to_window(pair.map1, pair.map0, xy, targets_of(swapped, xy, (240, 320)), EXACT)
    torch.testing.assert_close(found.expected, again.expected)
    assert epipolar_loss(found, back, 240)[0].item() == epipolar_loss(again, back, 240)[0].item()


DEGENERATE_POSES = {
    "epipole in the image": ([0.0, 0, 0], [0.0, 0, 1], True),
    "line outside": ([0.0, 3.0, 0], [1.0, 0, 0], True),
    "no motion at all": ([0.0, 0, 0], [0.0, 0, 0], True),
    "pure rotation, marked": ([0.1, 0.2, 0.3], [0.0, 0, 0], False),
    "pure rotation, unmarked": ([0.1, 0.2, 0.3], [0.0, 0, 0], True),
    "behind the camera": ([0.0, 3.1, 0], [0.0, 0, 0], False),
}


@pytest.mark.parametrize("case", DEGENERATE_POSES)
def test_degenerate_lines_neither_crash_nor_leak_nan(case):
    turn, move, has_baseline = DEGENERATE_POSES[case]
    pose = pose_from_rotation_translation(rotation_from_axis_angle(torch.tensor([turn])), torch.tensor([move]))
    intrinsics = torch.tensor([[[100.0, 0, 63.5], [0, 100, 47.5], [0, 0, 1]]])
    xy = torch.cat([grid_query_points(96, 128, 16), torch.tensor([[63.5, 47.5]])])[None]  # the epipole itself, too
    targets = epipolar_targets(xy, intrinsics, intrinsics, pose, torch.tensor([has_baseline]), 96, 128)
    maps = [torch.randn(1, 16, 24, 32, requires_grad=True) for _ in range(2)]
    found = search_line_to_window(*maps, xy, targets, SearchOptions(), band_px=4.0, uniform=torch.rand(xy.shape))
    loss = epipolar_loss(found, targets, 96)[0].sum() + line_contrast_loss(found.log_mass, targets.valid).sum()
    loss.backward()
    assert loss.isfinite()
    assert all(bool(m.grad.isfinite().all()) for m in maps)
    if case in ("no motion at all", "pure rotation, unmarked", "behind the camera", "line outside"):
        assert not targets.valid.any() or case == "line outside"
        assert case == "line outside" or loss.item() == 0


def test_without_baseline_the_rotation_decides():
    turn = rotation_from_axis_angle(torch.tensor([[0.02, -0.03, 0.4]]))
    pose = pose_from_rotation_translation(turn, torch.zeros(1, 3))
    intrinsics = torch.tensor([[[300.0, 0, 159.5], [0, 300, 119.5], [0, 0, 1]]])
    xy = grid_query_points(240, 320, 16)[None]
    targets = epipolar_targets(xy, intrinsics, intrinsics, pose, torch.tensor([False]), 240, 320)
    rays = torch.cat([xy, torch.ones(1, xy.shape[1], 1)], -1) @ torch.linalg.inv(intrinsics[0]).T
    image = rays @ turn[0].T @ intrinsics[0].T
    expected = image[..., :2] / image[..., 2:]
    torch.testing.assert_close(targets.start[targets.valid], expected[targets.valid], atol=1e-3, rtol=0)
    torch.testing.assert_close(
        targets.distance(expected)[targets.valid], torch.zeros(int(targets.valid.sum())), atol=2e-3, rtol=0
    )


def test_weights_have_mean_one_over_what_counts():
    sigma = torch.tensor([[0.1, 0.2, 0.0, 0.4]])
    valid = torch.tensor([[True, True, True, False]])
    weight = certainty_weights(sigma, valid)
    torch.testing.assert_close(weight.sum(), torch.tensor(3.0))
    assert weight[0, 3] == 0
    torch.testing.assert_close(weight[0, 0] / weight[0, 1], torch.tensor(2.0))


def test_query_points_cover_every_cell_evenly():
    xy = grid_query_points(64, 96, 16, torch.Generator().manual_seed(0))
    assert xy.shape == (24, 2)
    cells = ((xy + 0.5) / 16).floor()
    assert len({tuple(cell) for cell in cells.tolist()}) == 24
    many = torch.cat([grid_query_points(16, 16, 16, torch.Generator().manual_seed(i)) for i in range(2000)])
    torch.testing.assert_close(many.mean(0), torch.tensor([7.5, 7.5]), atol=0.4, rtol=0)
