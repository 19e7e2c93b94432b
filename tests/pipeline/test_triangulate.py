"""Points from known poses: exact where everything is exact, and one line where nothing can come of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.interop.colmap_triangulation import TriangulationOptions
from posfeat.pipeline.feature_store import MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.triangulate import triangulate
from posfeat.pipeline.triangulate_photos import triangulate_photos
from posfeat.types import Camera, DataError, Matches, OptionsError, ReconstructionError, StoreError, View
from tests.pipeline.conftest import GalleryPhotos
from tests.pipeline.mapped_scene import write_map
from tests.pipeline.projected_scene import CAMERA, pose, write_scene

pytest.importorskip("pycolmap")
from posfeat.interop.colmap import cam_from_world, point_rows, read_model, registered_images

LENS = Camera(640, 480, CAMERA.matrix, "OPENCV", (0.06, -0.08, -0.001, 0.0015))


def true_points(num_points: int = 250) -> np.ndarray:
    """The points of write_scene."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(num_points, 3))
    return points * (rng.uniform(0.2, 1.5, num_points) / np.linalg.norm(points, axis=1))[:, None]


@pytest.mark.parametrize("camera", [CAMERA, LENS], ids=["pinhole", "distorted"])
def test_exact_matches_give_exact_points_and_poses_stay(tmp_path: Path, camera: Camera) -> None:
    mapped = write_map(tmp_path, camera)
    model = read_model(mapped.folder / "sparse" / "0")
    _, found, _ = point_rows(model)
    assert len(found) == 250
    nearest = np.linalg.norm(found[:, None] - true_points()[None], axis=2).min(axis=1)
    assert nearest.max() < 1e-5  # keypoints are float32
    poses = {view.name: view.cam_from_world for view in mapped.scene.views}
    for image in registered_images(model):
        np.testing.assert_allclose(cam_from_world(image), poses[image.name], atol=1e-9)
    assert not list(tmp_path.rglob("*.part"))
    assert not list(tmp_path.rglob("*.db"))


def test_wrong_matches_leave_no_trace(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, [pose(angle) for angle in (-20, -10, 0, 10, 20)], noise_px=0)
    names = [view.name for view in scene.views]
    views = [replace(view, name=f"photos/{view.name}") for view in scene.views]
    write_cameras_txt(tmp_path / "cameras.txt", views)
    match_pairs(scene.features, all_pairs(names), tmp_path / "good.h5")
    rng = np.random.default_rng(1)
    with MatchStore(tmp_path / "good.h5") as good, MatchStore(tmp_path / "bad.h5", "a") as bad:
        for name0, name1 in good.pairs():
            matches = good.read(name0, name1)
            wrong = matches.indices.clone()
            half = len(wrong) // 2
            wrong[:half, 1] = wrong[torch.from_numpy(rng.permutation(half)), 1]
            bad.write(name0, name1, Matches(wrong, matches.scores), 250)
    report = triangulate(tmp_path / "cameras.txt", scene.features, tmp_path / "bad.h5", tmp_path / "map")
    assert report.num_inliers < 0.75 * report.num_matches
    _, found, _ = point_rows(read_model(tmp_path / "map"))
    nearest = np.linalg.norm(found[:, None] - true_points()[None], axis=2).min(axis=1)
    assert len(found) > 150
    assert (nearest < 1e-3).mean() > 0.95  # some wrong matches lie on the right line


def test_a_model_of_colmap_is_posed_photos_too(tmp_path: Path) -> None:
    mapped = write_map(tmp_path / "first")
    again = tmp_path / "again"
    report = triangulate(
        mapped.folder / "sparse" / "0", mapped.scene.features, mapped.folder / "matches.h5", again,
        TriangulationOptions(two_view_points=True),
    )  # fmt: skip
    assert report.model.num_points == 250
    assert report.model.mean_reprojection_error_px < 1e-3
    assert report.without_pose == ()


def test_photos_without_a_pose_are_named(tmp_path: Path) -> None:
    mapped = write_map(tmp_path)
    lines = mapped.posed.read_text().splitlines(keepends=True)
    mapped.posed.write_text("".join(line for line in lines if "003.png" not in line))
    report = triangulate(mapped.posed, mapped.scene.features, tmp_path / "matches.h5", tmp_path / "map")
    assert report.without_pose == ("003.png",)
    assert report.model.num_images == 7


def rolled(views: Sequence[View]) -> list[View]:
    """Each turned about its own line of sight, by 40 degrees more than the one before."""
    turns = np.radians(40.0 * np.arange(len(views)))
    found = []
    for view, (c, s) in zip(views, zip(np.cos(turns), np.sin(turns), strict=True), strict=True):
        turn = np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
        found.append(replace(view, cam_from_world=turn @ view.cam_from_world))
    return found


def test_why_there_are_no_points(tmp_path: Path) -> None:
    mapped = write_map(tmp_path)
    views = [replace(view, name=f"photos/{view.name}") for view in mapped.scene.views]
    cases = {
        "no baseline": [replace(view, cam_from_world=pose(0)) for view in views],
        "wrong poses": rolled(views),
    }
    strict = TriangulationOptions(max_epipolar_error_px=0.05, max_reprojection_error_px=0.05)
    for words, posed in cases.items():
        write_cameras_txt(mapped.posed, posed)
        with pytest.raises(ReconstructionError, match=words) as caught:
            triangulate(mapped.posed, mapped.scene.features, tmp_path / "matches.h5", tmp_path / "map", strict)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "map").exists()
    write_cameras_txt(mapped.posed, views)
    MatchStore(tmp_path / "empty.h5", "a").close()
    with pytest.raises(ReconstructionError, match="match them"):
        triangulate(mapped.posed, mapped.scene.features, tmp_path / "empty.h5", tmp_path / "map")


def test_points_of_doubtful_poses_are_doubted(tmp_path: Path) -> None:
    mapped = write_map(tmp_path)
    write_cameras_txt(mapped.posed, rolled(mapped.scene.views))
    report = triangulate(mapped.posed, mapped.scene.features, tmp_path / "matches.h5", tmp_path / "map")
    assert "check poses" in report.doubts[0]


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    mapped = write_map(tmp_path)
    small = Camera(320, 240, CAMERA.matrix)
    half = [replace(view, name=f"photos/{view.name}", camera=small) for view in mapped.scene.views]
    write_cameras_txt(tmp_path / "half.txt", half)
    (tmp_path / "other.txt").write_text(mapped.posed.read_text().replace("photos/", "photos/x"))
    features, matches, out = mapped.scene.features, tmp_path / "matches.h5", tmp_path / "map"
    (tmp_path / "file").write_text("no folder")
    for action, kind, words in (
        (lambda: triangulate(tmp_path / "half.txt", features, matches, out), DataError, "scale the camera"),
        (lambda: triangulate(tmp_path / "other.txt", features, matches, out), DataError, "none of which is there"),
        (lambda: triangulate(tmp_path / "none", features, matches, out), DataError, "does not exist"),
        (lambda: triangulate(mapped.posed, tmp_path / "none.h5", matches, out), StoreError, "no feature file"),
        (lambda: triangulate(mapped.posed, features, tmp_path / "none.h5", out), StoreError, "no match file"),
        (lambda: triangulate(mapped.posed, features, matches, tmp_path / "file" / "x"), StoreError, "cannot write"),
    ):
        with pytest.raises(kind, match=words) as caught:
            action()
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_place_is_one_line(tmp_path: Path) -> None:
    mapped = write_map(tmp_path)
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="cannot write"):
        triangulate(mapped.posed, mapped.scene.features, tmp_path / "matches.h5", tmp_path / "locked" / "map")


def test_rendered_photos_from_pixels_to_points(gallery: GalleryPhotos, tmp_path: Path) -> None:
    from posfeat.pipeline.extract import RootSiftExtractor

    posed = gallery.folder / "cameras.txt"
    write_cameras_txt(posed, gallery.views)
    made = triangulate_photos(RootSiftExtractor(1000), posed, tmp_path)
    assert made.failures == ()
    assert made.report.model.num_images == len(gallery.views)
    assert made.report.model.num_points > 200
    assert made.report.model.mean_reprojection_error_px < 0.6
    _, _, colours = point_rows(read_model(tmp_path / "sparse" / "0"))
    assert len(np.unique(colours)) > 50
    with pytest.raises(OptionsError, match="--photos"):
        triangulate_photos(RootSiftExtractor(1000), tmp_path / "sparse" / "0", tmp_path / "again")
