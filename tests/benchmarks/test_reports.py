from __future__ import annotations

import base64
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from posfeat.benchmarks.homography_scores import PairScore, summarise
from posfeat.benchmarks.hpatches import HomographySequence, hpatches_names, read_sequences
from posfeat.benchmarks.hpatches_report import HomographyResults, MethodResult, write_homography_report
from posfeat.benchmarks.hpatches_run import run_hpatches
from posfeat.benchmarks.pose_pairs import read_views
from posfeat.benchmarks.pose_run import run_poses
from posfeat.benchmarks.provenance import cameras_fingerprint, data_fingerprint, gather_provenance
from posfeat.benchmarks.published import published_methods
from posfeat.benchmarks.report import Picture, Section, Table, page, write_markdown
from posfeat.benchmarks.robust_estimation import has_poselib
from posfeat.benchmarks.run import RunOptions
from posfeat.cli import app
from posfeat.types import OptionsError
from tests.benchmarks.miniature_scene import write_colmap_scene
from tests.benchmarks.miniature_sequences import KnownFeatures, write_sequence

pytest.importorskip("matplotlib")


def export_known_features(root: Path, folder: Path, shift_px: tuple[float, float] = (0.0, 0.0)) -> Path:
    """Known features as .npz files in D2-Net's layout."""
    known = KnownFeatures(shift_px)
    for sequence in read_sequences(root):
        for image in sequence.images:
            features = known.features_of(image)
            target = folder / image.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            arrays = {key: getattr(features, key).numpy() for key in ("keypoints", "scores", "descriptors")}
            np.savez(target.with_name(target.name + ".npz"), **arrays)
    return folder


def test_one_command_from_images_to_a_report(tmp_path: Path) -> None:
    for name in ("i_dome", "v_wall"):
        write_sequence(tmp_path / "data" / name)
    exported = export_known_features(tmp_path / "data", tmp_path / "exported")
    options = RunOptions([str(exported), "rootsift", "akaze"], 50, tmp_path / "cache")

    results = run_hpatches(tmp_path / "data", options, tmp_path / "out")

    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [m["method"] for m in written["methods"]][:2] == ["exported", "rootsift"]
    assert written["methods"][0]["splits"][0]["mma"] == [1.0] * 10
    assert len(written["methods"][0]["pairs"]) == 10
    assert "akaze" in written["skipped"] or written["methods"][2]["method"] == "akaze"
    assert set(written["provenance"]) == {field.name for field in dataclasses.fields(results.provenance)}
    assert written["provenance"]["options"]["max_keypoints"] == 50
    assert written["provenance"]["data"].startswith("data: 22 files, sha256 ")

    html = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r'(src|href)="(?!data:)', html), "the page needs no other file"
    pictures = re.findall(r"data:image/(svg\+xml|jpeg);base64,([^\"]+)", html)
    assert [kind for kind, _ in pictures].count("jpeg") == 2 * len(results.methods)
    assert base64.b64decode(pictures[0][1]).startswith(b"<?xml")
    if has_poselib():
        assert results.methods[0].splits[0].homography_auc == pytest.approx((1, 1, 1), abs=0.01)


def test_published_curves_stand_beside_ours_on_the_108_sequences_only(tmp_path: Path) -> None:
    changes = {"i": "illumination", "v": "viewpoint"}
    sequences = [
        HomographySequence(name, changes[name[0]], Path("1.ppm"), (), (), ()) for name in sorted(hpatches_names()[0])
    ]
    accuracy = tuple(0.05 * t for t in range(1, 11))
    pairs = [PairScore(s.name, s.change, f"{k}.ppm", 9, 9, 8, 4, accuracy) for s in sequences for k in range(2, 7)]
    method = MethodResult("ours", "ours 1", 1.0, summarise(pairs), pairs)
    results = HomographyResults(gather_provenance("test", {}, "none", 0), [method], {})
    assert [split.pairs for split in method.splits] == [540, 260, 280]

    write_homography_report(tmp_path / "whole", results, sequences, [])
    html = (tmp_path / "whole" / "report.html").read_text()
    assert "PoSFeat (paper)" in html
    figure = (tmp_path / "whole" / "curves.svg").read_text()
    assert all(f"<!-- {name} -->" in figure for name in ("ours", "overall", "illumination", "viewpoint"))
    assert all(f"<!-- {method.name} -->" in figure for method in published_methods()), "all twelve"
    assert "DISK-W overall: printed 0.719, the published curve gives 0.723" in html

    write_homography_report(tmp_path / "part", results, sequences[:-1], [])
    html = (tmp_path / "part" / "report.html").read_text()
    assert "PoSFeat (paper)" not in html
    assert "published curves are not drawn" in html


def test_poses_from_a_folder_to_a_report(tmp_path: Path) -> None:
    if not has_poselib():
        pytest.skip("PoseLib is not installed")
    write_colmap_scene(tmp_path / "scene")
    results = run_poses(tmp_path / "scene", RunOptions(["rootsift"], 50), tmp_path / "out", neighbours=1)
    assert results.methods[0].scenes[0].pairs == 3
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(written["methods"][0]["pairs"]) == 3
    assert written["provenance"]["options"]["methods"] == ["rootsift"]
    assert written["provenance"]["options"]["neighbours"] == 1
    assert "rootsift" in (tmp_path / "out" / "report.html").read_text()


def test_a_method_given_twice_is_refused() -> None:
    with pytest.raises(OptionsError, match="twice"):
        RunOptions(["rootsift", "rootsift"], 10)


def test_an_unknown_method_names_the_known_ones(tmp_path: Path) -> None:
    write_sequence(tmp_path / "v_wall")
    with pytest.raises(OptionsError, match="rootsift, orb"):
        run_hpatches(tmp_path, RunOptions(["rootshift"], 10), tmp_path / "out")


def test_text_cannot_break_the_page() -> None:
    html = page("a < b", [Section("<script>", "x & y", [Table(["<i>"], [["<b>"]])])])
    assert "<script>" not in html
    assert "<b>" not in html
    assert "x &amp; y" in html


def test_the_fingerprint_of_data_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    files = [tmp_path / "a", tmp_path / "b"]
    first = data_fingerprint(tmp_path, files)
    assert data_fingerprint(tmp_path, reversed(files)) == first
    (tmp_path / "a").write_text("2")
    (tmp_path / "b").write_text("1")
    assert data_fingerprint(tmp_path, files) != first


def test_the_fingerprint_follows_the_poses_that_features_are_measured_against(tmp_path: Path) -> None:
    write_colmap_scene(tmp_path)
    views = read_views(tmp_path)
    first = cameras_fingerprint(views)
    assert cameras_fingerprint(read_views(tmp_path)) == first
    moved = views[0].cam_from_world + np.eye(4, k=3) * 1e-12
    assert cameras_fingerprint([dataclasses.replace(views[0], cam_from_world=moved), *views[1:]]) != first
    assert cameras_fingerprint(views[::-1]) != first


def test_a_run_of_missing_methods_alone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    write_sequence(tmp_path / "data" / "v_wall")
    command = ["evaluate", "hpatches", str(tmp_path / "data"), "--methods", "disk", "-o", str(tmp_path / "out")]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0
    assert "skipped disk: disk needs" in run.output
    assert "Left out: disk" in (tmp_path / "out" / "report.html").read_text()


def test_markdown_has_the_tables_and_the_pictures_beside_it(tmp_path: Path) -> None:
    table = Table(["what", "n"], [["a|b", "1"], ["c", "2"]])
    section = Section("Fig. 1", "Words.", [table], [Picture("svg", b"<svg/>", "A figure")])
    write_markdown(tmp_path / "page.md", "Title", gather_provenance("test", {}, "none", 0), [section])
    text = (tmp_path / "page.md").read_text()
    lines = [
        "# Title",
        "",
        "## Fig. 1",
        "",
        "Words.",
        "",
        "| what | n |",
        "| :--- | ---: |",
        "| a\\|b | 1 |",
        "| c | 2 |",
    ]
    assert text.startswith("\n".join([*lines, "", "![A figure](fig1.svg)", "", "## Where these numbers come from"]))
    assert (tmp_path / "fig1.svg").read_bytes() == b"<svg/>"


def test_the_command_prints_a_table_and_takes_several_methods(tmp_path: Path) -> None:
    write_sequence(tmp_path / "data" / "v_wall")
    exported = export_known_features(tmp_path / "data", tmp_path / "exported")
    arguments = ["evaluate", "hpatches", str(tmp_path / "data"), "--methods", "rootsift", str(exported), "--keypoints"]
    arguments += ["20", "--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    run = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert "rootsift" in run.output
    assert "exported" in run.output
    assert (tmp_path / "out" / "report.html").is_file()


def test_check_says_whether_data_lies_as_it_must(tmp_path: Path) -> None:
    write_sequence(tmp_path / "data" / "graf", oxford=True)
    good = CliRunner().invoke(app, ["evaluate", "--check", str(tmp_path / "data")])
    assert (good.exit_code, "1 sequences (1 viewpoint), 5 pairs" in good.output) == (0, True)
    (tmp_path / "data" / "graf" / "img2.ppm").unlink()
    bad = CliRunner().invoke(app, ["evaluate", "--check", str(tmp_path / "data")])
    assert (bad.exit_code, "img2 is missing" in bad.output) == (2, True)
    absent = CliRunner().invoke(app, ["evaluate", "--check", str(tmp_path / "nowhere")])
    assert (absent.exit_code, "hpatches-sequences-release" in absent.output) == (2, True)
