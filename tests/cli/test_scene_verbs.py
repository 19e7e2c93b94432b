"""From photos to a model and to the pose of a new photo, verb by verb, and the same again, which has nothing to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posfeat as package
from posfeat.data.images import read_image
from posfeat.interop.visual_localization import read_poses
from tests.pipeline.conftest import GalleryPhotos
from tests.pipeline.conftest import gallery as gallery

pytest.importorskip("pycolmap")
Posfeat = Callable[..., Any]
NEW = "new.png"
ROOTSIFT = ("--features", "rootsift", "--max-keypoints", 1000)


@pytest.fixture
def folder(gallery: GalleryPhotos, tmp_path: Path) -> Path:
    """All photos but one, and that one by itself."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "new").mkdir()
    for view in gallery.views[1:]:
        shutil.copy(view.image_path, tmp_path / "photos")
    shutil.copy(gallery.views[0].image_path, tmp_path / "new" / NEW)
    return tmp_path


def test_every_step_is_a_verb(posfeat: Posfeat, folder: Path) -> None:
    photos, scene, new = folder / "photos", folder / "scene", folder / "new"
    features, pairs, matches, database, sparse = (
        scene / name for name in ("features.h5", "pairs.txt", "matches.h5", "database.db", "sparse")
    )
    steps = (
        (("extract", photos, "-o", features, *ROOTSIFT), ""),
        (("pairs", features, "-o", pairs), "21 of 7 photos (exhaustive)"),
        (("match", features, "--pairs", pairs, "-o", matches, "--ratio", 0.8), ""),
        (("verify", features, matches, photos, "-o", database, "--share-camera", "single"), "there already: 21"),
        (("map", database, photos, "-o", sparse, "--deterministic"), "there already"),
        (("export", "scene", sparse / "0", photos, "-o", scene), "transforms.json"),
    )
    for words, _ in steps:
        assert posfeat(*words)[::2] == (0, "")
    for words, said_again in steps:
        run = posfeat(*words)
        assert (run.code, said_again in run.out) == (0, True), run
    poses, details = folder / "poses.txt", folder / "details.jsonl"
    assert "localized: 1 of 1" in posfeat("localize", scene, new, "-o", poses, "--details", details).out
    assert list(read_poses(poses)) == [NEW]
    detail = json.loads(details.read_text())
    with package.Localizer(scene) as localizer:
        found = localizer.localize(new / NEW)
        again = localizer.localize(read_image(new / NEW))
    np.testing.assert_allclose(found.cam_from_world, read_poses(poses)[NEW], atol=1e-9)
    np.testing.assert_allclose(found.cam_from_world, again.cam_from_world, atol=1e-9)
    assert found.num_inliers == detail["num_inliers"] > 30
    assert found.covariance.shape == (6, 6)


def test_one_command_for_all_of_it(posfeat: Posfeat, folder: Path) -> None:
    """Its summary says how it went: photos, points, tracks, errors, and where the time went."""
    command = ("reconstruct", folder / "photos", "-o", folder / "scene", *ROOTSIFT, "--share-camera", "single")
    options = ("--mapper", "global", "--pairs", "sequential", "--overlap", 6, "--deterministic", "--format", "ply")
    run = posfeat(*command, *options)
    assert (run.code, run.err) == (0, "")
    for words in ("7 of 7 photos", " points, track length ", "reprojection error", "seconds: extract", "report.html"):
        assert words in run.out
    posed, old = folder / "map", folder / "scene" / "sparse" / "0"
    run = posfeat("triangulate", old, folder / "scene" / "features.h5", folder / "scene" / "matches.h5", "-o", posed)
    assert (run.code, run.err) == (0, "")
    assert "matches that agree with the poses" in run.out
    by_poses = ("pairs", folder / "scene" / "features.h5", "-o", folder / "p.txt", "--cameras", old)
    for method in ("poses", "covisibility"):
        assert f"of 7 photos ({method})" in posfeat(*by_poses, "--pairs", method, "--neighbours", 2).out
    mine = folder / "mine.txt"
    mine.write_text("\n".join((folder / "p.txt").read_text().splitlines()[:3]) + "\n")
    assert "pairs: 3 of 7 photos (list)" in posfeat(*by_poses, "--list", mine).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reconstruct", "nowhere"), "no image folder nowhere"),
        (("reconstruct", "photos", "--camera-model", "SIMPEL_RADIAL"), "did you mean SIMPLE_RADIAL?"),
        (("reconstruct", "photos", "--camera-params", "920,a"), "numbers with commas"),
        (("reconstruct", "photos", "--camera-params", "920,512"), "has 4 parameters, not 2"),
        (("reconstruct", "photos", "--pairs", "poses"), "name their folder with --cameras"),
        (("reconstruct", "photos", "--pairs", "list"), "name it with --list"),
        (("reconstruct", "photos", "--cameras", "nowhere"), "nowhere"),
        (("pairs", "nowhere.h5"), "nowhere.h5"),
        (("verify", "nowhere.h5", "nowhere.h5", "photos"), "nowhere.h5"),
        (("map", "nowhere.db", "photos"), "nowhere.db"),
        (("export", "scene", "nowhere", "photos"), "no model folder nowhere"),
        (("localize", "nowhere", "photos"), "no COLMAP model in nowhere"),
        (("triangulate", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    posfeat: Posfeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    shutil.copy(Path(package.__file__).parents[1] / "docs" / "matches.jpg", tmp_path / "photos" / "a.jpg")
    extra = ROOTSIFT if words[0] in ("reconstruct", "triangulate") else ()
    run = posfeat(*words, *extra)
    assert run.code == 2
    assert run.err.startswith("posfeat: error: ")
    assert said in run.err
    assert run.err.count("\n") == 1
    assert not (tmp_path / "nowhere.db").exists()
