"""Aachen's layouts end to end on a miniature world: exact features give the true poses, moved ones the movement back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posfeat.benchmarks.aachen import read_poses, recalls, result_lines, with_errors
from posfeat.benchmarks.aachen_data import read_aachen
from posfeat.benchmarks.aachen_run import run_aachen
from posfeat.benchmarks.layouts import check_layout
from posfeat.benchmarks.run import RunOptions
from posfeat.cli import app
from posfeat.geometry.pose import pose_from_rotation_translation
from posfeat.types import DataError
from tests.benchmarks.miniature_world import DATABASE, QUERIES, a_world, write_aachen, write_ground_truth

pytest.importorskip("pycolmap")


@pytest.mark.parametrize("version", ["v1", "v1.1"])
def test_exact_features_give_the_true_poses_and_the_given_files_stay_as_they_are(tmp_path: Path, version: str) -> None:
    world = a_world()
    write_aachen(tmp_path / "data", world, version)
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    options = RunOptions([str(world.export(tmp_path / "exact.h5"))], 500)
    truth = write_ground_truth(tmp_path / "truth.txt", world)

    results = run_aachen(tmp_path / "data", options, tmp_path / "out", ground_truth=truth)

    (result,) = results.methods
    assert results.version == version
    assert result.recalls == (1.0, 1.0, 1.0)
    assert max(query.position_error for query in result.queries) < 1e-3
    assert max(query.rotation_error_deg for query in result.queries) < 1e-2
    assert result.points > 200
    assert result.mean_track_length > 3.9
    uploaded = (tmp_path / "out" / result.result_file).read_text().splitlines()
    assert [line.split()[0] for line in uploaded] == ["a.ppm", "b.ppm"]
    assert all(len(line.split()) == 8 for line in uploaded)
    assert result.result_file == f"Aachen{'_v1_1' if version == 'v1.1' else ''}_eval_[exact].txt"
    assert {path: path.read_bytes() for path in before} == before
    html = (tmp_path / "out" / "report.html").read_text()
    assert "PoSFeat (paper)" in html
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["methods"][0]["queries"]) == 2


def test_features_of_a_camera_that_stood_elsewhere_give_that_place_back(tmp_path: Path) -> None:
    world = a_world(query_shift=0.7)
    write_aachen(tmp_path / "data", world)
    options = RunOptions([str(world.export(tmp_path / "moved.h5"))], 500)
    truth = write_ground_truth(tmp_path / "truth.txt", world)
    (result,) = run_aachen(tmp_path / "data", options, tmp_path / "out", ground_truth=truth).methods
    assert [query.position_error for query in result.queries] == pytest.approx([0.7, 0.7], abs=1e-3)
    assert max(query.rotation_error_deg for query in result.queries) < 1e-2
    assert result.recalls == (0.0, 1.0, 1.0)


def test_without_the_truth_there_is_a_file_to_upload_and_no_recall(tmp_path: Path) -> None:
    world = a_world()
    write_aachen(tmp_path / "data", world)
    exported = world.export(tmp_path / "exact.h5")
    command = ["evaluate", "aachen", str(tmp_path / "data"), "--methods", str(exported), "-o", str(tmp_path / "out")]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0
    assert "2 of 2" in run.output
    poses = read_poses(tmp_path / "out" / "Aachen_eval_[exact].txt")
    for name in QUERIES:
        assert poses[Path(name).name] == pytest.approx(world.true[name], abs=1e-4)
    assert "upload the files" in (tmp_path / "out" / "report.html").read_text()


def test_poses_survive_the_file_to_upload(tmp_path: Path) -> None:
    world = a_world()
    (tmp_path / "poses.txt").write_text(result_lines({name: world.true[name] for name in QUERIES}))
    for name, pose in read_poses(tmp_path / "poses.txt").items():
        assert pose == pytest.approx(world.true[f"query/night/nexus/{name}"], abs=1e-12)


def test_a_query_that_was_not_placed_counts_as_wrong() -> None:
    from posfeat.benchmarks.aachen import QueryScore

    turned = pose_from_rotation_translation(
        torch.eye(3, dtype=torch.float64), torch.tensor([0.3, 0, 0]).double()
    ).numpy()
    queries = [QueryScore("q/a.jpg", 50, 40), QueryScore("q/b.jpg", 3, 0)]
    true = {"a.jpg": np.eye(4), "b.jpg": np.eye(4)}
    judged = with_errors(queries, {"q/a.jpg": turned}, true)
    assert judged[0].position_error == pytest.approx(0.3)
    assert judged[1].position_error == float("inf")
    assert recalls(judged, [(0.25, 2), (0.5, 5), (5, 10)]) == (0, 0.5, 0.5)
    with pytest.raises(DataError, match=r"q/a\.jpg"):
        with_errors(queries, {}, {})


def test_both_versions_lie_in_one_folder_and_the_newest_is_taken(tmp_path: Path) -> None:
    world = a_world()
    write_aachen(tmp_path, world, "v1")
    write_aachen(tmp_path, world, "v1.1")
    assert read_aachen(tmp_path).version == "v1.1"
    old = read_aachen(tmp_path, "v1")
    assert set(old.views) == set(DATABASE)
    assert all(view.cam_from_world == pytest.approx(world.true[name], abs=1e-12) for name, view in old.views.items())
    assert old.views[DATABASE[0]].camera.matrix[0, 2] == 158.5, "half a pixel is taken away"
    found, problems = check_layout(tmp_path)
    assert len(found) == 2
    assert "5 database images, 2 queries, 20 pairs" in found[0]
    assert problems == []


def test_a_colmap_model_may_stand_in_for_the_nvm(tmp_path: Path) -> None:
    from tests.benchmarks.miniature_scene import quaternion

    world = a_world()
    write_aachen(tmp_path, world, "v1.1")
    model = tmp_path / "3D-models" / "aachen_v_1_1"
    (model / "aachen_v_1_1.nvm").unlink()
    (model / "cameras.txt").write_text("1 SIMPLE_RADIAL 320 240 300 159 122 0\n")
    lines = []
    for number, name in enumerate(DATABASE, start=1):
        pose = world.true[name]
        numbers = [*quaternion(pose[:3, :3]), *pose[:3, 3]]
        lines += [f"{number} {' '.join(map(repr, map(float, numbers)))} 1 {name}", ""]
    (model / "images.txt").write_text("\n".join(lines) + "\n")
    (model / "points3D.txt").write_text("")
    views = read_aachen(tmp_path).views
    assert all(views[name].cam_from_world == pytest.approx(world.true[name], abs=1e-12) for name in DATABASE)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("image_pairs_to_match.txt", "image_pairs_to_match_v1_1"),
        ("3D-models/aachen_cvpr2018_db.nvm", "aachen_cvpr2018_db"),
        ("queries/night_time_queries_with_intrinsics.txt", "night queries"),
        ("images", "the images of v1"),
    ],
)
def test_what_is_missing_is_said_with_where_it_comes_from(tmp_path: Path, missing: str, message: str) -> None:
    write_aachen(tmp_path, a_world())
    path = tmp_path / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=message) as raised:
        read_aachen(tmp_path)
    assert "visuallocalizationbenchmark" in str(raised.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_aachen(tmp_path, a_world())
    nvm = tmp_path / "3D-models" / "aachen_cvpr2018_db.nvm"
    text = nvm.read_text()
    nvm.write_text("\n".join(text.splitlines()[:6]))
    with pytest.raises(DataError, match=r"aachen_cvpr2018_db\.nvm ends after 3 of 5"):
        read_aachen(tmp_path)
    nvm.write_text(text)
    (tmp_path / "database.db").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"database\.db is no COLMAP database"):
        read_aachen(tmp_path)
    (tmp_path / "database.db").unlink()
    assert len(read_aachen(tmp_path).queries) == 2, "intrinsics of the lists serve as well"
    (tmp_path / "images" / "images_upright" / DATABASE[2]).unlink()
    assert any("1 images are missing" in problem for problem in check_layout(tmp_path)[1])
