"""What lies in the roots can be seen, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from posfeat.page.limits import RefusedError
from posfeat.page.roots import Roots
from posfeat.types import DataError
from tests.page.running_server import Client, running, services_of


def test_folders_and_photos_to_choose_from(server: Client) -> None:
    assert server.get("/api/folder").json["folders"] == ["album", "runs"]
    album = server.get("/api/folder", path="album").json
    assert (album["folders"], album["photos"]) == (["first day"], ["b.jpg"])
    assert server.get("/api/photo/preview", photo="album/b.jpg").status == 200


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "album/../outside.png",
            "album/first day/../../outside.png",
            "../outside.png",
            "/etc/passwd",
            "album//etc/passwd",
        ),
        *(
            "album/.hidden/c.png",
            "album/link.png",
            "album/%2e%2e/outside.png",
            "album\\..\\outside.png",
            "album/a\0.png",
        ),
        *("nowhere/a.png", "", "album/" + "a" * 900, "album/./b.jpg", "file:///etc/passwd", "~/a.png", "C:\\a.png"),
    ],
)
def test_nothing_outside_is_seen(server: Client, reference: str) -> None:
    for path, field in (("/api/photo/preview", "photo"), ("/api/folder", "path"), ("/api/run", "path")):
        if reference == "" and path == "/api/folder":
            continue
        answer = server.get(path, **{field: reference})
        assert answer.status in (403, 404, 422), answer
        assert b"outside.png" not in answer.body


def test_outside_looks_the_same_whether_it_is_there_or_not(server: Client) -> None:
    there, missing = (server.get("/api/photo/preview", photo=f"album/../{name}") for name in ("outside.png", "no.png"))
    assert (there.status, there.body) == (missing.status, missing.body)


def test_static_files_are_those_of_the_package(server: Client) -> None:
    assert server.get("/static/page.css").headers["content-type"].startswith("text/css")
    for name in ("..%2fapp.py", "%2e%2e/app.py", "app.py", "page.css%00", "../../static/page.css"):
        assert server.get(f"/static/{name}").status == 404


def test_every_page_is_served_and_asks_for_nothing_elsewhere(server: Client) -> None:
    for page in ("/", "/training", "/api"):
        answer = server.get(page)
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert b"https://" not in answer.body
        assert b"http://" not in answer.body


def test_the_description_is_found_where_tools_look_for_it(server: Client) -> None:
    for path, there in (("/openapi.json", "/api/openapi.json"), ("/docs", "/api")):
        assert (server.get(path).status, server.get(path).headers["location"]) == (307, there)


def test_runs(server: Client) -> None:
    found = server.get("/api/runs").json
    assert {run["path"]: run["step"] for run in found} == {"runs/first": 40, "runs/second": 41}
    run = server.get("/api/run", path="runs/second").json
    assert run["curves"]["validation"]["mma"] == [[20, 0.5], [40, 0.75]]
    assert len(run["curves"]["training"]["loss"]) == 40, "a number that is not finite is left out"
    assert run["texts"] == {"config.yaml": "seed: 1\n"}
    (rows,) = run["pictures"].values()
    picture = server.get("/api/run/picture", path="runs/second", name=rows[-1][1])
    assert picture.headers["content-type"] == "image/jpeg"
    assert server.get("/api/run/picture", path="runs/second", name="metrics.jsonl").status == 404
    assert server.get("/api/run", path="album").status == 404


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "provenance.json", "pictures"])
def test_a_run_whose_files_lie_elsewhere_is_refused(
    name: str, weights: Path, album: Path, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "first", tmp_path / "runs" / "mine")
    place, outside = tmp_path / "runs" / "mine" / name, tmp_path / "outside"
    if place.is_dir():
        place.rename(outside)
    else:
        outside.write_text('{"step": 1, "kind": "secret", "loss": 1}\n')
        place.unlink(missing_ok=True)
    place.symlink_to(outside)
    with running(services_of(weights, [tmp_path / "runs"])) as client:
        assert [run["path"] for run in client.get("/api/runs").json] == (
            [] if name == "metrics.jsonl" else ["runs/mine"]
        )
        for answer in (
            client.get("/api/run", path="runs/mine"),
            client.get("/api/run/picture", path="runs/mine", name="0000020_matches_0.jpg"),
        ):
            assert answer.status == 403
            assert f"{name} is a link that leads out" in answer.detail


def test_roots_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        (tmp_path / parent / "photos").mkdir(parents=True)
    roots = Roots([tmp_path / "x" / "photos", tmp_path / "y" / "photos", tmp_path / "x" / "photos"])
    assert roots.names() == ["photos", "photos-2"]
    assert roots.resolve("photos-2") == (tmp_path / "y" / "photos").resolve()
    assert roots.reference(tmp_path / "y" / "photos" / "a.jpg") == "photos-2/a.jpg"
    assert roots.reference(tmp_path) is None
    with pytest.raises(RefusedError):
        roots.resolve("photos/../../y/photos")
    with pytest.raises(DataError, match="there is no folder"):
        Roots([tmp_path / "z"])


def test_thinned_curves_keep_their_end() -> None:
    from posfeat.page.run_files import MOST_POINTS, thinned

    rows = [[float(i), 0.0] for i in range(10 * MOST_POINTS + 3)]
    kept = thinned(rows)
    assert len(kept) <= MOST_POINTS
    assert kept[-1] == rows[-1]
