"""Photos in, keypoints and matches out: the interface that robots use and the one behind the page."""

from __future__ import annotations

import base64
import csv
import io
from typing import Any

import numpy as np
import pytest

from posfeat.data.images import decode_image
from posfeat.matching import match
from posfeat.networks.checkpoint import DEFAULT_WEIGHTS
from posfeat.pipeline.rootsift import extract_rootsift
from tests.page.running_server import Client

SHIFT = np.array([40, 24])


@pytest.fixture(scope="module")
def sent(server: Client, photos: tuple[bytes, bytes]) -> dict[str, str]:
    """The photos, kept by the server."""
    answers = [server.post("/api/photos", {"image": photo}) for photo in photos]
    assert [(a.json["width"], a.json["height"]) for a in answers] == [(480, 360), (480, 360)]
    return {f"photo{i}": answer.json["photo"] for i, answer in enumerate(answers)}


def test_status(server: Client) -> None:
    status = server.get("/api/status").json
    names = [method["name"] for method in status["methods"]]
    assert (names[0], names[-1]) == ("untrained", "rootsift")
    assert ("default" in names) == DEFAULT_WEIGHTS.is_file(), "beside other weights, too"
    assert "untrained" in status["methods"][0]["note"]
    assert status["roots"] == ["album", "runs"]


def test_match_is_what_the_package_matches(server: Client, photos: tuple[bytes, bytes]) -> None:
    answer = server.post("/api/match", {"image0": photos[0], "image1": photos[1]}, method="rootsift")
    rows = np.array(answer.json["matches"])
    features = [extract_rootsift(decode_image(photo, "a photo"), 2048) for photo in photos]
    expected = match(*features)
    assert [image["keypoints"] for image in answer.json["images"]] == [len(f) for f in features]
    np.testing.assert_allclose(rows[:, :2], features[0].keypoints[expected.indices[:, 0]], atol=1e-3)
    np.testing.assert_allclose(rows[:, 2:4], features[1].keypoints[expected.indices[:, 1]], atol=1e-3)
    agreeing = rows[answer.json["verified"]]
    assert len(agreeing) == answer.json["geometry"]["num_inliers"] > 100
    assert np.abs(np.median(agreeing[:, :2] - agreeing[:, 2:4], axis=0) - SHIFT).max() < 0.1


def test_the_network_is_the_default(server: Client, photos: tuple[bytes, bytes]) -> None:
    answer = server.post("/api/match", {"image0": photos[0], "image1": photos[1]}, max_keypoints=64)
    assert answer.status == 200
    assert all(image["keypoints"] <= 64 for image in answer.json["images"])


def test_extract_with_descriptors(server: Client, photos: tuple[bytes, bytes]) -> None:
    answer = server.post("/api/extract", {"image": photos[0]}, max_keypoints=32, descriptors=True).json
    rows = np.frombuffer(base64.b64decode(answer["descriptors"]), "<f4").reshape(-1, answer["dim"])
    assert len(rows) == len(answer["keypoints"]) == len(answer["scores"]) == 32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert answer["scores"] == sorted(answer["scores"], reverse=True)


def test_positions_belong_to_the_photo_however_small_it_is_looked_at(server: Client, sent: dict[str, str]) -> None:
    answer = server.get("/api/photo/features", photo=sent["photo0"], method="rootsift", longest_px=240).json
    assert (answer["width"], answer["height"]) == (480, 360)
    assert np.array(answer["keypoints"])[:, 0].max() > 300


def test_fewer_keypoints_are_the_best_of_more(server: Client, sent: dict[str, str]) -> None:
    counts = [
        server.get("/api/pair", **sent, method="rootsift", max_keypoints=n).json["num_keypoints"] for n in (50, 500)
    ]
    assert counts[0] == [50, 50]
    assert max(counts[1]) <= 500


def test_each_setting_takes_matches_away(server: Client, sent: dict[str, str]) -> None:
    def number(**settings: Any) -> int:
        return len(server.get("/api/pair", **sent, method="rootsift", **settings).json["matches"])

    everything = number()
    assert 0 < number(ratio=0.7) < everything
    assert 0 < number(min_similarity=0.99) < everything
    assert number(min_score=1e6) == 0


def test_homography(server: Client, sent: dict[str, str]) -> None:
    geometry = server.get("/api/pair", **sent, method="rootsift", geometry="homography").json["geometry"]
    matrix = np.array(geometry["matrix"]) / geometry["matrix"][2][2]
    np.testing.assert_allclose(matrix, [[1, 0, -SHIFT[0]], [0, 1, -SHIFT[1]], [0, 0, 1]], atol=0.05)


def test_candidates_of_a_keypoint(server: Client, sent: dict[str, str]) -> None:
    pair = server.get("/api/pair", **sent, method="rootsift").json
    index0, index1, score = pair["matches"][0]
    for side, mine, other in ((0, index0, index1), (1, index1, index0)):
        answer = server.get("/api/pair/keypoint", **sent, method="rootsift", side=side, keypoint=mine).json
        assert answer["candidates"][0][0] == other
        assert answer["candidates"][0][3] == pytest.approx(score, abs=1e-3)
    missing = server.get("/api/pair/keypoint", **sent, method="rootsift", keypoint=8191)
    assert missing.status == 422
    assert "there is no keypoint 8191" in missing.detail


def test_overlays_have_the_photos_shape(server: Client, sent: dict[str, str]) -> None:
    photo = {"photo": sent["photo0"]}
    for answer in (
        server.get("/api/photo/overlay", **photo, kind="scores"),
        server.get("/api/photo/overlay", **photo, kind="descriptors", other=sent["photo1"]),
        server.get("/api/pair/similarity", **sent, keypoint=3),
        server.get("/api/photo/preview", **photo),
    ):
        assert answer.headers["content-type"] == "image/jpeg"
        assert decode_image(answer.body, "an overlay").shape == (360, 480, 3)
    assert server.get("/api/photo/overlay", **photo, method="rootsift").status == 422


def test_similarity_is_highest_at_the_same_place(server: Client, sent: dict[str, str]) -> None:
    same = {"photo0": sent["photo0"], "photo1": sent["photo0"]}
    keypoint = server.get("/api/pair/keypoint", **same, keypoint=5).json
    overlay = decode_image(server.get("/api/pair/similarity", **same, keypoint=5).body, "an overlay").sum(axis=2)
    y, x = np.unravel_index(overlay.argmax(), overlay.shape)
    assert np.hypot(x - keypoint["x"], y - keypoint["y"]) < 12


def test_exports_agree(server: Client, sent: dict[str, str]) -> None:
    settings = {**sent, "method": "rootsift", "max_keypoints": 200}
    as_json, as_csv, as_png = (server.get("/api/pair/export", **settings, format=f) for f in ("json", "csv", "png"))
    rows = list(csv.reader(io.StringIO(as_csv.body.decode())))
    assert rows[0] == ["x0", "y0", "x1", "y1", "score", "verified"]
    assert [[float(v) for v in row[:5]] for row in rows[1:]] == as_json.json["matches"]
    assert [row[5] == "1" for row in rows[1:]] == as_json.json["verified"]
    assert [image["path"] for image in as_json.json["images"]] == ["image.png", "image.png"], "as they were sent"
    assert as_csv.headers["content-disposition"] == 'attachment; filename="matches.csv"'
    assert decode_image(as_png.body, "matches").shape[1] > 2 * 480


def test_photos_in_roots_are_photos_too(server: Client, sent: dict[str, str]) -> None:
    pair = {"photo0": "album/first day/a.png", "photo1": sent["photo1"]}
    ours = server.get("/api/pair", **pair, method="rootsift").json
    assert ours == server.get("/api/pair", **sent, method="rootsift").json


def test_mistakes_are_one_line(server: Client, photos: tuple[bytes, bytes]) -> None:
    both = {"image0": photos[0], "image1": photos[1]}
    for answer, status, words in (
        (server.post("/api/match", both, rato=0.8), 422, "rato: Extra inputs are not permitted"),
        (server.post("/api/match", both, ratio=2), 422, "ratio: Input should be less than or equal to 1"),
        (server.post("/api/match", {"image0": photos[0]}), 422, "image1: Field required"),
        (server.post("/api/match", {}, image0="a.png", image1="b.png"), 422, "image0: a file is wanted"),
        (server.post("/api/match", both, method="surf"), 422, "there is no method 'surf'"),
        (server.post("/api/extract", {"image": b"no photo"}), 422, "image.png is not a whole JPEG"),
        (server.post("/api/extract", {"image": photos[0][:900]}), 422, "image.png breaks off before its end"),
        (server.get("/api/photo/preview", photo="0" * 32), 404, "send it again"),
        (server.get("/api/nothing"), 404, "Not Found"),
        (server.request("DELETE", "/api/status"), 405, "Method Not Allowed"),
    ):
        assert (answer.status, words in answer.detail) == (status, True), answer
        assert "\n" not in answer.detail
