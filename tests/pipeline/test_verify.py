"""From features and matches to a database: cameras, resuming, other people's files, interruptions."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_mapping import VerificationOptions
from posfeat.pipeline import verify as module
from posfeat.pipeline.choose_cameras import CameraOptions, choose_cameras
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import Camera, DataError, Features, OptionsError, ReconstructionError, StoreError
from tests.pipeline.projected_scene import CAMERA, WIDTH, ProjectedScene, pose, write_scene

unix_only = pytest.mark.skipif(os.name != "posix", reason="uses fork and signals")
ANGLES = (-24, -12, 0, 12, 24)


@pytest.fixture
def scene(tmp_path: Path) -> ProjectedScene:
    made = write_scene(
        tmp_path, [pose(angle) for angle in ANGLES], names=["b/0.png", "b/1 x.png", "c.png", "d.png", "e.png"]
    )
    match_pairs(made.features, all_pairs([view.name for view in made.views]), tmp_path / "m.h5")
    return made


def verified(scene: ProjectedScene, folder: Path, **named: object) -> module.VerificationReport:
    return verify_pairs(scene.features, folder / "m.h5", scene.photos, folder / "d.db", **named)  # type: ignore[arg-type]


def test_all_pairs_are_verified_once(scene: ProjectedScene, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    report = verified(scene, tmp_path, progress=lambda *done: heard.append(done))
    assert (report.num_images, report.num_cameras, report.num_pairs, report.num_verified) == (5, 5, 10, 10)
    assert (report.num_known, report.failures, heard[-1]) == (0, (), (10, 10))
    with ColmapDatabase(tmp_path / "d.db") as database, FeatureStore(scene.features) as store:
        assert np.allclose(database.keypoints("b/1 x.png"), store.read("b/1 x.png").keypoints.numpy())
        assert all(pair.configuration in ("CALIBRATED", "UNCALIBRATED") for pair in database.pairs())
    again = verified(scene, tmp_path)
    assert (again.num_known, again.num_verified) == (10, 10)


def test_what_was_refused_is_not_looked_at_again(scene: ProjectedScene, tmp_path: Path) -> None:
    verified(scene, tmp_path, pairs=all_pairs([view.name for view in scene.views])[:4])
    with ColmapDatabase(tmp_path / "d.db") as database:
        database.write_geometry("b/0.png", "c.png", module.NOTHING)
        before = database.geometry("b/0.png", "d.png")
    assert verified(scene, tmp_path).num_verified == 9
    with ColmapDatabase(tmp_path / "d.db") as database:
        after = database.geometry("b/0.png", "d.png")
    assert before is not None
    assert after is not None
    assert np.array_equal(before.inliers, after.inliers)


def test_new_matches_join_and_new_settings_start_anew(scene: ProjectedScene, tmp_path: Path) -> None:
    first = all_pairs([view.name for view in scene.views])[:4]
    assert verified(scene, tmp_path, pairs=first).num_pairs == 4
    assert verified(scene, tmp_path).num_known == 4
    one_camera = CameraOptions(share="single")
    report = verified(scene, tmp_path, cameras=one_camera)
    assert (report.num_known, report.num_cameras, report.num_pairs) == (0, 1, 10)
    assert verified(scene, tmp_path, cameras=one_camera, options=VerificationOptions(threads=1)).num_known == 10
    fewer = verified(scene, tmp_path, cameras=one_camera, images={"c.png", "d.png", "e.png"})
    assert (fewer.num_images, fewer.num_pairs) == (3, 3)


def test_known_cameras_are_taken_as_they_are(scene: ProjectedScene, tmp_path: Path) -> None:
    verified(scene, tmp_path, known_cameras={view.name: view.camera for view in scene.views[:4]})
    with ColmapDatabase(tmp_path / "d.db") as database:
        assert len(set(database.camera_ids().values())) == 2
        assert np.array_equal(database.camera("c.png").matrix, CAMERA.matrix)
        assert [database.focal_is_known(name) for name in ("c.png", "e.png")] == [True, False]
        assert database.camera("e.png").matrix[0, 0] == 1.2 * WIDTH
        calibrated = [pair for pair in database.pairs() if "e.png" not in (pair.name0, pair.name1)]
        assert {pair.configuration for pair in calibrated} == {"CALIBRATED"}
        assert database.parallax_deg("b/0.png", "d.png") == pytest.approx(36, abs=2)


def test_matches_of_other_images_are_told_of(scene: ProjectedScene, tmp_path: Path) -> None:
    import torch

    from posfeat.types import Matches

    with MatchStore(tmp_path / "m.h5", "a") as store:
        store.write("c.png", "gone.png", Matches(torch.zeros(0, 2, dtype=torch.long), torch.zeros(0)), 10)
    lines: list[str] = []
    report = verified(scene, tmp_path, on_failure=lines.append)
    assert report.num_pairs == 10
    assert list(report.failures) == lines
    assert "gone.png, of which" in lines[0]
    missing = verified(scene, tmp_path, pairs=[("c.png", "d.png"), ("d.png", "d.png")])
    assert missing.failures[0].endswith("no matches of d.png and d.png; match them first")


def test_regions_that_look_alike_are_no_geometry(tmp_path: Path) -> None:
    """Different photos, lawn below and roof above: matches join the same heights, and nearly level lines fit dozens."""
    rng = np.random.default_rng(0)
    alike = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(600, 32))).float(), dim=1)
    bands = rng.choice([120.0, 350.0], 600)
    names = ["a.png", "b.png", "c.png"]
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        for name in names:
            xy = np.stack([rng.uniform(0, WIDTH, 600), rng.normal(bands, 15)], axis=1)
            store.write(name, Features(torch.from_numpy(xy).float(), torch.ones(600), alike, (WIDTH, 480)))
    match_pairs(tmp_path / "f.h5", all_pairs(names), tmp_path / "m.h5")
    report = verify_pairs(tmp_path / "f.h5", tmp_path / "m.h5", tmp_path, tmp_path / "d.db")
    assert (report.num_pairs, report.num_verified) == (3, 0)


def test_files_of_other_tools_write_slashes_as_dashes(scene: ProjectedScene, tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "m.h5") as ours, h5py.File(tmp_path / "hloc.h5", "w") as theirs:
        for name in ("matches0", "matching_scores0"):
            theirs[f"b-0.png/c.png/{name}"] = ours[f"b-0.png/c.png/{name}"][()]
    report = verify_pairs(scene.features, tmp_path / "hloc.h5", scene.photos, tmp_path / "h.db")
    assert (report.num_pairs, report.num_verified, report.failures) == (1, 1, ())


SIZES = {"a/1.jpg": (640, 480), "a/2.jpg": (640, 480), "b/3.jpg": (640, 480), "b/4.jpg": (480, 640)}


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        (CameraOptions(), [["a/1.jpg"], ["a/2.jpg"], ["b/3.jpg"], ["b/4.jpg"]]),
        (CameraOptions(share="single"), [["a/1.jpg", "a/2.jpg", "b/3.jpg"], ["b/4.jpg"]]),
        (CameraOptions(share="folder"), [["a/1.jpg", "a/2.jpg"], ["b/3.jpg"], ["b/4.jpg"]]),
        (CameraOptions(model="PINHOLE", params=(1, 2, 3, 4)), [["a/1.jpg", "a/2.jpg", "b/3.jpg"], ["b/4.jpg"]]),
    ],
    ids=["auto", "single", "folder", "params"],
)
def test_who_shares_a_camera(tmp_path: Path, options: CameraOptions, groups: list[list[str]]) -> None:
    """None of these photos has EXIF, and a portrait never shares with a landscape."""
    found = choose_cameras(SIZES, tmp_path, options)
    assert [list(group.names) for group in found] == groups
    assert all((group.camera.width, group.camera.height) == SIZES[group.names[0]] for group in found)
    assert all(group.focal_is_known == bool(options.params) for group in found)


def test_photos_of_one_camera_by_exif(tmp_path: Path) -> None:
    from PIL import Image

    for name, maker, focal in (
        ("1.jpg", "House", 28),
        ("2.jpg", "House", 28),
        ("3.jpg", "House", 50),
        ("4.jpg", "", 0),
    ):
        photo = Image.new("RGB", (60, 40))
        exif = photo.getexif()
        if maker:
            exif[0x010F], exif[0x0110] = maker, "One"
            exif.get_ifd(0x8769)[0xA405] = focal
        exif[0x0112] = 6  # stored lying on its side: the size is that of the stored pixels
        photo.save(tmp_path / name, exif=exif)
    sizes = dict.fromkeys(("1.jpg", "2.jpg", "3.jpg", "4.jpg"), (60, 40))
    found = choose_cameras(sizes, tmp_path, CameraOptions())
    assert [group.names for group in found] == [("1.jpg", "2.jpg"), ("3.jpg",), ("4.jpg",)]
    assert [group.focal_is_known for group in found] == [True, True, False]
    assert {(group.camera.width, group.camera.height) for group in found} == {(60, 40)}
    assert found[1].camera.matrix[0, 0] > 1.7 * found[0].camera.matrix[0, 0]


def test_mistakes_about_cameras(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="did you mean PINHOLE"):
        CameraOptions(model="pinhole")
    with pytest.raises(OptionsError, match="4 parameters, not 2"):
        CameraOptions(model="PINHOLE", params=(1.0, 2.0))
    known = {"a/1.jpg": Camera(100, 100, np.eye(3))}
    with pytest.raises(OptionsError, match="scale the camera"):
        choose_cameras(SIZES, tmp_path, CameraOptions(), known)


def test_nothing_to_verify(tmp_path: Path) -> None:
    for store in (FeatureStore(tmp_path / "f.h5", "a"), MatchStore(tmp_path / "m.h5", "a")):
        store.close()
    with pytest.raises(DataError, match="holds no images"):
        verify_pairs(tmp_path / "f.h5", tmp_path / "m.h5", tmp_path, tmp_path / "d.db")
    (tmp_path / "file").write_text("")
    with pytest.raises((StoreError, ReconstructionError)) as caught:
        verify_pairs(tmp_path / "f.h5", tmp_path / "m.h5", tmp_path, tmp_path / "file" / "d.db")
    assert "\n" not in str(caught.value)


@unix_only
def test_killed_at_any_moment_it_goes_on(
    scene: ProjectedScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifying process is killed again and again; in the end everything is there, and verified once."""
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 2)
    moments = random.Random(0)
    killed = 0
    for _ in range(8):
        killed += run_and_kill(lambda: verified(scene, tmp_path), moments.uniform(0.0, 0.15))
    report = verified(scene, tmp_path)
    assert (report.num_images, report.num_pairs, report.num_verified) == (5, 10, 10)
    assert killed > 0


def run_and_kill(work: Callable[[], object], after_s: float) -> bool:
    """Whether the process was still at work when it was killed."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@unix_only
def test_a_full_disk_is_one_line(scene: ProjectedScene, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
        with pytest.raises((StoreError, ReconstructionError)) as caught:
            verified(scene, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert verified(scene, tmp_path).num_verified == 10
