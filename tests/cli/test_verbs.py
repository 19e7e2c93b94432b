"""extract, match and inspect from the command line: what they print, write, and return."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posfeat.data.images import read_image, write_image
from posfeat.pipeline.feature_store import FeatureStore, MatchStore

Posfeat = Callable[..., Any]


def test_match_two_photos(posfeat: Posfeat, photos: Path, untrained: Path, tmp_path: Path) -> None:
    picture = tmp_path / "new folder" / "matches.png"
    run = posfeat("match", photos / "a.png", photos / "second day" / "b.png", "--weights", untrained, "-o", picture)
    assert run.code == 0
    assert "matches: " in run.out
    assert "untrained weights" in run.err
    assert read_image(picture).shape[1] > 2 * 160


def test_match_two_photos_as_json(posfeat: Posfeat, photos: Path, untrained: Path) -> None:
    run = posfeat(
        "match", photos / "a.png", photos / "second day" / "b.png", "--weights", untrained, "--json",
        "--max-keypoints", 50, "--precision", "fp32",
    )  # fmt: skip
    result = json.loads(run.out)
    assert [image["size"] for image in result["images"]] == [[160, 128], [160, 128]]
    assert all(image["keypoints"] <= 50 for image in result["images"])
    assert len(result["matches"]) == len(result["verified"]) > 0
    assert all(len(row) == 5 for row in result["matches"])


def test_extract_then_match_then_inspect(posfeat: Posfeat, photos: Path, untrained: Path, tmp_path: Path) -> None:
    features, matches = tmp_path / "features.h5", tmp_path / "matches.h5"
    assert "extracted: 2," in posfeat("extract", photos, "-o", features, "--weights", untrained).out
    assert "there already: 2," in posfeat("extract", photos, "-o", features, "--weights", untrained).out
    assert "matched pairs: 1," in posfeat("match", features, "-o", matches).out
    with MatchStore(matches) as store:
        assert store.pairs() == [("a.png", "second day/b.png")]
    for path, words in ((features, "features of 2 images"), (matches, "matches of 1 pairs")):
        run = posfeat("inspect", path, "--verify")
        assert (run.code, words in run.out, "all of it is sound" in run.out) == (0, True, True)


def test_match_a_folder_with_pairs(posfeat: Posfeat, photos: Path, untrained: Path, tmp_path: Path) -> None:
    pairs, matches = tmp_path / "pairs.txt", tmp_path / "out" / "matches.h5"
    pairs.write_text("second day/b.png\ta.png\n")
    run = posfeat("match", photos, "--pairs", pairs, "-o", matches, "--weights", untrained)
    assert run.code == 0
    with FeatureStore(matches.with_name("matches.features.h5")) as store:
        assert len(store) == 2
    with MatchStore(matches) as store:
        assert store.pairs() == [("second day/b.png", "a.png")]


def test_a_broken_photo_costs_itself_only(posfeat: Posfeat, photos: Path, untrained: Path, tmp_path: Path) -> None:
    (photos / "broken.jpg").write_bytes(b"\xff\xd8 and nothing more")
    run = posfeat("extract", photos, "-o", tmp_path / "features.h5", "--weights", untrained)
    assert run.code == 1
    assert "extracted: 2, there already: 0, failed: 1" in run.out
    assert [line for line in run.err.splitlines() if "broken.jpg" in line] != []


def test_one_mask_for_all_photos(posfeat: Posfeat, photos: Path, untrained: Path, tmp_path: Path) -> None:
    mask = np.zeros((128, 160), np.uint8)
    mask[:, :50] = 255
    write_image(photos / "mask.png", mask)
    features = tmp_path / "features.h5"
    run = posfeat("extract", photos, "-o", features, "--weights", untrained, "--masks", photos / "mask.png")
    assert "extracted: 2, there already: 0, failed: 0\nfeatures:" in run.out
    with FeatureStore(features) as store:
        assert all(0 < float(store.read(name).keypoints[:, 0].max()) < 50 for name in store.names())


def test_inspect_a_checkpoint(posfeat: Posfeat, untrained: Path) -> None:
    run = posfeat("inspect", untrained, "--verify")
    assert run.code == 0
    assert "compact" in run.out
    assert "trained: False" in run.out


def test_inspect_shows_the_card_of_the_shipped_weights(posfeat: Posfeat) -> None:
    run = posfeat("inspect", "default")
    assert run.code == 0
    for field in ("name: ", "trained: True", "recipe: ", "data: ", "seed: ", "licence: Apache-2.0"):
        assert f"\n{field}" in run.out


def test_inspect_says_what_is_damaged(posfeat: Posfeat, untrained: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.safetensors"
    short.write_bytes(untrained.read_bytes()[:-100])
    run = posfeat("inspect", short)
    assert run.code == 2
    assert run.err.startswith("posfeat: error: ")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["match", "only_one.jpg", "--json"],
        ["match", "only_one.jpg"],
        ["match", "a.jpg", "b.jpg", "-o", "matches.doc"],
        ["match", "a.jpg", "b.jpg", "c.jpg"],
        ["match", "a.jpg", "b.jpg", "--pairs", "pairs.txt"],
        ["match", "a.jpg", "b.jpg", "--weights", "nowhere.safetensors"],
        ["match", "a.jpg", "b.jpg", "--set", "selection.nms_sise=3"],
        ["inspect", "nowhere.h5"],
        ["extract", "nowhere", "--weights", "nowhere"],
    ],
    ids=" ".join,
)
def test_mistakes_are_one_line(posfeat: Posfeat, arguments: list[str]) -> None:
    run = posfeat(*arguments)
    assert run.code == 2
    assert run.err.startswith("posfeat: error: ")
    assert run.err.count("\n") == 1
