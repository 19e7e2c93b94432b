"""Our reader of COLMAP models against models that pycolmap wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from posfeat.data.colmap import read_colmap
from posfeat.data.distortion import project_points
from posfeat.types import DataError, View
from tests.data.colmap_models import colmap_camera, known_to_pycolmap, pycolmap, synthetic_reconstruction


def written(reconstruction: object, folder: Path, kind: str, layout: str = "new") -> Path:
    """A model on disk; the old layout has neither rigs nor frames."""
    folder.mkdir()
    (reconstruction.write_binary if kind == "bin" else reconstruction.write_text)(str(folder))  # type: ignore[attr-defined]
    if layout == "old":
        for name in ("rigs", "frames"):
            (folder / f"{name}.{kind}").unlink()
    return folder


def assert_same(views: list[View], reconstruction: object) -> None:
    images = {image.name: image for image in reconstruction.images.values()}  # type: ignore[attr-defined]
    assert sorted(view.name for view in views) == sorted(images)
    for view in views:
        image = images[view.name]
        assert np.abs(view.cam_from_world[:3] - image.cam_from_world().matrix()).max() < 1e-9
        seen = sorted(point.point3D_id for point in image.points2D if point.has_point3D())
        assert view.point_ids is not None
        assert view.point_ids.tolist() == seen
        points = np.array([reconstruction.points3D[number].xyz for number in seen])  # type: ignore[attr-defined]
        local = points @ view.cam_from_world[:3, :3].T + view.cam_from_world[:3, 3]
        theirs = image.camera.img_from_cam(local)
        assert np.abs(project_points(view.camera, local) + 0.5 - theirs).max() < 1e-6
        assert view.depth_range is not None
        assert view.depth_range[0] < np.median(local[:, 2]) < view.depth_range[1]


@pytest.mark.parametrize("kind", ["bin", "txt"])
@pytest.mark.parametrize("layout", ["new", "old"])
@pytest.mark.parametrize("cameras_per_rig", [1, 2])
def test_models_read_as_pycolmap_wrote_them(tmp_path: Path, kind: str, layout: str, cameras_per_rig: int) -> None:
    """With two cameras in a rig, the poses in ``images`` are those of the cameras, not of the frames."""
    reconstruction = synthetic_reconstruction(cameras_per_rig=cameras_per_rig)
    views = read_colmap(written(reconstruction, tmp_path / "model", kind, layout), tmp_path)
    assert_same(views, reconstruction)
    assert views[0].image_path == tmp_path / views[0].name


@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_every_lens_model_is_read(tmp_path: Path, kind: str) -> None:
    reconstruction = pycolmap.Reconstruction()
    models = known_to_pycolmap()
    for number, model in enumerate(models, start=1):
        reconstruction.add_camera_with_trivial_rig(colmap_camera(model, number))
        image = pycolmap.Image(image_id=number, camera_id=number, name=f"photo {model}.jpg")
        reconstruction.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pycolmap.Rotation3d(), [0.1, 0.2, number]))
    views = read_colmap(written(reconstruction, tmp_path / "model", kind), tmp_path)
    assert [view.camera.model for view in views] == models
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (100, 3)) * [1, 1, 0] + [0, 0, 1]
    for number, view in enumerate(views, start=1):
        camera = reconstruction.cameras[number]
        assert np.abs(project_points(view.camera, points) + 0.5 - camera.img_from_cam(points)).max() < 1e-6
        assert view.point_ids is None
        assert view.name == f"photo {view.camera.model}.jpg"


def test_binary_and_text_give_the_same(tmp_path: Path) -> None:
    reconstruction = synthetic_reconstruction()
    binary = read_colmap(written(reconstruction, tmp_path / "bin", "bin"), tmp_path)
    text = read_colmap(written(reconstruction, tmp_path / "txt", "txt"), tmp_path)
    for view0, view1 in zip(binary, text, strict=True):
        assert np.allclose(view0.cam_from_world, view1.cam_from_world, atol=1e-12)
        assert np.array_equal(view0.point_ids, view1.point_ids)  # type: ignore[arg-type]
        assert view0.depth_range == pytest.approx(view1.depth_range)


@pytest.mark.parametrize("name", ["images", "cameras", "points3D"])
def test_files_that_end_early_are_one_line(tmp_path: Path, name: str) -> None:
    model = written(synthetic_reconstruction(), tmp_path / "model", "bin")
    whole = (model / f"{name}.bin").read_bytes()
    for size in (4, 30, len(whole) // 2, len(whole) - 3):
        (model / f"{name}.bin").write_bytes(whole[:size])
        with pytest.raises(DataError, match="damaged or cut off") as error:
            read_colmap(model, tmp_path)
        assert "\n" not in str(error.value)


def test_a_huge_number_of_images_is_an_error_not_a_long_wait(tmp_path: Path) -> None:
    model = written(synthetic_reconstruction(), tmp_path / "model", "bin")
    for name in ("images", "cameras", "points3D"):
        whole = (model / f"{name}.bin").read_bytes()
        (model / f"{name}.bin").write_bytes(struct.pack("<Q", 2**60) + whole[8:])
        with pytest.raises(DataError, match="damaged or cut off"):
            read_colmap(model, tmp_path)
        (model / f"{name}.bin").write_bytes(whole)


def test_images_without_points_have_an_empty_second_line(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text("# a comment\n7 PINHOLE 640 480 500 500 320 240\n")
    (tmp_path / "images.txt").write_text("# two lines each\n2 1 0 0 0 0 0 1 7 b.jpg\n\n1 1 0 0 0 0 0 0 7 a a.jpg\n")
    views = read_colmap(tmp_path, tmp_path)
    assert [view.name for view in views] == ["a a.jpg", "b.jpg"]
    assert views[1].cam_from_world[2, 3] == 1
    assert views[0].point_ids is None
    assert views[0].depth_range is None


def test_missing_empty_lines_and_cameras_are_errors(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 640 480 500 500 320 240\n")
    (tmp_path / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.jpg\n2 1 0 0 0 0 0 0 1 b.jpg\n")
    with pytest.raises(DataError, match="triples"):
        read_colmap(tmp_path, tmp_path)
    (tmp_path / "images.txt").write_text("1 1 0 0 0 0 0 0 9 a.jpg\n\n")
    with pytest.raises(DataError, match="camera 9"):
        read_colmap(tmp_path, tmp_path)
    (tmp_path / "images.txt").write_text("1 0 0 0 0 0 0 0 1 a.jpg\n\n")
    with pytest.raises(DataError, match="no pose"):
        read_colmap(tmp_path, tmp_path)


def test_no_model_is_an_error_that_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no COLMAP model"):
        read_colmap(tmp_path, tmp_path)
