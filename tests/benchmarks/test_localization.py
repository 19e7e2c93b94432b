"""Photos left out of a map and localized in it: exact features give exact poses, wrong ones show as wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posfeat.benchmarks.localization import (
    LocalizedPhoto,
    split_views,
    summarise_localization,
)
from posfeat.cli import app
from posfeat.types import DataError
from tests.benchmarks.miniature_world import World, pose_at, posed_views, write_posed_scene

pytest.importorskip("pycolmap")
NAMES = tuple(f"{index:04d}.ppm" for index in range(5))
QUERY = NAMES[2]


def a_world(moved: float = 0.0) -> World:
    """Five photos on an arc; with ``moved``, the one that is left out shows what would be seen from elsewhere."""
    true = {name: pose_at(float(index)) for index, name in enumerate(NAMES)}
    return World(true, {QUERY: pose_at(2.0, moved)} if moved else {})


@pytest.mark.parametrize("known", [True, False])
def test_exact_features_beside_those_of_another_place(tmp_path: Path, known: bool) -> None:
    write_posed_scene(tmp_path / "hall", a_world())
    exact = a_world().export(tmp_path / "exact.h5", "images/")
    moved = a_world(0.3).export(tmp_path / "moved.h5", "images/")
    command = ["evaluate", "localization", str(tmp_path / "hall"), "--methods", f"exact={exact}", f"moved={moved}"]
    command += ["-o", str(tmp_path / "out"), *([] if known else ["--unknown-cameras"])]
    run = CliRunner().invoke(app, command, catch_exceptions=False)
    assert run.exit_code == 0
    assert "1/1" in run.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["known_cameras"] is known
    (good,), (bad,) = (method["scenes"] for method in results["methods"])
    assert (good["queries"], good["localized"]) == (1, 1)
    assert good["median_centre_percent"] < (0.1 if known else 0.5)
    assert good["recall"][1:] == [1, 1]
    assert bad["localized"] == 1
    assert bad["median_centre_percent"] > 2
    assert bad["recall"] == [0, 0, 0]
    assert results["methods"][0]["maps"][0]["num_photos"] == 4
    assert not list((tmp_path / "out").glob("map-*")), "maps are not kept"


def test_every_fifth_photo_is_left_out() -> None:
    views = posed_views(World({f"{i}.ppm": pose_at(i / 4) for i in range(25)}), Path("photos"))
    mapped, queries = split_views(views)
    assert [view.name for view in queries] == [f"{i}.ppm" for i in (2, 7, 12, 17, 22)]
    assert len(mapped) == 20
    with pytest.raises(DataError, match="too few"):
        split_views(views[:4])


def test_photos_without_a_pose_are_infinitely_wrong() -> None:
    errors = [0.05, 0.3, math.inf, math.inf]
    photos = [LocalizedPhoto("hall", str(i), error, error, 20, 15) for i, error in enumerate(errors)]
    (summary,) = summarise_localization(photos)
    assert (summary.queries, summary.localized) == (4, 2)
    assert summary.median_centre_percent == math.inf
    assert summary.recall == (0.25, 0.5, 0.5)
    assert summarise_localization(photos[:3])[0].median_centre_percent == 0.3
    assert [one.scene for one in summarise_localization([*photos, LocalizedPhoto("yard", "0", 0, 0, 9, 9)])] == [
        "all", "hall", "yard",
    ]  # fmt: skip
