"""The border to COLMAP: half a pixel once, no geometry without its configuration, and a safe import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posfeat.data.distortion import camera_from_colmap, num_colmap_params, num_focal_lengths, project_points
from posfeat.geometry.distortion import NUM_DISTORTION_PARAMS
from posfeat.interop import colmap
from posfeat.interop.colmap import (
    colmap_params,
    from_colmap_camera,
    from_colmap_pixels,
    load_pycolmap,
    observations,
    read_model,
    registered_images,
    to_colmap_camera,
    to_colmap_pixels,
    unknown_camera,
    views_of_model,
    with_cameras,
    write_model,
    write_ply,
)
from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_mapping import MappingOptions, VerificationOptions, map_database, verify_database
from posfeat.matching import match
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import (
    Camera,
    DataError,
    MissingExtraError,
    PosfeatError,
    ReconstructionError,
    StoreError,
    TwoViewConfiguration,
    TwoViewGeometry,
)
from tests.pipeline.projected_scene import CAMERA, pose, write_scene

pycolmap = load_pycolmap()


def test_pictures_can_be_written_after_the_import() -> None:
    """pycolmap as the first import makes OpenCV end the process at the next PNG."""
    code = (
        "from posfeat.interop.colmap import load_pycolmap\nload_pycolmap()\n"
        "import cv2, numpy as np\nprint(len(cv2.imencode('.png', np.zeros((9, 9, 3), np.uint8))[1]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, int(run.stdout) > 0) == (0, True), run.stderr


def test_without_pycolmap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'posfeat\[sfm\]'"):
        load_pycolmap()


def test_an_old_pycolmap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pycolmap, "__version__", "3.13.0")
    with pytest.raises(MissingExtraError, match=r"3\.13\.0 is too old"):
        load_pycolmap()


def test_half_a_pixel_there_and_back() -> None:
    xy = np.array([[0.0, 0.0], [10.25, 7.5]])
    assert to_colmap_pixels(xy).tolist() == [[0.5, 0.5], [10.75, 8.0]]
    assert np.array_equal(from_colmap_pixels(to_colmap_pixels(xy)), xy)


@pytest.mark.parametrize("model", NUM_DISTORTION_PARAMS)
def test_cameras_there_and_back(model: str) -> None:
    count = num_colmap_params(model)
    params = [500.0, *[510.0] * (num_focal_lengths(model) - 1), 320.0, 240.0]
    params += [0.01 * (i + 1) for i in range(count - len(params))]
    camera = camera_from_colmap(model, 640, 480, params)
    assert camera.matrix[0, 2] == 319.5
    assert colmap_params(camera) == params
    assert list(to_colmap_camera(camera).params) == params
    assert colmap_params(from_colmap_camera(to_colmap_camera(camera))) == params
    points = np.random.default_rng(0).uniform(-0.3, 0.3, (20, 3)) + np.array([0, 0, 1])
    theirs = from_colmap_pixels(to_colmap_camera(camera).img_from_cam(points))
    assert np.allclose(project_points(camera, points), theirs, atol=1e-6)


def test_one_focal_length_for_two() -> None:
    with pytest.raises(DataError, match="one focal length"):
        colmap_params(Camera(640, 480, np.diag([500.0, 510, 1]), "SIMPLE_PINHOLE"))


def test_a_camera_of_which_little_is_known() -> None:
    camera = unknown_camera("OPENCV", 641, 480, 700.0)
    assert (camera.matrix[0, 0], camera.matrix[0, 2], camera.matrix[1, 2]) == (700, 320, 239.5)
    assert camera.distortion == (0, 0, 0, 0)


def test_a_database_adds_half_a_pixel_once(tmp_path: Path) -> None:
    path = tmp_path / "a b.db"
    xy = np.array([[0.0, 0.0], [100.25, 50.0], [33_000.5, 7.125]])
    with ColmapDatabase(path) as database:
        camera_id = database.add_camera(CAMERA)
        for name in ("a photo.jpg", "deep/b.jpg"):
            database.add_image(name, camera_id)
            database.write_keypoints(name, xy)
        many = np.stack([np.arange(40_000), np.arange(40_000)[::-1]], axis=1)
        database.write_matches("deep/b.jpg", "a photo.jpg", many)  # more than 16 bits hold
    with pycolmap.Database.open(path) as raw:
        assert np.array_equal(raw.read_keypoints(1), (xy + 0.5).astype(np.float32))
        assert raw.read_camera(1).params.tolist() == [600, 600, 320, 240]
        assert raw.num_frames() == raw.num_images() == 2
        assert raw.num_rigs() == 1
    with ColmapDatabase(path) as database:
        assert np.array_equal(database.keypoints("deep/b.jpg"), xy)
        assert np.array_equal(database.camera("a photo.jpg").matrix, CAMERA.matrix)
        assert np.array_equal(database.matches("deep/b.jpg", "a photo.jpg"), many)
        assert np.array_equal(database.matches("a photo.jpg", "deep/b.jpg"), many[:, ::-1])
        assert database.has_matches("a photo.jpg", "deep/b.jpg")


@pytest.mark.parametrize("configuration", TwoViewConfiguration)
def test_geometries_have_a_configuration(tmp_path: Path, configuration: TwoViewConfiguration) -> None:
    relative = pose(10.0)
    fundamental = np.arange(9.0).reshape(3, 3)
    geometry = TwoViewGeometry(configuration, np.array([[2, 0], [1, 1]]), fundamental, relative)
    with ColmapDatabase(tmp_path / "d.db") as database:
        camera_id = database.add_camera(CAMERA)
        for name in ("a.jpg", "b.jpg"):
            database.add_image(name, camera_id)
            database.write_keypoints(name, np.zeros((3, 2)))
        assert database.geometry("a.jpg", "b.jpg") is None
        database.write_matches("b.jpg", "a.jpg", geometry.inliers)
        database.write_geometry("b.jpg", "a.jpg", geometry)
        database.write_geometry("b.jpg", "a.jpg", geometry)  # in place of the first
        (pair,) = database.pairs()
        assert (pair.num_matches, pair.num_inliers) == (2, 2)
        read, turned = database.geometry("b.jpg", "a.jpg"), database.geometry("a.jpg", "b.jpg")
    with pycolmap.Database.open(tmp_path / "d.db") as raw:
        written = raw.read_two_view_geometry(2, 1)
        assert written.config != pycolmap.TwoViewGeometryConfiguration.UNDEFINED.value
        corner = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # F belongs to COLMAP's pixels there
        assert np.allclose(corner.T @ written.F @ corner, fundamental)
    assert read is not None
    assert turned is not None
    assert read.configuration is configuration
    assert np.array_equal(read.inliers, geometry.inliers)
    assert np.array_equal(turned.inliers, geometry.inliers[:, ::-1])
    assert np.allclose(read.fundamental, fundamental)
    assert np.allclose(turned.fundamental, fundamental.T)
    assert np.allclose(read.cam1_from_cam0, relative)
    assert np.allclose(turned.cam1_from_cam0, np.linalg.inv(relative))


def test_our_own_geometries_are_used_for_mapping(tmp_path: Path) -> None:
    """Geometries without a configuration would give no model, and no word about it."""
    scene = write_scene(tmp_path, [pose(angle) for angle in (-24, -12, 0, 12, 24)])
    fill_database(tmp_path / "d.db", scene.features)
    with ColmapDatabase(tmp_path / "d.db") as database:
        for pair in database.pairs():
            inliers = database.matches(pair.name0, pair.name1)
            found = TwoViewGeometry(TwoViewConfiguration.CALIBRATED, inliers)
            database.write_geometry(pair.name0, pair.name1, found)
    (model, *_) = map_database(tmp_path / "d.db", scene.photos, tmp_path / "out", MappingOptions(threads=1))
    assert model.num_reg_images() == 5
    assert model.num_points3D() > 200


@pytest.mark.parametrize("mapper", ["incremental", "global"])
def test_models_have_no_half_pixel_error(tmp_path: Path, mapper: str) -> None:
    scene = write_scene(tmp_path, [pose(angle) for angle in (-30, -15, 0, 15, 30)], noise_px=0.0)
    fill_database(tmp_path / "d.db", scene.features)
    verify_database(tmp_path / "d.db", VerificationOptions(threads=1))
    fixed = MappingOptions(mapper=mapper, refine_focal_length=False, refine_distortion=False, threads=1)  # type: ignore[arg-type]
    heard: list[int] = []
    models = map_database(tmp_path / "d.db", scene.photos, tmp_path / "out", fixed, lambda: heard.append(1))
    model = models[0]
    assert len(heard) == (5 if mapper == "incremental" else 0)
    assert model.num_reg_images() == 5
    # half a pixel anywhere would show: principal point and keypoints would no longer belong together
    assert model.compute_mean_reprojection_error() < 0.01
    for image, view in zip(registered_images(model), views_of_model(model, scene.photos), strict=True):
        xy, _, rows = observations(image)
        with ColmapDatabase(tmp_path / "d.db") as database:
            assert np.allclose(xy, database.keypoints(view.name)[rows], atol=1e-3)
        assert np.allclose(view.camera.matrix, CAMERA.matrix)


def test_models_on_disk(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, [pose(angle) for angle in (-15, 0, 15)])
    fill_database(tmp_path / "d.db", scene.features)
    verify_database(tmp_path / "d.db", VerificationOptions(threads=1))
    (model,) = map_database(tmp_path / "d.db", scene.photos, tmp_path / "out", MappingOptions(threads=1))
    for text in (False, True):
        folder = tmp_path / f"model {text}"
        write_model(model, folder, text)
        assert (folder / ("images.txt" if text else "images.bin")).is_file()
        again = read_model(folder)
        for a, b in zip(views_of_model(model, tmp_path), views_of_model(again, tmp_path), strict=True):
            assert np.allclose(a.cam_from_world, b.cam_from_world, atol=1e-9)
    (tmp_path / "model True" / "cameras.txt").write_text("1 NO_SUCH_MODEL 3 3 1\n")
    for broken in (tmp_path / "model True", tmp_path / "photos", tmp_path / "nowhere"):
        with pytest.raises(DataError) as caught:
            read_model(broken)
        assert "\n" not in str(caught.value)


def test_a_model_that_is_cut_off_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COLMAP itself writes on without a word when the disk is full."""
    scene = write_scene(tmp_path, [pose(angle) for angle in (-15, 0, 15)])
    fill_database(tmp_path / "d.db", scene.features)
    verify_database(tmp_path / "d.db", VerificationOptions(threads=1))
    (model,) = map_database(tmp_path / "d.db", scene.photos, tmp_path / "out", MappingOptions(threads=1))
    real = {"bin": pycolmap.Reconstruction.write_binary, "txt": pycolmap.Reconstruction.write_text}
    for name in ("images.bin", "points3D.bin", "images.txt", "points3D.txt"):
        ending = name[-3:]
        method = "write_text" if ending == "txt" else "write_binary"
        for kept in (0.0, 0.5):

            def write(self: object, folder: Path, name: str = name, kept: float = kept) -> None:
                real[name[-3:]](self, folder)
                content = (folder / name).read_bytes()
                (folder / name).write_bytes(content[: int(kept * len(content))])

            with monkeypatch.context() as patched:
                patched.setattr(pycolmap.Reconstruction, method, write)
                with pytest.raises(ReconstructionError, match=r"cut off; is the disk full\?"):
                    write_model(model, tmp_path / f"{name} {kept}", text=ending == "txt")
    with monkeypatch.context() as patched:
        patched.setattr(pycolmap.Reconstruction, "export_PLY", lambda self, path: path.write_bytes(b"ply"))
        with pytest.raises(ReconstructionError, match="cannot be written whole"):
            write_ply(model, tmp_path / "p.ply")
    assert not list(tmp_path.glob("p.ply*"))


def test_other_cameras_see_the_same(tmp_path: Path) -> None:
    bent = camera_from_colmap("SIMPLE_RADIAL", 640, 480, [600, 320, 240, -0.1])
    scene = write_scene(tmp_path, [pose(angle) for angle in (-15, 0, 15)], bent, noise_px=0.0)
    fill_database(tmp_path / "d.db", scene.features, bent)
    verify_database(tmp_path / "d.db", VerificationOptions(threads=1))
    fixed = MappingOptions(refine_focal_length=False, refine_distortion=False, threads=1)
    (model,) = map_database(tmp_path / "d.db", scene.photos, tmp_path / "out", fixed)
    straight = with_cameras(model, {1: CAMERA})
    straight.update_point_3d_errors()
    assert straight.compute_mean_reprojection_error() < 0.01
    assert straight.camera(1).model_name == "PINHOLE"
    assert model.camera(1).model_name == "SIMPLE_RADIAL"


def test_problems_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked into " * 10)
    with ColmapDatabase(tmp_path / "d.db") as database:
        camera_id = database.add_camera(CAMERA)
        database.add_image("a.jpg", camera_id)
        for action in (
            lambda: database.add_image("a.jpg", camera_id),
            lambda: database.keypoints("b.jpg"),
            lambda: ColmapDatabase(tmp_path / "text.db"),
            lambda: ColmapDatabase(tmp_path),
            lambda: ColmapDatabase(tmp_path / "text.db" / "d.db"),
            lambda: verify_database(tmp_path / "none.db", VerificationOptions()),
            lambda: map_database(tmp_path / "none.db", tmp_path, tmp_path / "o", MappingOptions()),
        ):
            with pytest.raises((StoreError, ReconstructionError)) as caught:
                action()
            assert isinstance(caught.value, PosfeatError)
            assert "\n" not in str(caught.value)


def test_exif(tmp_path: Path) -> None:
    from PIL import Image

    photo = Image.new("RGB", (300, 200))
    exif = photo.getexif()
    exif[0x0112], exif[0x010F], exif[0x0110] = 6, "House", "One"
    exif.get_ifd(0x8769)[0xA405] = 28  # focal length in a 35 mm camera
    photo.save(tmp_path / "a.jpg", exif=exif)
    photo.save(tmp_path / "b.jpg")
    name, focal = colmap.exif_camera(tmp_path / "a.jpg")
    assert name is not None
    assert "House" in name
    assert focal == pytest.approx(28 / np.hypot(36, 24) * np.hypot(300, 200), rel=0.03)
    assert colmap.exif_camera(tmp_path / "b.jpg") == (None, None)
    assert colmap.exif_camera(tmp_path / "none.jpg") == (None, None)


def fill_database(path: Path, features: Path, camera: Camera = CAMERA) -> None:
    """All pairs of a store's images, matched by their descriptors."""
    with ColmapDatabase(path) as database, FeatureStore(features) as store:
        camera_id = database.add_camera(camera, focal_is_known=True)
        names = store.names()
        for name in names:
            database.add_image(name, camera_id)
            database.write_keypoints(name, store.read(name).keypoints.numpy())
        for i, name0 in enumerate(names):
            for name1 in names[i + 1 :]:
                database.write_matches(name0, name1, match(store.read(name0), store.read(name1)).indices.numpy())
