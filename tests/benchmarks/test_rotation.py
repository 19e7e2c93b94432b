from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posfeat.benchmarks.homography_scores import score_sequences
from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.plain_photos import some_photos
from posfeat.benchmarks.rotation import TurnOptions, scores_by_angle, turned_copy, write_turned
from posfeat.cli import app
from posfeat.data.images import image_size
from posfeat.geometry.homography import warp_points
from posfeat.matching import match
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import ModelOptions, build_model
from posfeat.types import DataError, Features, OptionsError
from tests.benchmarks.miniature_sequences import photo, write_ppm

TURNS = TurnOptions(step_deg=40, copy_scale=0.75, longest_px=96)


@dataclass(frozen=True)
class TurnedFeatures:
    """Points that follow the true turn, and in some copies are moved by 2.5 px."""

    homographies: dict[str, np.ndarray]
    moved: tuple[str, ...] = ()

    def features_of(self, path: Path) -> Features:
        xy = torch.from_numpy(np.random.default_rng(5).uniform(10, 50, (30, 2)))
        if path.name in self.homographies:
            xy = warp_points(torch.from_numpy(self.homographies[path.name]), xy)
        if path.name in self.moved:
            xy = xy + torch.tensor([2.0, -1.5])
        return Features(xy, torch.ones(30), torch.eye(30), image_size(path))


def test_a_turned_copy_shows_at_each_position_what_the_photo_shows_there() -> None:
    smooth = np.asarray(np.add.outer(2 * np.arange(64), np.arange(96))[..., None] + np.zeros(3), dtype=np.uint8)
    xy = np.column_stack([np.random.default_rng(0).uniform(8, 87, 40), np.random.default_rng(1).uniform(8, 55, 40)])
    for angle in (0, 40, 90, 130, 180, 270):
        turned, homography = turned_copy(smooth, angle, 0.75)
        places = warp_points(torch.from_numpy(homography), torch.from_numpy(xy)).numpy()
        columns, rows = np.rint(places).astype(int).T
        assert np.abs(turned[rows, columns, 0] - (xy[:, 0] + 2 * xy[:, 1])).max() < 4, angle


def test_points_that_turn_along_score_one_and_moved_ones_give_the_movement_back(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0))
    sequence = write_turned(tmp_path / "a.ppm", "a.ppm", tmp_path / "turned", TURNS)
    assert len(sequence.targets) == 9
    truth = {path.name: matrix for path, matrix in zip(sequence.targets, sequence.homographies, strict=True)}
    known = TurnedFeatures(truth, moved=("080.png",))
    scores = scores_by_angle(score_sequences([sequence], known.features_of, match))
    assert [score.angle_deg for score in scores] == list(range(0, 360, 40))
    for score in scores:
        moved = score.angle_deg == 80
        assert score.mma_1px == (0 if moved else 1)
        assert score.mma_score == pytest.approx(sum(2 - 0.1 * t for t in range(3, 11)) / 14.5 if moved else 1)


def test_from_photos_to_a_report(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / "photos" / "sub").mkdir(parents=True, exist_ok=True)
        write_ppm(tmp_path / "photos" / "sub" / f"{seed}.ppm", photo(seed, 120, 90))
    command = ["evaluate", "rotation", str(tmp_path / "photos"), "--methods", "rootsift", "orb", "--photos", "2"]
    command += ["--step", "90", "--keypoints", "50", "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [method["method"] for method in results["methods"]] == ["rootsift", "orb"]
    assert [score["angle_deg"] for score in results["methods"][0]["angles"]] == [0, 90, 180, 270]
    assert {pair["sequence"] for pair in results["methods"][0]["pairs"]} == {"sub/0.ppm", "sub/1.ppm"}
    assert results["methods"][0]["seconds_an_image"] > 0
    assert results["provenance"]["data"].startswith("photos: 2 files")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "worst / upright" in page
    assert "Matches at 90°" in page


def test_a_folder_without_photos_and_steps_that_do_not_close_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no photos"):
        some_photos(tmp_path, 3, tmp_path / "out")
    with pytest.raises(OptionsError, match="does not divide 360"):
        TurnOptions(step_deg=50)


def test_photos_are_spread_over_the_folder_and_the_output_is_left_out(tmp_path: Path) -> None:
    for number in range(7):
        write_ppm(tmp_path / f"{number}.ppm", photo(number))
    (tmp_path / "out").mkdir()
    write_ppm(tmp_path / "out" / "own.ppm", photo(0))
    assert [path.name for path in some_photos(tmp_path, 3, tmp_path / "out")] == ["0.ppm", "2.ppm", "4.ppm"]
    assert len(some_photos(tmp_path, 30, tmp_path / "out")) == 7


def test_options_of_one_method_stand_behind_it(tmp_path: Path) -> None:
    write_ppm(tmp_path / "a.ppm", photo(0, 128, 96))
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "ours.safetensors", build_model(ModelOptions()).eval(), ModelCard(name="ours"))
    setting = MethodSetting(tmp_path, 40, ExtractionOptions(), device="cpu")
    ours = str(tmp_path / "ours.safetensors")
    plain, turned = open_method(ours, setting), open_method(f"{ours}[rotations_deg=[0,90]]@20", setting)
    assert turned.name == "ours[rotations_deg=[0,90]]@20"
    assert plain.fingerprint != turned.fingerprint
    expected = open_method(
        f"{ours}@20", MethodSetting(tmp_path, 40, ExtractionOptions(rotations_deg=(0.0, 90.0)), device="cpu")
    )
    assert torch.equal(
        turned.features_of(tmp_path / "a.ppm").keypoints, expected.features_of(tmp_path / "a.ppm").keypoints
    )
    assert open_method(f"mine={ours}[scales=[1,0.5];rotations_deg=[0]]", setting).name == "mine"
    assert open_method(f"sift+{ours}[scales=[0.5]]", setting).name == "sift+ours[scales=[0.5]]"
    with pytest.raises(OptionsError, match="rotations_deg"):
        open_method(f"{ours}[rotation_deg=[0]]", setting)
    with pytest.raises(OptionsError, match="neither a file nor"):
        open_method("rootsift[scales=[1]]", setting)
