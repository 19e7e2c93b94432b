"""posfeat convert: there and back again, and what it says of input that does not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.data.images import write_image
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.types import Features, Matches

Posfeat = Callable[..., Any]
NAMES = ("a.png", "b.png")
MATCHES = Matches(torch.tensor([[3, 8], [0, 2]]), torch.tensor([0.9, 0.8]))


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Photos, their features and matches."""
    (tmp_path / "photos").mkdir()
    with FeatureStore(tmp_path / "f.h5", "a") as features, MatchStore(tmp_path / "m.h5", "a") as matches:
        for number, name in enumerate(NAMES):
            write_image(tmp_path / "photos" / name, np.zeros((48, 64, 3), np.uint8))
            xy = torch.rand(10 + number, 2) * torch.tensor([63.0, 47.0])
            descriptors = F.normalize(torch.rand(len(xy), 128), dim=1)
            features.write(name, Features(xy, torch.linspace(1, 0.1, len(xy)), descriptors, (64, 48)))
        matches.write(*NAMES, MATCHES, 10)
    return tmp_path / "photos", tmp_path / "f.h5", tmp_path / "m.h5"


@pytest.mark.parametrize("kind", ["colmap-text", "eth", "imc", "d2net", "aachen"])
def test_there_and_back(posfeat: Posfeat, stores: tuple[Path, Path, Path], tmp_path: Path, kind: str) -> None:
    photos, features, matches = stores
    with_matches = kind in ("colmap-text", "eth", "imc")
    extra = ("--matches", matches) if with_matches else ("--ending", ".mine")
    run = posfeat("convert", features, "-o", tmp_path / "out", "--to", kind, *extra)
    assert (run.code, run.err) == (0, "")
    assert f"converted images: 2, pairs: {int(with_matches)}, failed: 0" in run.out
    extra = ("--matches", tmp_path / "m2.h5") if with_matches else ("--ending", ".mine")
    back = ("--from", kind, "--images", photos, "-o", tmp_path / "f2.h5", *extra)
    assert posfeat("convert", tmp_path / "out", *back).code == 0
    with FeatureStore(features) as before, FeatureStore(tmp_path / "f2.h5") as after:
        assert after.names() == list(NAMES)
        assert after.verify() == []
        for name in NAMES:
            torch.testing.assert_close(after.read(name).keypoints, before.read(name).keypoints, atol=1e-4, rtol=0)
            assert after.read(name).image_size == (64, 48)
    if with_matches:
        with MatchStore(tmp_path / "m2.h5") as store:
            assert store.read(*NAMES).indices.sort(dim=0).values.tolist() == [[0, 2], [3, 8]]


def test_a_missing_photo_and_a_damaged_file_cost_themselves(
    posfeat: Posfeat, stores: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    photos, features, matches = stores
    out = tmp_path / "out"
    posfeat("convert", features, "-o", out, "--to", "eth", "--matches", matches)
    (photos / "b.png").unlink()
    run = posfeat("convert", out, "--from", "eth", "--images", photos, "-o", tmp_path / "f2.h5")
    assert (run.code, "converted images: 1," in run.out) == (1, True)
    assert run.err.count("\n") == 1
    assert "b.png" in run.err
    (out / "keypoints" / "a.png.bin").write_bytes(b"cut")
    run = posfeat(
        "convert", out, "--from", "eth", "--images", photos, "-o", tmp_path / "f3.h5", "--matches", tmp_path / "m3.h5"
    )
    assert (run.code, run.err.count("\n")) == (1, 3)
    assert "do not have" in run.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("f.h5", "-o", "out"), "give --to FORMAT"),
        (("f.h5", "-o", "out", "--from", "eth"), "give --to FORMAT"),
        (("f.h5", "-o", "out", "--to", "d2net", "--matches", "m.h5"), "leave out --matches"),
        (("none.h5", "-o", "out", "--to", "eth"), "no feature file"),
        (("none", "-o", "out.h5", "--from", "eth", "--images", "photos"), "no folder"),
        (("photos", "-o", "out.h5", "--from", "eth", "--images", "photos"), "no features of this format"),
        (("photos", "-o", "out.h5", "--from", "imc", "--images", "photos"), "keypoints.h5"),
    ],
)
def test_mistakes_are_one_line(
    posfeat: Posfeat, stores: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Any, words: Any, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = posfeat("convert", *words)
    assert run.code == 2
    assert run.err.count("\n") == 1
    assert says in run.err


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_one_line(posfeat: Posfeat, stores: tuple[Path, Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    run = posfeat("convert", stores[1], "-o", tmp_path / "out" / "x", "--to", "eth")
    assert (run.code, run.err.count("\n")) == (2, 1)
