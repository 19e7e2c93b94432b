"""Drawn from posed photos, two views have exactly the cameras that come with them, whatever was turned, cut or straightened."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.augment import PhotometricOptions
from posfeat.data.distortion import pinhole_camera, project_points
from posfeat.data.geometric import GeometricOptions
from posfeat.data.images import read_image, resize_image, write_image
from posfeat.data.pair_sample import PairSample
from posfeat.data.posed_source import PosedSource
from posfeat.geometry.epipolar import fundamental_from_cameras, symmetric_epipolar_distance
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.types import Array, Camera, DataError, Pair, View

SIZE = (480, 360)
AS_IT_IS = PhotometricOptions(strength=0)
LENSES: dict[str, tuple[float, ...]] = {
    "PINHOLE": (),
    "OPENCV": (-0.15, 0.04, 0.001, -0.002),
    "OPENCV_FISHEYE": (0.02, -0.01, 0.0, 0.0),
}
POINT = np.array([0.05, -0.03, 4.0])


def camera(model: str) -> Camera:
    return pinhole_camera(*SIZE, (420.0, 410.0, 238.2, 181.7), model, LENSES[model])


def pose(turn: tuple[float, float, float], centre: tuple[float, float, float]) -> Array:
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_from_axis_angle(torch.tensor(turn, dtype=torch.float64)).numpy()
    matrix[:3, 3] = -matrix[:3, :3] @ centre
    return matrix


POSES = (pose((0.05, 0.02, 0.1), (0.0, 0.0, 0.0)), pose((-0.04, -0.15, -0.2), (0.8, 0.1, 0.2)))


def seen_point(view: View) -> Array:
    local = view.cam_from_world[:3, :3] @ POINT + view.cam_from_world[:3, 3]
    return project_points(view.camera, local[None])[0]


def blob_views(folder: Path, model: str, scene: str = "s") -> list[View]:
    """Two photos of one bright spot in space."""
    views = []
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    for number, cam_from_world in enumerate(POSES):
        view = View(folder / f"{scene}_{number}.png", camera(model), cam_from_world, name=str(number), scene=scene)
        centre = seen_point(view)
        blob = 250 * np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * 4.0**2))
        write_image(view.image_path, np.repeat(np.rint(blob).astype(np.uint8)[..., None], 3, -1))
        views.append(view)
    return views


def middle_of_blob(image: np.ndarray) -> Array | None:
    """The centroid of the bright spot where all of it is inside; grey beyond the photo does not count."""
    bright = image.astype(np.float64).min(-1) * (np.ptp(image.astype(int), axis=-1) == 0)
    y, x = np.unravel_index(int(bright.argmax()), bright.shape)
    radius = 30
    if not (radius <= x < image.shape[1] - radius and radius <= y < image.shape[0] - radius):
        return None
    rows, columns = np.mgrid[y - radius : y + radius + 1, x - radius : x + radius + 1]
    weight = bright[rows, columns]
    return np.array([(columns * weight).sum(), (rows * weight).sum()]) / weight.sum()


def epipolar_error_px(sample: PairSample) -> float | None:
    """How far the spot lies from its epipolar lines, for the cameras of the sample; None where it is not in both views."""
    middles = [middle_of_blob(image) for image in (sample.image0, sample.image1)]
    if middles[0] is None or middles[1] is None:
        return None
    matrices = (torch.from_numpy(k) for k in (sample.intrinsics0, sample.intrinsics1, sample.cam1_from_cam0))
    points = (torch.from_numpy(middle)[None] for middle in middles)
    return max(float(one) for one in symmetric_epipolar_distance(fundamental_from_cameras(*matrices), *points))


@pytest.mark.parametrize("model", LENSES)
@pytest.mark.parametrize("any_turn_share", [0.0, 1.0])
def test_the_cameras_stay_true(model: str, any_turn_share: float, tmp_path: Path) -> None:
    views = blob_views(tmp_path, model)
    source = PosedSource([Pair(*views)], GeometricOptions(any_turn_share=any_turn_share, max_zoom=1.5), AS_IT_IS)
    errors = []
    for seed in range(30):
        sample = source.draw(np.random.default_rng(seed), 192, 256)
        assert sample.image0.shape == sample.image1.shape == (192, 256, 3)
        assert sample.has_baseline
        assert np.linalg.norm(sample.cam1_from_cam0[:3, 3]) == pytest.approx(1)
        error = epipolar_error_px(sample)
        if error is not None:
            errors.append(error)
    assert len(errors) > 10
    assert np.median(errors) < 0.03
    assert max(errors) < 0.15


def test_a_photo_of_another_size_than_its_camera_is_resized(tmp_path: Path) -> None:
    views = blob_views(tmp_path, "PINHOLE")
    half = replace(views[0], image_path=tmp_path / "half.png")
    write_image(half.image_path, resize_image(read_image(views[0].image_path), 240, 180))
    source = PosedSource([Pair(half, views[1])], GeometricOptions(strength=0), AS_IT_IS)
    error = epipolar_error_px(source.draw(np.random.default_rng(0), 192, 256))
    assert error is not None
    assert error < 0.1


def test_either_way_round(tmp_path: Path) -> None:
    views = blob_views(tmp_path, "PINHOLE")
    source = PosedSource([Pair(*views)], GeometricOptions(strength=0), AS_IT_IS)
    samples = {sample.name: sample for sample in (source.draw(np.random.default_rng(s), 192, 256) for s in range(12))}
    assert set(samples) == {"s: 0 1", "s: 1 0"}
    there, back = samples["s: 0 1"], samples["s: 1 0"]
    np.testing.assert_array_equal(there.image0, back.image1)
    np.testing.assert_allclose(there.cam1_from_cam0 @ back.cam1_from_cam0, np.eye(4), atol=1e-9)


def test_pairs_without_baseline_stay_marked(tmp_path: Path) -> None:
    """Whoever chose the pair said that it has none, though its poses differ by a trifle."""
    views = blob_views(tmp_path, "PINHOLE")
    near = replace(views[1], cam_from_world=pose((0.0, 0.1, 0.0), (1e-4, 0, 0)))
    source = PosedSource([Pair(views[0], near, has_baseline=False)], look=AS_IT_IS)
    sample = source.draw(np.random.default_rng(0), 96, 128)
    assert not sample.has_baseline
    assert not sample.cam1_from_cam0[:3, 3].any()
    same = PosedSource([Pair(views[0], replace(views[1], cam_from_world=views[0].cam_from_world))], look=AS_IT_IS)
    assert not same.draw(np.random.default_rng(0), 96, 128).has_baseline


def test_no_scene_drowns_the_others(tmp_path: Path) -> None:
    small, large = blob_views(tmp_path, "PINHOLE", "a"), blob_views(tmp_path, "PINHOLE", "b")
    source = PosedSource([Pair(*small), *[Pair(*large)] * 50], GeometricOptions(strength=0), AS_IT_IS)
    scenes = Counter(source.draw(np.random.default_rng(seed), 96, 128).name[0] for seed in range(60))
    assert 15 < scenes["a"] < 45


def test_a_lens_that_leaves_nothing_straight_costs_its_photo_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    views = blob_views(tmp_path, "PINHOLE")
    folded = replace(views[1].camera, model="OPENCV", distortion=(-8.0, 0.0, 0.0, 0.0))
    broken = replace(views[1], camera=folded, image_path=tmp_path / "folded.png")
    source = PosedSource([Pair(*views), Pair(views[0], broken)], look=AS_IT_IS)
    assert [len(pairs) for pairs in source.scenes.values()] == [1]
    assert [record.getMessage().split(" is")[0] for record in caplog.records] == ["folded.png"]
    with pytest.raises(DataError, match="no pair of posed photos has two usable lenses"):
        PosedSource([Pair(views[0], broken)])
    with pytest.raises(DataError, match="no usable pairs of posed photos"):
        PosedSource([])
