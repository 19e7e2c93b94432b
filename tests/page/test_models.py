"""Models of photos: what the page is told of them, photos found in them, and reconstructions that are watched and stopped."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycolmap")

from posfeat.page.limits import Limits
from posfeat.page.reconstructions import end, folder_name
from posfeat.page.roots import Roots
from posfeat.page.scene_files import Observations, Scene, counts, read_scene
from tests.page.running_server import Client, running, services_of
from tests.pipeline.conftest import GalleryPhotos


@pytest.fixture(scope="module")
def client(
    weights: Path, gallery: GalleryPhotos, gallery_map: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A server that may look into the photos and the model of the gallery."""
    output = tmp_path_factory.mktemp("output") / "made here"
    with running(
        services_of(weights, [gallery.folder, gallery_map], Limits(waiting_reconstructions=0), output)
    ) as client:
        yield client


@pytest.fixture(scope="module")
def path(client: Client, gallery: GalleryPhotos) -> str:
    """The model's path, as the server lists it."""
    (found,) = client.get("/api/scenes").json
    assert found["images"] == len(gallery.views)
    assert found["points"] > 100
    return str(found["path"])


def test_cameras_are_where_they_were(client: Client, path: str, gallery: GalleryPhotos) -> None:
    scene = client.get("/api/scene", path=path).json
    assert [camera["name"] for camera in scene["cameras"]] == [view.name for view in gallery.views]
    centres = np.array([np.reshape(camera["world_from_cam"], (4, 4))[:3, 3] for camera in scene["cameras"]])
    true = np.array([np.linalg.inv(view.cam_from_world)[:3, 3] for view in gallery.views])
    ours, theirs = (np.linalg.norm(c[:, None] - c[None], axis=-1) for c in (centres, true))
    np.testing.assert_allclose(ours / ours.max(), theirs / theirs.max(), atol=0.05)
    for camera, view in zip(scene["cameras"], gallery.views, strict=True):
        assert camera["tan_x"] / camera["tan_y"] == pytest.approx(view.camera.width / view.camera.height, rel=1e-3)
        assert client.get("/api/photo/preview", photo=camera["photo"]).status == 200
    assert scene["can_localize"]


def test_points_and_tracks_belong_together(client: Client, path: str) -> None:
    scene = client.get("/api/scene", path=path).json
    content = client.get("/api/scene/points", path=path).body
    count = scene["num_points"]
    assert len(content) == 15 * count
    positions = np.frombuffer(content[: 12 * count], "<f4").reshape(-1, 3)
    seen = client.get("/api/scene/camera", path=path, camera=2).json["points"]
    assert len(seen) == scene["cameras"][2]["num_points"]
    point, x, y = seen[len(seen) // 2]
    answer = client.get("/api/scene/point", path=path, point=point).json
    assert answer["xyz"] == pytest.approx(positions[point].tolist())
    assert [2, x, y] in answer["track"]
    camera = scene["cameras"][2]
    in_camera = np.linalg.inv(np.reshape(camera["world_from_cam"], (4, 4))) @ [*positions[point], 1]
    projected = (
        (in_camera[:2] / in_camera[2] / [camera["tan_x"], camera["tan_y"]] + 1)
        / 2
        * [
            camera["width"],
            camera["height"],
        ]
    )
    assert projected - 0.5 == pytest.approx([x, y], abs=6), "up to the lens distortion"


def test_what_is_not_there(client: Client, path: str, gallery: GalleryPhotos) -> None:
    assert client.get("/api/scene/camera", path=path, camera=99).status == 404
    assert client.get("/api/scene/point", path=path, point=10**8).status == 404
    assert client.get("/api/scene", path=gallery.folder.name).status == 404


def test_localize(client: Client, path: str, gallery: GalleryPhotos) -> None:
    photo = gallery.views[3].image_path.read_bytes()
    found = client.post("/api/localize", {"image": photo}, scene=path).json
    cameras = client.get("/api/scene", path=path).json["cameras"]
    size = max(np.linalg.norm(np.reshape(c["world_from_cam"], (4, 4))[:3, 3]) for c in cameras)
    expected = np.reshape(cameras[3]["world_from_cam"], (4, 4))[:3, 3]
    assert np.linalg.norm(np.array(found["centre"]) - expected) < 0.02 * size
    assert found["num_inliers"] == len(found["keypoints"]) > 50
    focal, width, height = gallery.views[3].camera.matrix[0, 0], found["width"], found["height"]
    known = f"{focal:.3f},{focal:.3f},{(width - 1) / 2},{(height - 1) / 2}"
    assert client.post("/api/localize", {"image": photo}, scene=path, intrinsics=known).json[
        "focal_px"
    ] == pytest.approx(focal, abs=1e-3)


def test_the_only_model_needs_no_name(
    client: Client, weights: Path, album: Path, gallery: GalleryPhotos, gallery_map: Path, tmp_path: Path
) -> None:
    photo, path = {"image": gallery.views[3].image_path.read_bytes()}, f"{gallery_map.name}/sparse/0"
    with running(services_of(weights, [gallery_map])) as alone:
        assert alone.post("/api/localize", photo).json == alone.post("/api/localize", photo, scene=path).json
    shutil.copytree(gallery_map, tmp_path / "other")
    with running(services_of(weights, [gallery_map, tmp_path / "other"])) as two:
        assert two.post("/api/localize", photo).detail == f"scene: name one of the 2 models: {path}, other/sparse/0"
    with running(services_of(weights, [album])) as none:
        assert none.post("/api/localize", photo).status == 404


def test_photos_that_cannot_be_found(client: Client, path: str, photos: tuple[bytes, bytes], gallery_map: Path) -> None:
    for answer, words in (
        (client.post("/api/localize", {"image": photos[0]}, scene=path), "image.png is not localized"),
        (client.post("/api/localize", {"image": b"no photo"}, scene=path), "not a whole JPEG"),
        (client.post("/api/localize", {"image": photos[0]}, scene=path, intrinsics="a,b"), "intrinsics"),
    ):
        assert answer.status == 422
        assert words in answer.detail
        assert str(gallery_map.parent) not in answer.detail


def wait_for(client: Client, job: str, seconds: float = 120) -> dict[str, Any]:
    """The job when it has ended."""
    end_by = time.monotonic() + seconds
    while time.monotonic() < end_by:
        now: dict[str, Any] = client.get(f"/api/reconstructions/{job}").json
        if now["state"] not in ("waiting", "running"):
            return now
        time.sleep(0.1)
    raise AssertionError(f"still {now['state']}, {now['step']}")


def start(client: Client, **asked: Any) -> Any:
    body = json.dumps({"method": "rootsift", **asked})
    return client.request("POST", "/api/reconstructions", body, {"Content-Type": "application/json"})


def test_a_reconstruction_is_stopped(client: Client, gallery: GalleryPhotos) -> None:
    job = start(client, photos=gallery.folder.name).json
    assert job["state"] in ("waiting", "running")
    assert start(client, photos=gallery.folder.name).status == 422, "the same one again"
    assert start(client, photos=gallery.folder.name, max_keypoints=64).status == 503, "one at a time"
    assert client.request("DELETE", f"/api/reconstructions/{job['job']}").json["state"] == "cancelled"
    assert wait_for(client, job["job"])["state"] == "cancelled"
    assert client.request("DELETE", f"/api/reconstructions/{job['job']}").json["state"] == "cancelled"
    assert client.get("/api/reconstructions/0-0").status == 404


def test_a_reconstruction_that_fails_says_why(client: Client, gallery_map: Path) -> None:
    folder = gallery_map / "nothing in it"
    folder.mkdir(exist_ok=True)
    job = start(client, photos=f"{gallery_map.name}/nothing in it").json
    ended = wait_for(client, job["job"])
    assert ended["state"] == "failed"
    assert "there are no photos in" in ended["error"]
    assert str(gallery_map.parent) not in ended["error"]
    assert start(client, photos="nowhere").status == 403
    assert start(client, photos=gallery_map.name, method="surf").status == 422


def test_links_out_of_the_folders_are_refused(weights: Path, gallery_map: Path, album: Path, tmp_path: Path) -> None:
    shutil.copytree(gallery_map / "sparse" / "0", tmp_path / "root" / "model")
    (tmp_path / "root" / "model" / "features.h5").symlink_to(gallery_map / "features.h5")
    (tmp_path / "root" / "photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "root" / "photos" / name).symlink_to(album / "b.jpg")
    with running(services_of(weights, [tmp_path / "root"], output=tmp_path / "made")) as client:
        assert client.get("/api/scene", path="root/model").json["can_localize"] is False
        refused = [
            client.post("/api/localize", {"image": (album / "b.jpg").read_bytes()}, scene="root/model"),
            start(client, photos="root/photos"),
        ]
        (tmp_path / "root" / "model" / "points3D.bin").unlink()
        (tmp_path / "root" / "model" / "points3D.bin").symlink_to(gallery_map / "sparse" / "0" / "points3D.bin")
        refused += [client.get(f"/api/scene{part}", path="root/model") for part in ("", "/points")]
        for answer, name in zip(refused, ("features.h5", "a.jpg", "points3D.bin", "points3D.bin"), strict=True):
            assert answer.status == 403
            assert f"{name} is a link that leads out" in answer.detail
        assert not (tmp_path / "made").exists()


def test_a_model_that_is_cut_off_is_one_line(weights: Path, gallery_map: Path, tmp_path: Path) -> None:
    shutil.copytree(gallery_map / "sparse" / "0", tmp_path / "root" / "model")
    points = tmp_path / "root" / "model" / "points3D.bin"
    points.write_bytes(points.read_bytes()[:-7])
    with running(services_of(weights, [tmp_path / "root"])) as client:
        answer = client.get("/api/scene", path="root/model")
        assert answer.status == 422
        assert answer.detail.startswith("root/model/points3D.bin is damaged or cut off")


def test_reconstructions_end_with_the_server(weights: Path, gallery: GalleryPhotos, tmp_path: Path) -> None:
    services = services_of(weights, [gallery.folder], output=tmp_path / "made")
    with running(services) as client:
        job = start(client, photos=gallery.folder.name).json["job"]
        while client.get(f"/api/reconstructions/{job}").json["state"] == "waiting":
            time.sleep(0.02)
        process = services.reconstructions._jobs[job].process
    assert process is not None
    assert process.wait(10) != 0


def test_a_reconstruction_without_a_server_ends_silently() -> None:
    code = "from posfeat.page.reconstruction_job import tell\nwhile True: tell({'line': 'x'})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 1
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""


def test_what_is_made_may_not_be_writable(weights: Path, gallery: GalleryPhotos, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with running(services_of(weights, [gallery.folder], output=tmp_path / "a file" / "made")) as client:
        answer = start(client, photos=gallery.folder.name)
        assert (answer.status, client.get("/api/reconstructions").json) == (422, [])
        assert "start posfeat serve with -o FOLDER" in answer.detail


def test_a_process_that_does_not_listen_is_ended() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    import sys

    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        start_time = time.monotonic()
        end(process, grace_seconds=0.3)
        process.wait(10)
        assert time.monotonic() - start_time < 5
        end(process)  # ends nothing twice


def test_names_of_what_is_made_are_plain() -> None:
    assert folder_name("album/first day", "rootsift", "4096") == "album-first-day-rootsift-4096"
    assert folder_name("../../x", "y") == "x-y"


def test_large_models_show_the_points_that_most_photos_see(gallery_map: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, roots = gallery_map / "sparse" / "0", Roots([gallery_map])
    whole = read_scene(folder, roots)
    assert counts(folder) == (len(whole.views), whole.total_points)
    monkeypatch.setattr("posfeat.page.scene_files.MOST_POINTS", 50)
    part = read_scene(folder, roots)
    assert (len(part.positions), part.total_points) == (50, whole.total_points)
    lengths = sorted((len(whole.track(p)) for p in range(whole.total_points)), reverse=True)
    assert sorted((len(part.track(p)) for p in range(50)), reverse=True) == lengths[:50]
    row = np.flatnonzero((whole.positions == part.positions[7]).all(axis=1))[0]
    assert part.track(7) == whole.track(int(row))
    assert part.photos is None, "the photos are in no root"


def test_scenes_know_their_size() -> None:
    seen = Observations(np.zeros(3, np.int32), np.zeros(3, np.int32), np.zeros((3, 2), np.float32))
    assert Scene([], np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint8), 2, seen, None).num_bytes == 24 + 6 + 48
