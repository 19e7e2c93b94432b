from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posfeat.benchmarks.layouts import check_layout
from posfeat.benchmarks.pose_pairs import neighbouring_pairs, read_pair_list, read_pose_pairs
from posfeat.benchmarks.relative_pose import score_pose_pairs, summarise_poses
from posfeat.benchmarks.robust_estimation import estimate_relative_pose, has_poselib
from posfeat.matching import match
from posfeat.types import DataError, Pair
from tests.benchmarks.miniature_scene import (
    MATRIX,
    NAMES,
    ProjectedFeatures,
    relative_pose_of,
    write_caps_scene,
    write_colmap_scene,
    write_images,
    write_megadepth_scene,
    write_pair_list,
    write_strecha_scene,
)
from tests.benchmarks.miniature_sequences import HEIGHT, WIDTH

needs_poselib = pytest.mark.skipif(not has_poselib(), reason="PoseLib is not installed")


def assert_true_cameras(pairs: list[Pair]) -> None:
    for pair in pairs:
        index0, index1 = (NAMES.index(view.image_path.name) for view in (pair.view0, pair.view1))
        pose = pair.view1.cam_from_world @ np.linalg.inv(pair.view0.cam_from_world)
        assert np.allclose(pose, relative_pose_of(index0, index1), atol=1e-9)
        for view in (pair.view0, pair.view1):
            assert np.allclose(view.camera.matrix, MATRIX)
            assert (view.camera.width, view.camera.height) == (WIDTH, HEIGHT)


@pytest.mark.parametrize("write", [write_megadepth_scene, write_caps_scene])
def test_check_knows_megadepth_in_both_layouts(tmp_path: Path, write) -> None:
    write(tmp_path)
    assert check_layout(tmp_path) == (["4 posed photos in 1 scenes, for posfeat evaluate pose"], [])


@pytest.mark.parametrize("write", [write_colmap_scene, write_strecha_scene])
def test_neighbours_of_a_posed_folder(tmp_path: Path, write) -> None:
    write(tmp_path / "scene")
    pairs = read_pose_pairs(tmp_path / "scene", neighbours=2)
    assert [(p.view0.image_path.name, p.view1.image_path.name) for p in pairs] == [
        (NAMES[0], NAMES[1]),
        (NAMES[0], NAMES[2]),
        (NAMES[1], NAMES[2]),
        (NAMES[1], NAMES[3]),
        (NAMES[2], NAMES[3]),
    ]
    assert_true_cameras(pairs)


@needs_poselib
@pytest.mark.parametrize("kind", [32, 36, 38])
def test_exact_features_on_the_pairs_of_text_lists_have_no_error(tmp_path: Path, kind: int) -> None:
    write_images(tmp_path / "images")
    write_pair_list(tmp_path / "pairs.txt", kind)
    pairs = read_pose_pairs(tmp_path, pair_list=Path("pairs.txt"))
    assert len(pairs) == 3
    assert_true_cameras(pairs)
    scores = score_pose_pairs(pairs, ProjectedFeatures().features_of, match, estimate_relative_pose)
    assert max(score.error_deg for score in scores) < 1e-3


@needs_poselib
@pytest.mark.parametrize(
    ("write", "neighbours"),
    [(write_colmap_scene, 3), (write_strecha_scene, 3), (write_megadepth_scene, None), (write_caps_scene, None)],
)
def test_exact_features_have_no_error_and_shifted_ones_give_the_shift_back(tmp_path: Path, write, neighbours) -> None:
    write(tmp_path)
    pairs = read_pose_pairs(tmp_path, neighbours=neighbours)
    assert_true_cameras(pairs)
    scores = score_pose_pairs(pairs, ProjectedFeatures().features_of, match, estimate_relative_pose)
    assert max(score.error_deg for score in scores) < 1e-3
    (summary,) = summarise_poses(scores)
    assert summary.pairs == 6
    assert summary.auc == pytest.approx((1, 1, 1), abs=1e-3)
    assert summary.precision == (1.0,) * 4
    assert summary.matches == 60

    # the epipolar lines run nearly along x, so that points moved down by 2 px are a little under 2 px away from them
    from_first = [pair for pair in pairs if pair.view0.image_path.name == NAMES[0]]
    shifted = score_pose_pairs(from_first, ProjectedFeatures(shift_px=2.0).features_of, match, estimate_relative_pose)
    assert summarise_poses(shifted)[0].precision == (0.0, 0.0, 1.0, 1.0)


@needs_poselib
def test_a_pair_without_matches_has_an_infinite_error(tmp_path: Path) -> None:
    write_strecha_scene(tmp_path)
    pairs = read_pose_pairs(tmp_path, neighbours=1)
    scores = score_pose_pairs(pairs, ProjectedFeatures(count=0).features_of, match, estimate_relative_pose)
    assert all(score.error_deg == float("inf") for score in scores)
    (summary,) = summarise_poses(scores)
    assert summary.auc == (0, 0, 0)
    assert summary.precision == (0, 0, 0, 0)


def test_scenes_are_not_paired_with_each_other(tmp_path: Path) -> None:
    for scene in ("a", "b"):
        write_strecha_scene(tmp_path / scene)
    pairs = read_pose_pairs(tmp_path, neighbours=1)
    assert len(pairs) == 6
    assert all(pair.view0.scene == pair.view1.scene for pair in pairs)
    assert neighbouring_pairs([], 3) == []


def test_check_counts_posed_photos_and_names_missing_ones(tmp_path: Path) -> None:
    write_colmap_scene(tmp_path / "a")
    write_colmap_scene(tmp_path / "b")
    assert check_layout(tmp_path) == (["8 posed photos in 2 scenes, for posfeat evaluate pose"], [])
    (tmp_path / "b" / "images" / NAMES[0]).unlink()
    found, problems = check_layout(tmp_path)
    assert found == ["7 posed photos in 2 scenes, for posfeat evaluate pose"]
    assert len(problems) == 1


@pytest.mark.parametrize("kind", [32, 36, 38])
def test_check_reads_lists_of_pairs(tmp_path: Path, kind: int) -> None:
    write_images(tmp_path / "images")
    write_pair_list(tmp_path / "pairs.txt", kind)
    (tmp_path / "readme.txt").write_text("What this is\n")
    assert check_layout(tmp_path) == (["pairs.txt: 3 pairs, for posfeat evaluate pose --pairs pairs.txt"], [])
    (tmp_path / "images" / NAMES[1]).unlink()
    found, problems = check_layout(tmp_path)
    assert (found, len(problems)) == ([], 1)
    assert f"pairs.txt:1: image {NAMES[1]} is neither" in problems[0]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_pose_pairs(tmp_path / "nowhere")
    write_images(tmp_path / "images")
    with pytest.raises(DataError, match=r"pairs\.txt"):
        read_pair_list(tmp_path / "pairs.txt", tmp_path)
    (tmp_path / "pairs.txt").write_text("a.jpg b.jpg 1 2 3\n")
    with pytest.raises(DataError, match=r"pairs\.txt:1: 5 fields"):
        read_pair_list(tmp_path / "pairs.txt", tmp_path)
    write_pair_list(tmp_path / "pairs.txt", 38)
    text = (tmp_path / "pairs.txt").read_text()
    (tmp_path / "pairs.txt").write_text(text.replace("ppm 0 0 ", "ppm 1 0 ", 1))
    with pytest.raises(DataError, match="turns images"):
        read_pair_list(tmp_path / "pairs.txt", tmp_path)
    (tmp_path / "pairs.txt").write_text(text.replace(NAMES[1], "missing.ppm"))
    with pytest.raises(DataError, match=r"missing\.ppm"):
        read_pair_list(tmp_path / "pairs.txt", tmp_path)
