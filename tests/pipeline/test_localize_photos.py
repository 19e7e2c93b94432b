"""Lists of queries and poses, and many photos localized in one go: resumed, told of, and written as the benchmark wants it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from posfeat.interop.visual_localization import read_poses, read_queries, write_poses
from posfeat.pipeline.localize import Localizer
from posfeat.pipeline.localize_photos import localize_photos
from posfeat.types import Camera, DataError, StoreError
from tests.pipeline.mapped_scene import MappedScene, write_map, write_query_features
from tests.pipeline.projected_scene import CAMERA

pytest.importorskip("pycolmap")


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> MappedScene:
    made = write_map(tmp_path_factory.mktemp("map"), noise_px=0.2)
    write_query_features(made.folder / "queries.h5", made.queries)
    return made


def queries_of(mapped: MappedScene) -> dict[str, Camera | None]:
    return {view.name: view.camera for view, _ in mapped.queries}


def test_a_list_of_poses_and_details(mapped: MappedScene, tmp_path: Path) -> None:
    lines: list[str] = []
    heard: list[tuple[int, int]] = []
    queries = {**queries_of(mapped), "gone.png": None, "day 1/my photo.png": None}
    with Localizer(mapped.folder) as localizer:
        report = localize_photos(
            localizer,
            queries,
            tmp_path,
            tmp_path / "poses.txt",
            query_features=mapped.folder / "queries.h5",
            details=tmp_path / "details.jsonl",
            progress=lambda *done: heard.append(done),
            on_failure=lines.append,
        )
    assert (report.num_photos, report.num_localized, report.num_known) == (5, 3, 0)
    assert list(report.failures) == lines
    assert len(lines) == 2
    assert "gone.png" in lines[0]
    assert "'my photo.png'; rename the photo without spaces" in lines[1]
    assert heard[-1] == (5, 5)
    poses = read_poses(tmp_path / "poses.txt")
    assert list(poses) == [view.name for view, _ in mapped.queries]
    for view, _ in mapped.queries:
        np.testing.assert_allclose(poses[view.name], view.cam_from_world, atol=0.02)
    rows = [json.loads(line) for line in (tmp_path / "details.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == list(queries)
    assert rows[0]["num_inliers"] > 100
    assert rows[0]["centre_deviation"] > 0
    assert np.array(rows[0]["covariance"]).shape == (6, 6)
    assert "failure" in rows[3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["details.jsonl", "poses.txt"]


def test_an_interruption_loses_nothing_and_nothing_is_done_twice(mapped: MappedScene, tmp_path: Path) -> None:
    output, done = tmp_path / "poses.txt", []

    def stop(count: int, _: int) -> None:
        done.append(count)
        if count == 2:
            raise KeyboardInterrupt

    with Localizer(mapped.folder) as localizer:
        arguments = (localizer, queries_of(mapped), tmp_path, output)
        named = {"query_features": mapped.folder / "queries.h5"}
        with pytest.raises(KeyboardInterrupt):
            localize_photos(*arguments, **named, progress=stop)
        assert not output.exists()
        with (tmp_path / "poses.txt.unfinished").open("a") as journal:
            journal.write('{"name": "half a li')  # of a process that was killed
        report = localize_photos(*arguments, **named)
        assert (report.num_known, report.num_localized) == (2, 3)
        assert localize_photos(*arguments, **named).num_known == 0  # finished work is another job's
    assert len(read_poses(output)) == 3


def test_queries_as_the_benchmark_lists_them(tmp_path: Path) -> None:
    listed = tmp_path / "queries_with_intrinsics.txt"
    listed.write_text("# comment\nnight/a.jpg SIMPLE_RADIAL 640 480 600 320 240 0.05\n\nb.jpg\n")
    queries = read_queries(listed)
    assert list(queries) == ["night/a.jpg", "b.jpg"]
    camera = queries["night/a.jpg"]
    assert camera is not None
    np.testing.assert_allclose(camera.matrix, CAMERA.matrix)  # COLMAP counts from a pixel's corner
    assert camera.distortion == (0.05,)
    assert queries["b.jpg"] is None
    for text, words in (
        ("a.jpg PINHOLE 640 x", "line 1"), ("a.jpg NONE 640 480 1 2 3", "line 1"), ("", "no queries"),
    ):  # fmt: skip
        listed.write_text(text)
        with pytest.raises(DataError, match=words) as caught:
            read_queries(listed)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="cannot read"):
        read_queries(tmp_path / "missing.txt")


def test_poses_there_and_back(mapped: MappedScene, tmp_path: Path) -> None:
    poses = {f"night/{view.name}": view.cam_from_world for view, _ in mapped.queries}
    path = tmp_path / "poses.txt"
    for full_names in (False, True):
        write_poses(path, poses, full_names)
        for name, pose in poses.items():
            np.testing.assert_allclose(read_poses(path)[name if full_names else Path(name).name], pose, atol=1e-12)
    name, *numbers = path.read_text().splitlines()[0].split()
    assert (name, len(numbers)) == (next(iter(poses)), 7)
    assert np.linalg.norm([float(value) for value in numbers[:4]]) == pytest.approx(1)  # w first, then x y z
    first = next(iter(poses.values()))
    with pytest.raises(DataError, match="two photos are named"):
        write_poses(path, {"x/a.jpg": first, "y/a.jpg": first})
    with pytest.raises(DataError, match="without spaces"):
        write_poses(path, {"a b.jpg": first})
    path.write_text("a.jpg 1 0 0\n")
    with pytest.raises(DataError, match="line 1"):
        read_poses(path)
    with pytest.raises(StoreError, match="cannot write"):
        write_poses(tmp_path / "no folder" / "poses.txt", poses)
