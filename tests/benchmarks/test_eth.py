"""ETH's layout end to end on a miniature world: what COLMAP must make of exact features is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posfeat.benchmarks.eth import read_scenes
from posfeat.benchmarks.eth_run import published_rows, run_eth
from posfeat.benchmarks.layouts import check_layout
from posfeat.benchmarks.run import RunOptions
from posfeat.cli import app
from posfeat.types import DataError
from tests.benchmarks.miniature_world import NUM_POINTS, World, pose_at, write_eth_scene

pytest.importorskip("pycolmap")
NAMES = tuple(f"{index:04d}.ppm" for index in range(5))


def a_scene_world() -> World:
    return World({name: pose_at(float(index)) for index, name in enumerate(NAMES)})


def test_exact_features_give_all_images_and_points_without_error(tmp_path: Path) -> None:
    world = a_scene_world()
    write_eth_scene(tmp_path / "data" / "South-Building", world)
    options = RunOptions([str(world.export(tmp_path / "exact.h5"))], 500)

    results = run_eth(tmp_path / "data", options, tmp_path / "out")

    (score,) = results.methods[0].scenes
    assert (score.images, score.registered, score.models) == (5, 5, 1)
    assert (score.pairs, score.verified_pairs) == (10, 10)
    assert score.tracks.points == pytest.approx(NUM_POINTS, abs=12)
    assert score.tracks.mean_length == pytest.approx(5, abs=0.1)
    assert score.tracks.observations == sum(length * count for length, count in score.tracks.histogram.items())
    assert score.reprojection_error_px < 0.01
    html = (tmp_path / "out" / "report.html").read_text()
    assert "PoSFeat (paper)" in html, "the scene's printed rows stand beside"
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["methods"][0]["scenes"][0]["tracks"]["histogram"]["5"] > 200
    assert written["provenance"]["data"].startswith("data: 6 files")


def test_a_list_of_pairs_and_a_second_run_that_maps_nothing_anew(tmp_path: Path) -> None:
    world = a_scene_world()
    write_eth_scene(tmp_path / "scene", world)
    exported = world.export(tmp_path / "exact.h5")
    command = ["evaluate", "eth", str(tmp_path / "scene"), "--methods", str(exported), "--pairs", "pairs.txt"]
    command += ["-o", str(tmp_path / "out")]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert first.exit_code == 0
    assert "5 of 5" in first.output
    (database,) = (tmp_path / "out" / "work").rglob("points3D.bin")
    before = database.stat().st_mtime_ns
    second = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "5 of 5" in second.output
    assert database.stat().st_mtime_ns == before
    scores = json.loads((tmp_path / "out" / "results.json").read_text())["methods"][0]["scenes"]
    assert scores[0]["pairs"] == 4


def test_a_scene_of_which_nothing_can_be_made_scores_nothing_and_says_why(tmp_path: Path) -> None:
    world = World({name: pose_at(2.0) for name in NAMES})  # all from one place
    write_eth_scene(tmp_path / "scene", world)
    options = RunOptions([str(world.export(tmp_path / "still.h5"))], 500)
    (score,) = run_eth(tmp_path / "scene", options, tmp_path / "out").methods[0].scenes
    assert (score.registered, score.tracks.points) == (0, 0)
    assert "baseline" in score.failure


def test_check_reads_scenes_and_names_missing_images(tmp_path: Path) -> None:
    write_eth_scene(tmp_path / "Fountain", a_scene_world())
    assert check_layout(tmp_path) == (["scene Fountain: 5 images, 5 known cameras, for posfeat evaluate eth"], [])
    (tmp_path / "Fountain" / "images" / NAMES[3]).unlink()
    found, problems = check_layout(tmp_path)
    assert "4 images" in found[0]
    assert problems == [f"scene Fountain: 1 images of its database are missing, the first is {NAMES[3]}"]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Databases"):
        read_scenes(tmp_path)
    write_eth_scene(tmp_path / "scene", a_scene_world())
    with pytest.raises(DataError, match=r"nothing\.txt"):
        read_scenes(tmp_path, "nothing.txt")
    (tmp_path / "scene" / "pairs.txt").write_text("0000.ppm 9999.ppm\n")
    with pytest.raises(DataError, match=r"9999\.ppm"):
        read_scenes(tmp_path, "pairs.txt")


def test_printed_rows_are_found_under_the_archives_names() -> None:
    assert published_rows("South-Building")[0] == ["Root-SIFT (paper)", "128", "108k", "6.32", "0.55"]
    assert len(published_rows("Tower_of_London")) == len(published_rows("Tower of London")) > 0
    assert published_rows("Fountain") == []
