"""Photos placed in a map: where they were taken, with or without knowing the camera, and one line where that fails."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest

from posfeat.interop.absolute_pose import AbsolutePoseOptions
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.localize import LocalizationOptions, Localizer
from posfeat.types import Camera, DataError, Features, OptionsError, ReconstructionError
from tests.pipeline.mapped_scene import MappedScene, pose_errors, queries_of, write_map
from tests.pipeline.projected_scene import CAMERA

pytest.importorskip("pycolmap")

NOISE_PX = 0.5


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> MappedScene:
    return write_map(tmp_path_factory.mktemp("map"), noise_px=NOISE_PX)


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_poses_are_found_and_the_map_stays_as_it_is(mapped: MappedScene) -> None:
    before = content(mapped.folder)
    with Localizer(mapped.folder) as localizer:
        found = [localizer.localize_features(features, view.camera) for view, features in mapped.queries]
    assert content(mapped.folder) == before
    for one, (view, features) in zip(found, mapped.queries, strict=True):
        distance, angle = pose_errors(one.cam_from_world, view.cam_from_world)
        assert distance < 0.02  # the cameras stand 5 from a ball of 1.5
        assert angle < 0.1
        assert one.num_inliers > 0.9 * len(features)
        assert one.num_matches >= one.num_inliers == len(one.points)
        assert one.reprojection_error_px < 2 * NOISE_PX
        assert np.array_equal(one.camera.matrix, view.camera.matrix)
        np.testing.assert_allclose(one.centre, np.linalg.inv(one.cam_from_world)[:3, 3])


def test_an_exact_photo_has_an_exact_pose(tmp_path: Path) -> None:
    exact = write_map(tmp_path)
    with Localizer(tmp_path / "sparse" / "0", features=exact.scene.features) as localizer:
        for view, features in exact.queries:
            found = localizer.localize_features(features, view.camera)
            distance, angle = pose_errors(found.cam_from_world, view.cam_from_world)
            assert distance < 1e-4
            assert angle < 1e-3


def test_a_pose_says_how_certain_it_is(mapped: MappedScene) -> None:
    """Over many photos of one place, errors are as large as the covariances say: neither twice nor half."""
    queries = queries_of((3.0,) * 16, noise_px=NOISE_PX)
    ratios = []
    with Localizer(mapped.folder) as localizer:
        for view, features in queries:
            found = localizer.localize_features(features, CAMERA)
            true_centre = np.linalg.inv(view.cam_from_world)[:3, 3]
            error = found.centre - true_centre
            ratios.append(error @ np.linalg.solve(found.covariance[3:, 3:], error))
            assert 0 < found.centre_deviation < 0.02
    # 3 for a perfect map; the map's own points are off by a third of a query's noise
    assert 1.5 < np.mean(ratios) < 7


@pytest.mark.parametrize("focal_px", [450.0, 900.0])
def test_an_unknown_focal_length_is_found(mapped: MappedScene, focal_px: float) -> None:
    camera = Camera(640, 480, np.array([[focal_px, 0, 319.5], [0, focal_px, 239.5], [0, 0, 1]]))
    ((view, features),) = queries_of((5.0,), camera, NOISE_PX)
    with Localizer(mapped.folder) as localizer:
        unknown = localizer.localize_features(features)
        about = localizer.localize_features(features, focal_px=0.9 * focal_px)
        known = localizer.localize_features(features, camera)
    for found in (unknown, about):
        assert found.camera.matrix[0, 0] == pytest.approx(focal_px, rel=0.02)
        distance, angle = pose_errors(found.cam_from_world, view.cam_from_world)
        assert distance < 0.1
        assert angle < 0.2
        assert found.centre_deviation > known.centre_deviation


def test_the_maps_camera_is_tried_as_it_is(mapped: MappedScene) -> None:
    view, features = mapped.queries[0]
    with Localizer(mapped.folder) as localizer:
        found = localizer.localize_features(features)
    np.testing.assert_allclose(found.camera.matrix, view.camera.matrix, atol=1e-6)


def test_only_similar_images_are_matched(mapped: MappedScene) -> None:
    view, features = mapped.queries[1]
    with Localizer(mapped.folder, options=LocalizationOptions(retrieved=3)) as localizer:
        found = localizer.localize_features(features, view.camera)
    assert len(found.images) == 3
    assert pose_errors(found.cam_from_world, view.cam_from_world)[0] < 0.03


def test_the_same_each_time(mapped: MappedScene) -> None:
    poses = []
    for _ in range(2):
        with Localizer(mapped.folder) as localizer:
            poses.append(localizer.localize_features(mapped.queries[2][1]).cam_from_world)
    assert np.array_equal(*poses)


def test_wrong_matches_are_no_pose(mapped: MappedScene) -> None:
    """The right descriptors at random places: many matches, and none of them means anything."""
    view, features = mapped.queries[0]
    rng = np.random.default_rng(0)
    anywhere = features.keypoints.new_tensor(rng.uniform(0, [640, 480], (len(features), 2)))
    with Localizer(mapped.folder) as localizer:
        for camera in (view.camera, None):
            with pytest.raises(ReconstructionError, match="no more agree on a pose than by chance") as caught:
                localizer.localize_features(dataclasses.replace(features, keypoints=anywhere), camera, name="q.jpg")
            assert str(caught.value).startswith("q.jpg is not localized")


def test_a_photo_of_elsewhere_or_of_nothing_is_one_line(mapped: MappedScene) -> None:
    view, features = mapped.queries[0]
    few = Features(*(part[:5] for part in (features.keypoints, features.scores, features.descriptors)), (640, 480))
    none = Features(*(part[:0] for part in (features.keypoints, features.scores, features.descriptors)), (640, 480))
    with Localizer(mapped.folder) as localizer:
        for nothing in (few, none):
            with pytest.raises(ReconstructionError, match="does the map show that place") as caught:
                localizer.localize_features(nothing, view.camera)
            assert "\n" not in str(caught.value)
        with pytest.raises(OptionsError, match="scale the camera"):
            localizer.localize_features(features, Camera(320, 240, CAMERA.matrix))
        strict = LocalizationOptions(pose=AbsolutePoseOptions(min_inliers=10_000))
        localizer.options = strict
        with pytest.raises(ReconstructionError, match="10000 are needed"):
            localizer.localize_features(features, view.camera)


def test_a_map_that_is_none(mapped: MappedScene, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no COLMAP model"):
        Localizer(tmp_path / "empty")
    other = tmp_path / "other.h5"
    view, features = mapped.queries[0]
    with FeatureStore(other, "a") as store:
        store.write("elsewhere.jpg", features)
    with pytest.raises(DataError, match="features of no image of the map"):
        Localizer(mapped.folder, features=other)
    moved = tmp_path / "moved.h5"
    with FeatureStore(mapped.scene.features) as ours, FeatureStore(moved, "a") as store:
        for name in ours.names():
            read = ours.read(name)
            store.write(name, dataclasses.replace(read, keypoints=read.keypoints + 3))
    with (
        Localizer(mapped.folder, features=moved) as localizer,
        pytest.raises(DataError, match="was not made of the keypoints"),
    ):
        localizer.localize_features(features, view.camera)
