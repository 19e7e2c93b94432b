"""Whole reconstructions as a benchmark: exact features give the exact cameras, and what is not placed counts as wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from posfeat.benchmarks.reconstruction import MOST_EXHAUSTIVE, pair_errors_deg, scene_pairs
from posfeat.cli import app
from posfeat.types import View
from tests.benchmarks.miniature_world import NUM_POINTS, World, pose_at, posed_views, write_posed_scene

pytest.importorskip("pycolmap")
NAMES = tuple(f"{index:04d}.ppm" for index in range(5))


def a_world() -> World:
    return World({name: pose_at(float(index)) for index, name in enumerate(NAMES)})


def test_exact_features_beside_useless_ones(tmp_path: Path) -> None:
    world = a_world()
    write_posed_scene(tmp_path / "data" / "hall", world)
    write_posed_scene(tmp_path / "data" / "yard", world)
    exact = world.export(tmp_path / "exact.h5", "images/")
    still = World({name: pose_at(2.0) for name in NAMES}).export(tmp_path / "still.h5", "images/")
    command = ["evaluate", "reconstruction", str(tmp_path / "data" / "hall"), "--only", "hall"]
    command += ["--methods", f"exact={exact}", f"still={still}", "-o", str(tmp_path / "out")]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0
    assert "5/5" in run.output
    assert "track length" in run.output
    assert "still, hall: no model" in run.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    good, bad = (method["scenes"][0] for method in results["methods"])
    assert (good["photos"], good["registered"], good["pairs"], good["verified_pairs"]) == (5, 5, 10, 10)
    assert good["points"] == pytest.approx(NUM_POINTS, abs=12)
    assert good["track_length"] == pytest.approx(5, abs=0.1)
    assert good["reprojection_error_px"] < 0.1
    assert good["auc"][0] > 0.9
    assert good["centre_error_percent"] < 1
    assert (bad["registered"], bad["points"], bad["auc"][2]) == (0, 0, 0)
    assert "baseline" in bad["failure"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "5 of 5" in page
    assert "baseline" in page


def test_pairs_of_photos_that_were_not_placed_are_infinitely_wrong() -> None:
    true = posed_views(a_world(), Path("photos"))
    assert pair_errors_deg(true, true).max() < 1e-6
    errors = pair_errors_deg(true[:3], true)
    assert (int(errors.isinf().sum()), len(errors)) == (7, 10)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]
    turned = [replace(true[0], cam_from_world=turn @ true[0].cam_from_world), *true[1:]]
    errors = pair_errors_deg(turned, true)
    assert int((errors > 5).sum()) == 4  # all pairs of the one photo that was turned by 5.7 degrees
    assert errors[4:].max() < 1e-6


def test_a_large_scene_is_not_matched_exhaustively() -> None:
    few = [View(Path(f"{i}.jpg"), None, pose_at(i / 10), f"{i}.jpg") for i in range(MOST_EXHAUSTIVE)]  # type: ignore[arg-type]
    assert len(scene_pairs(few)) == MOST_EXHAUSTIVE * (MOST_EXHAUSTIVE - 1) // 2
    many = [View(Path(f"{i}.jpg"), None, pose_at(i / 10), f"{i}.jpg") for i in range(200)]  # type: ignore[arg-type]
    pairs = scene_pairs(many)
    assert len(set(pairs)) == len(pairs) < 200 * 30
    assert {name for pair in pairs for name in pair} == {view.name for view in many}


def test_mistakes_are_said(tmp_path: Path) -> None:
    write_posed_scene(tmp_path / "hall", a_world())
    write_posed_scene(tmp_path / "small", World({name: pose_at(float(i)) for i, name in enumerate(NAMES[:2])}))
    for scene, only, words in (("hall", "attic", "no scene attic"), ("small", "small", "2 posed photos; 3 are needed")):
        command = ["evaluate", "reconstruction", str(tmp_path / scene), "--only", only, "-o", str(tmp_path / "out")]
        run = CliRunner().invoke(app, command)
        assert words in str(run.exception)
