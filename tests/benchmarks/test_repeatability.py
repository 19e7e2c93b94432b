from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posfeat.benchmarks.repeatability import (
    PairRepeatability,
    RenderingOptions,
    render_pairs,
    score_pair,
    score_pairs,
    spread,
    summarise_repeatability,
    true_positions,
)
from posfeat.cli import app
from posfeat.data.images import image_size
from posfeat.matching import match
from posfeat.types import Features
from tests.benchmarks.miniature_sequences import photo, write_ppm

SMALL = RenderingOptions(pairs=3, width=160, height=120)


def features(xy: list[tuple[float, float]] | torch.Tensor, size: tuple[int, int] = (64, 40)) -> Features:
    keypoints = torch.as_tensor(xy, dtype=torch.float64).reshape(-1, 2)
    return Features(keypoints, torch.ones(len(keypoints)), torch.eye(max(len(keypoints), 8))[: len(keypoints)], size)


def shift_map(width: int = 64, height: int = 40, dx: float = 10.0) -> torch.Tensor:
    """View 1 shows everything 10 px further right; what leaves it is not seen."""
    x, y = torch.meshgrid(torch.arange(float(width)), torch.arange(float(height)), indexing="xy")
    moved = torch.stack([x + dx, y], dim=-1)
    moved[moved[..., 0] > width - 1] = math.nan
    return moved


def test_repeatability_and_accuracy_by_hand() -> None:
    # the first comes again exactly, the second 2 px off, the third 4 px off, the fourth is not seen
    found0 = features([(5, 5), (15, 5), (25, 5), (60, 5)])
    found1 = features([(15, 5), (25, 7), (39, 5)])
    score = score_pair("a", found0, found1, shift_map(), match)
    assert (score.keypoints0, score.keypoints1, score.seen, score.matches) == (4, 3, 3, 3)
    assert score.repeatability == pytest.approx((1 / 3, 2 / 3))
    assert score.accuracy == pytest.approx([1 / 3, 2 / 3, 2 / 3, *[1.0] * 7])


def test_a_match_with_an_unseen_point_is_wrong_and_nothing_scores_nothing() -> None:
    score = score_pair("a", features([(60, 5)]), features([(5, 5)]), shift_map(), match)
    assert (score.seen, score.matches, score.repeatability, score.accuracy) == (0, 1, (0, 0), (0,) * 10)
    for found0, found1 in (([], [(5, 5)]), ([(5, 5)], [])):
        nothing = score_pair("a", features(found0), features(found1), shift_map(), match)
        assert (nothing.matches, nothing.repeatability) == (0, (0, 0))


def test_spread_counts_cells_that_hold_a_keypoint() -> None:
    assert spread(features([(0, 0), (31.4, 5), (32, 39)])) == 2 / 4
    assert spread(features([(1, 1), (63, 1), (1, 39), (63.4, 39.4)])) == 1
    assert spread(features([])) == 0


@pytest.mark.parametrize(("shift_px", "expected"), [(0.0, (1, 1)), (2.0, (0, 1)), (4.0, (0, 0))])
def test_exact_keypoints_of_rendered_views_repeat_and_shifted_ones_give_the_shift_back(
    tmp_path: Path, shift_px: float, expected: tuple[float, float]
) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, 200, 150))
    pairs = render_pairs([tmp_path / "a.ppm"], tmp_path / "views", SMALL, seed=3)
    known: dict[Path, Features] = {}
    for pair in pairs:
        truth = torch.from_numpy(np.load(pair.truth))
        row, column = np.argwhere(~np.isnan(truth[..., 0].numpy()))[1000].tolist()
        xy0 = torch.tensor([[column, row]], dtype=torch.float64)  # one point, so that no other is near by chance
        known[pair.image0] = features(xy0, image_size(pair.image0))
        known[pair.image1] = features(
            true_positions(truth, xy0) + torch.tensor([shift_px, 0.0]), image_size(pair.image1)
        )
    assert [score.repeatability for score in score_pairs(pairs, known.__getitem__, match)] == [expected] * 3


def test_views_are_the_same_each_time_and_another_seed_gives_others(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, 200, 150))
    first, again, other = (
        render_pairs([tmp_path / "a.ppm"], tmp_path / str(number), SMALL, seed) for number, seed in enumerate((0, 0, 1))
    )
    for one, two in zip(first, again, strict=True):
        assert one.image0.read_bytes() == two.image0.read_bytes()
        assert one.truth.read_bytes() == two.truth.read_bytes()
    assert other[0].image0.read_bytes() != first[0].image0.read_bytes()
    assert image_size(first[0].image1) == (160, 120)


def test_means_and_their_standard_errors() -> None:
    pairs = [PairRepeatability("a", 10, 20, 5, (0.1, share), 0.5, 4, (0.25,) * 10) for share in (0.2, 0.4, 0.6)]
    summary = summarise_repeatability(pairs)
    assert (summary.keypoints, summary.matches, summary.spread) == (15, 4, 0.5)
    assert summary.repeatability == pytest.approx((0.1, 0.4))
    assert summary.standard_error == pytest.approx((0, 0.2 / 3**0.5))
    assert summary.mma_score == pytest.approx(0.25)


def test_from_photos_to_a_report(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for seed in range(2):
        write_ppm(tmp_path / "photos" / f"{seed}.ppm", photo(seed, 200, 150))
    command = [
        "evaluate",
        "repeatability",
        str(tmp_path / "photos"),
        "--methods",
        "rootsift",
        "orb",
        "--keypoints",
        "60",
    ]
    command += ["-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    for change in ("pairs=3", "width=160", "height=120", "look.strength=0", "views.views.max_tilt_deg=20"):
        command += ["--render", change]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [method["method"] for method in results["methods"]] == ["rootsift", "orb"]
    assert len(results["methods"][0]["pairs"]) == 3
    assert results["rendering"]["views"]["views"]["max_tilt_deg"] == 20
    assert 0 < results["methods"][0]["summary"]["repeatability"][1] <= 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/jpeg") == 1
