"""From a folder of photos to everything that a reconstruction leaves, read back and held against the exact truth."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from posfeat.benchmarks.camera_errors import camera_errors
from posfeat.data.distortion import is_distorted, project_points
from posfeat.data.images import read_image, write_image
from posfeat.data.posed import read_posed
from posfeat.pipeline.choose_cameras import CameraOptions
from posfeat.pipeline.export import export_model
from posfeat.pipeline.extract import RootSiftExtractor
from posfeat.pipeline.reconstruct import ReconstructionOptions, ReconstructionSummary, reconstruct
from posfeat.types import DataError, Features, ReconstructionError, View
from tests.pipeline.conftest import GalleryPhotos

pytest.importorskip("pycolmap")
from posfeat.interop.colmap import observations, point_rows, read_model, registered_images, views_of_model
from posfeat.interop.colmap_mapping import MappingOptions
from posfeat.interop.nerfstudio import APPLIED_ROTATION

OPTIONS = ReconstructionOptions(cameras=CameraOptions(share="single"), mapping=MappingOptions(threads=1))
KEYPOINTS = 1200
BROKEN, BLANK = "broken.png", "blank.png"
NEARLY_PX = 4.0  # what the mapper lets pass


class Run:
    """A reconstruction of the gallery, among whose photos lie a broken and a blank one."""

    def __init__(self, photos: Path, output: Path, truth: tuple[View, ...]) -> None:
        self.photos, self.output, self.truth = photos, output, truth
        self.lines: list[str] = []
        self.summary = self.again(RootSiftExtractor(KEYPOINTS))

    def again(self, extractor: RootSiftExtractor) -> ReconstructionSummary:
        return reconstruct(
            extractor, self.photos, self.output, OPTIONS, on_failure=self.lines.append,
            formats=("ply", "nerfstudio", "undistorted", "text"),
        )  # fmt: skip


@pytest.fixture(scope="module")
def run(gallery: GalleryPhotos, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("reconstruction")
    photos = folder / "photos"
    shutil.copytree(gallery.folder, photos)
    (photos / BROKEN).write_bytes(b"no picture at all")
    write_image(photos / BLANK, np.full((288, 384, 3), 128, np.uint8))
    return Run(photos, folder / "scene", gallery.views)


def test_cameras_are_where_they_were(run: Run) -> None:
    model = read_model(run.output / "sparse" / "0")
    errors = camera_errors(views_of_model(model, run.photos), run.truth)
    assert len(errors.names) == len(run.truth)
    assert errors.mean_centre_percent < 0.5
    assert run.summary.model.num_images == len(run.truth)
    assert run.summary.model.num_points == len(point_rows(model)[0]) > 300
    assert run.summary.model.mean_reprojection_error_px < 1
    assert run.summary.doubts == ()
    assert set(run.summary.seconds) == {"extract", "pairs", "match", "verify", "map", "export", "report"}


def test_what_is_no_use_costs_itself_only(run: Run) -> None:
    assert set(run.summary.left_out) == {BROKEN, BLANK}
    assert "is not a whole JPEG" in run.summary.left_out[BROKEN]
    assert "blank" in run.summary.left_out[BLANK]
    assert len(run.summary.failures) == 1
    assert BROKEN in run.summary.failures[0]
    assert run.lines[0] == run.summary.failures[0]
    assert (run.output / "report.html").read_text().count("is not a whole JPEG") == 1
    written = json.loads((run.output / "summary.json").read_text())
    assert written["left_out"] == run.summary.left_out
    assert not list(run.output.rglob("*.part"))


def test_transforms_json_sees_the_points_where_the_photos_do(run: Run) -> None:
    """Read back by our own importer, and projected by nerfstudio's rules alone."""
    model = read_model(run.output / "sparse" / "0")
    points = dict(zip(*point_rows(model)[:2], strict=True))
    transforms = json.loads((run.output / "transforms.json").read_text())
    assert (run.output / transforms["ply_file_path"]).is_file()
    frames = {Path(frame["file_path"]).name: frame for frame in transforms["frames"]}
    assert len(frames) == len(run.truth)
    views = {Path(view.name).name: view for view in read_posed(run.output / "transforms.json")}
    for image in registered_images(model):
        xy, ids, _ = observations(image)
        xyz = np.array([points[number] for number in ids.tolist()])
        frame = frames[str(image.name)]
        assert (run.output / frame["file_path"]).resolve() == (run.photos / image.name).resolve()
        cam_from_world = np.linalg.inv(np.array(frame["transform_matrix"])) @ np.eye(4)
        x, y, z = cam_from_world[:3, :3] @ (APPLIED_ROTATION @ xyz.T) + cam_from_world[:3, 3:]
        assert (z < 0).all()  # OpenGL's cameras look along -z, and y points up
        u, v = x / -z, -y / -z
        bend = 1 + frame["k1"] * (u**2 + v**2)
        seen = np.stack([frame["fl_x"] * u * bend + frame["cx"], frame["fl_y"] * v * bend + frame["cy"]], axis=1) - 0.5
        assert np.linalg.norm(seen - xy, axis=1).max() < NEARLY_PX
        view = views[str(image.name)]
        read = project_points(view.camera, xyz @ view.cam_from_world[:3, :3].T + view.cam_from_world[:3, 3])
        np.testing.assert_allclose(read, seen, atol=1e-6)


def test_undistorted_photos_are_those_of_their_pinhole_cameras(run: Run) -> None:
    """What Gaussian splatting takes: images/ beside sparse/0 of pinhole cameras that see each point where its keypoint is."""
    folder = run.output / "undistorted"
    model = read_model(folder / "sparse" / "0")
    views = views_of_model(model, folder / "images")
    assert {view.camera.model for view in views} == {"PINHOLE"}
    points = dict(zip(*point_rows(model)[:2], strict=True))
    for view, image in zip(views, registered_images(model), strict=True):
        assert not is_distorted(view.camera)
        assert read_image(view.image_path).shape == (view.camera.height, view.camera.width, 3)
        xy, ids, _ = observations(image)
        xyz = np.array([points[number] for number in ids.tolist()])
        seen = project_points(view.camera, xyz @ view.cam_from_world[:3, :3].T + view.cam_from_world[:3, 3])
        assert np.median(np.linalg.norm(seen - xy, axis=1)) < 1
        assert np.linalg.norm(seen - xy, axis=1).max() < NEARLY_PX


def test_a_photo_that_is_gone_is_left_out_of_the_undistorted_ones(run: Run, tmp_path: Path) -> None:
    gone, *others = (view.name for view in run.truth)
    for name in others:
        (tmp_path / name).symlink_to(run.photos / name)
    report = export_model(run.output / "sparse" / "0", tmp_path, tmp_path / "out", ["undistorted"])
    assert len(report.failures) == 1
    assert gone in report.failures[0]
    model = read_model(tmp_path / "out" / "undistorted" / "sparse" / "0")
    assert [str(image.name) for image in registered_images(model)] == sorted(others)
    assert {path.name for path in (tmp_path / "out" / "undistorted" / "images").iterdir()} == set(others)


def test_points_and_text(run: Run) -> None:
    head = (run.output / "points.ply").read_bytes()[:300].decode("ascii", "ignore")
    assert f"element vertex {run.summary.model.num_points}" in head
    assert read_model(run.output / "text").num_points3D() == run.summary.model.num_points


def test_the_page_needs_no_other_file(run: Run) -> None:
    page = (run.output / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?:|@import|<link|<script[^>]+src""", page)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
    assert len(data["cameras"]) == len(run.truth)
    assert data["points"]["total"] == run.summary.model.num_points
    assert data["left_out"] == run.summary.left_out
    assert len(data["pairs"]) == run.summary.num_pairs


class Idle(RootSiftExtractor):
    """Of a run that has nothing left to extract."""

    def extract(self, *_: object) -> Features:
        raise AssertionError("everything was extracted before")


def test_a_second_run_does_nothing_again(run: Run) -> None:
    names = ("sparse/0/images.bin", f"undistorted/images/{run.truth[0].name}")
    before = [(run.output / name).stat().st_mtime_ns for name in names]
    again = run.again(Idle(KEYPOINTS))
    assert [(run.output / name).stat().st_mtime_ns for name in names] == before
    assert again.model.num_points == run.summary.model.num_points
    assert again.left_out == run.summary.left_out


def test_what_was_written_among_the_photos_is_no_photo(gallery: GalleryPhotos, tmp_path: Path) -> None:
    for view in gallery.views[:4]:
        shutil.copy(view.image_path, tmp_path)
    for output in (tmp_path / "scene", tmp_path):
        for _ in range(2):
            summary = reconstruct(RootSiftExtractor(600), tmp_path, output, OPTIONS, formats=["undistorted"])
            assert (output / "undistorted" / "images" / gallery.views[0].name).is_file()
            assert summary.num_photos == 4
        shutil.rmtree(tmp_path / "scene", ignore_errors=True)


def test_bad_input_is_one_line(gallery: GalleryPhotos, tmp_path: Path) -> None:
    extractor = RootSiftExtractor(300)
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    shutil.copy(gallery.views[0].image_path, tmp_path / "one" / "a.png")
    shutil.copytree(tmp_path / "one", tmp_path / "same")
    for name in ("b.png", "c.png"):
        shutil.copy(gallery.views[0].image_path, tmp_path / "same" / name)
    (tmp_path / "file").write_text("no folder")
    for photos, output, kind, words in (
        ("empty", "out0", DataError, "there are no photos in"),
        ("missing", "out1", DataError, "no image folder"),
        ("one", "out2", ReconstructionError, "at least two photos"),
        ("same", "out3", ReconstructionError, "copies of each other"),
        ("same", "file", ReconstructionError, "choose another place"),
    ):
        with pytest.raises(kind, match=words) as caught:
            reconstruct(extractor, tmp_path / photos, tmp_path / output, OPTIONS)
        assert "\n" not in str(caught.value)


def test_photos_of_several_cameras_and_sizes(gallery: GalleryPhotos, tmp_path: Path) -> None:
    """Half of the photos are larger, so that they cannot be of one camera; none has EXIF."""
    from posfeat.data.images import resize_image

    photos = tmp_path / "photos"
    photos.mkdir()
    for number, view in enumerate(gallery.views[:6]):
        photo = read_image(view.image_path)
        if number % 2:
            photo = resize_image(photo, round(photo.shape[1] * 1.25), round(photo.shape[0] * 1.25))
        write_image(photos / view.name, photo)
    summary = reconstruct(RootSiftExtractor(1000), photos, tmp_path / "scene", OPTIONS, formats=())
    assert (summary.model.num_images, summary.model.num_cameras) == (6, 2)
    model = read_model(tmp_path / "scene" / "sparse" / "0")
    assert camera_errors(views_of_model(model, photos), gallery.views).mean_centre_percent < 1.5
