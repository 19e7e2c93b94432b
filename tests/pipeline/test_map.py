"""Models from verified matches: right, resumable, repeatable; and a reason wherever there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from posfeat.benchmarks.camera_errors import camera_errors
from posfeat.interop.colmap import read_model, registered_images, views_of_model
from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_mapping import MappingOptions
from posfeat.pipeline.choose_cameras import CameraOptions
from posfeat.pipeline.diagnose import doubts, why_left_out
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.image_quality import ImageQuality, image_qualities, weakest
from posfeat.pipeline.map import map_scene, model_folders
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import Array, Camera, Features, ReconstructionError
from tests.pipeline.projected_scene import CAMERA, ProjectedScene, pose, write_scene

ONE_THREAD = MappingOptions(threads=1)


def database_of(
    folder: Path,
    poses: Sequence[Array],
    cameras: CameraOptions | None = None,
    known: Camera | None = None,
    **named: object,
) -> ProjectedScene:
    """A scene, matched and verified into ``folder/d.db``."""
    scene = write_scene(folder, poses, **named)  # type: ignore[arg-type]
    verify(folder, scene, cameras, known)
    return scene


def verify(
    folder: Path, scene: ProjectedScene, cameras: CameraOptions | None = None, known: Camera | None = None
) -> None:
    with FeatureStore(scene.features) as store:
        names = store.names()
    match_pairs(scene.features, all_pairs(names), folder / "m.h5")
    known_cameras = None if known is None else dict.fromkeys(names, known)
    verify_pairs(
        scene.features, folder / "m.h5", scene.photos, folder / "d.db", None, cameras, known_cameras=known_cameras
    )


@pytest.mark.parametrize("mapper", ["incremental", "global"])
def test_cameras_are_where_they_were(tmp_path: Path, mapper: str) -> None:
    scene = database_of(tmp_path, [pose(angle) for angle in range(-40, 41, 16)], CameraOptions(share="single"))
    heard: list[tuple[int, int]] = []
    options = MappingOptions(mapper=mapper, threads=1)  # type: ignore[arg-type]
    report = map_scene(
        tmp_path / "d.db", scene.photos, tmp_path / "sparse", options, progress=lambda *done: heard.append(done)
    )
    (model,) = report.models
    assert (model.num_images, report.num_photos, model.num_cameras, report.was_there) == (6, 6, 1, False)
    assert model.num_points > 200
    assert model.mean_track_length > 5
    errors = camera_errors(views_of_model(read_model(tmp_path / "sparse" / "0"), scene.photos), scene.views)
    assert errors.mean_centre_percent < 0.2
    assert errors.mean_rotation_deg < 0.1
    assert not heard or heard[-1] == (6, 6)
    again = map_scene(tmp_path / "d.db", scene.photos, tmp_path / "sparse", options)
    assert again.was_there
    (found,) = again.models
    assert asdict(found) == pytest.approx(asdict(model))
    other = map_scene(tmp_path / "d.db", scene.photos, tmp_path / "sparse", replace(options, min_matches=20))
    assert not other.was_there


def test_the_same_model_each_time(tmp_path: Path) -> None:
    scene = database_of(tmp_path, [pose(angle) for angle in (-30, -15, 0, 15, 30)], noise_px=0.8)
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        map_scene(tmp_path / "d.db", scene.photos, folder, ONE_THREAD)
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        first, second = ((folder / "0" / name).read_bytes() for folder in folders)
        assert first == second


def test_points_have_the_photos_colours(tmp_path: Path) -> None:
    scene = database_of(tmp_path, [pose(angle) for angle in (-15, 0, 15)])
    map_scene(tmp_path / "d.db", scene.photos, tmp_path / "sparse", ONE_THREAD)
    model = read_model(tmp_path / "sparse" / "0")
    assert {tuple(point.color) for point in model.points3D.values()} == {(90, 90, 90)}


def test_two_places_are_two_models(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, [pose(angle) for angle in (-30, -15, 0, 15, 30)], num_points=130)
    (tmp_path / "b").mkdir()
    far = write_scene(
        tmp_path / "b", [pose(angle) for angle in (-15, 0, 15)], num_points=130, names=["x.png", "y.png", "z.png"]
    )
    generator = np.random.default_rng(5)
    with FeatureStore(scene.features, "a") as store, FeatureStore(far.features) as other:
        turn = np.linalg.qr(generator.normal(size=(32, 32)))[0].astype(np.float32)
        for view in far.views:  # the same shape elsewhere: its descriptors are turned away from the first place's
            features = other.read(view.name)
            turned = features.descriptors @ features.descriptors.new_tensor(turn)
            store.write(view.name, replace(features, descriptors=turned))
            (scene.photos / view.name).write_bytes((far.photos / view.name).read_bytes())
        blank = Features(
            *(tensor[:3] for tensor in (features.keypoints, features.scores, features.descriptors)), (640, 480)
        )
        store.write("zz blank.png", blank)
    verify(tmp_path, scene, CameraOptions(share="single"))
    report = map_scene(tmp_path / "d.db", scene.photos, tmp_path / "sparse", ONE_THREAD)
    assert [model.num_images for model in report.models] == [5, 3]
    model = read_model(model_folders(tmp_path / "sparse")[0])
    with ColmapDatabase(tmp_path / "d.db") as database:
        reasons = why_left_out(database, {str(image.name) for image in registered_images(model)})
        pairs = database.pairs()
        assert doubts(database, model) == []
    assert set(reasons) == {"x.png", "y.png", "z.png", "zz blank.png"}
    assert "3 keypoints" in reasons["zz blank.png"]
    assert "outside the model (y.png, z.png)" in reasons["x.png"]
    qualities = image_qualities(model, pairs)
    assert [quality.num_partners for quality in qualities] == [4] * 5
    assert all(0 < quality.mean_error_px < 0.5 and quality.num_points > 100 for quality in qualities)
    assert weakest(qualities) == {}


def no_model(folder: Path) -> str:
    with pytest.raises(ReconstructionError) as caught:
        map_scene(folder / "d.db", folder / "photos", folder / "sparse", ONE_THREAD)
    assert not (folder / "sparse").exists()
    assert not (folder / "sparse.part").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_one_photo_is_no_model(tmp_path: Path) -> None:
    database_of(tmp_path, [pose(0)])
    assert "at least two photos" in no_model(tmp_path)


def test_copies_of_one_photo_have_no_baseline(tmp_path: Path) -> None:
    database_of(tmp_path, [pose(0)] * 4, noise_px=0.1)
    assert "no baseline: the photos are copies" in no_model(tmp_path)


def test_photos_from_one_place_have_no_baseline(tmp_path: Path) -> None:
    """The camera turns about its own centre, and its focal length is known."""
    still = pose(0)
    poses = []
    for angle in (0.0, 4.0, 8.0, 12.0):
        turn = pose(angle)
        turn[:3, 3] = 0
        poses.append(turn @ still)
    database_of(tmp_path, poses, known=CAMERA)
    assert "no baseline: in the best pairs rays meet at" in no_model(tmp_path)


def test_too_few_matches(tmp_path: Path) -> None:
    database_of(tmp_path, [pose(0), pose(10), pose(20)], num_points=28)
    assert "has 28 verified matches" in no_model(tmp_path)


def test_photos_without_overlap(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, [pose(0), pose(10), pose(20)])
    rng = np.random.default_rng(3)
    with FeatureStore(scene.features, "a") as store:
        for view in scene.views:  # what looks alike is somewhere else in every photo
            features = store.read(view.name)
            anywhere = rng.uniform(0, [640, 480], (len(features), 2))
            store.write(view.name, replace(features, keypoints=features.keypoints.new_tensor(anywhere)))
    verify(tmp_path, scene)
    assert "no matches can be trusted" in no_model(tmp_path)


def test_keypoints_on_nothing(tmp_path: Path) -> None:
    database_of(tmp_path, [pose(0), pose(10)], num_points=5)
    assert "no photo has keypoints enough" in no_model(tmp_path)


def test_wrong_intrinsics_are_doubted(tmp_path: Path) -> None:
    wrong = replace(CAMERA, matrix=np.array([[150.0, 0, 319.5], [0, 150, 239.5], [0, 0, 1]]))
    scene = database_of(tmp_path, [pose(angle) for angle in (-24, -12, 0, 12, 24)], known=wrong)
    fixed = MappingOptions(refine_focal_length=False, refine_distortion=False, threads=1)
    map_scene(tmp_path / "d.db", scene.photos, tmp_path / "sparse", fixed)
    with ColmapDatabase(tmp_path / "d.db") as database:
        lines = doubts(database, read_model(tmp_path / "sparse" / "0"))
    assert any("contradict the known focal lengths" in line for line in lines)
    map_scene(tmp_path / "d.db", scene.photos, tmp_path / "refined", ONE_THREAD)
    with ColmapDatabase(tmp_path / "d.db") as database:
        lines = doubts(database, read_model(tmp_path / "refined" / "0"))
    assert any("off by more than a quarter" in line for line in lines)


def test_a_database_without_matches(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with ColmapDatabase(tmp_path / "d.db") as database:
        camera_id = database.add_camera(CAMERA)
        for name in ("a.png", "b.png"):
            database.add_image(name, camera_id)
            database.write_keypoints(name, np.random.default_rng(0).uniform(0, 400, (50, 2)))
    assert "too few matches: no pair has matches" in no_model(tmp_path)


def test_weak_photos_are_named() -> None:
    good = [ImageQuality(f"{i}.jpg", 500, 1000, 0.5, 9, 700.0) for i in range(9)]
    few, off = ImageQuality("few.jpg", 20, 1000, 0.5, 9, 700.0), ImageQuality("off.jpg", 500, 1000, 1.5, 1, 700.0)
    reasons = weakest([*good, few, off])
    assert list(reasons) == ["few.jpg", "off.jpg"]
    assert reasons["few.jpg"] == "it sees 20 points, the median photo 500"
    assert "1.50 px off" in reasons["off.jpg"]
    assert "1 other photo only" in reasons["off.jpg"]
    assert weakest([]) == {}
