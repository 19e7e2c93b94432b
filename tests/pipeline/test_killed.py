"""Extraction and matching killed at twenty random moments each: nothing finished is lost, and nothing is done twice."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.data.images import RGB, write_image
from posfeat.matching import MatchOptions, match
from posfeat.networks.views import Mask
from posfeat.pipeline import match as matching_module
from posfeat.pipeline.extract import ExtractionReport, extract_folder
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.types import Features, Matches
from tests.pipeline import clean_process

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses signals")

KILLS = 20
MOST_BEFORE_A_KILL = 100  # results are written 64 at a time
DIM = 16


class Log:
    """Lines that several processes wrote, whole even if the next moment was their last."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_RDWR)
        self.path = path

    def add(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())

    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines()


class LoggedExtractor:
    """Finds little, and notes what it was asked for: a photo's first pixel is its number."""

    settings: ClassVar[dict[str, Any]] = {"weights": "none"}
    own_matching = MatchOptions()

    def __init__(self, log: Log) -> None:
        self.log = log

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        number = int(rgb[0, 0] @ [1, 256, 0])
        self.log.add(f"{number:04d}.png")
        time.sleep(0.005)  # a photo takes a while, in which those before it are written
        return some_features(number)


def some_features(number: int) -> Features:
    generator = torch.Generator().manual_seed(number)
    descriptors = F.normalize(torch.randn(20, DIM, generator=generator), dim=1)
    return Features(torch.rand(20, 2, generator=generator) * 7, torch.linspace(1, 0.1, 20), descriptors, (8, 8))


def kill_again_and_again(work: Callable[[Path], object], folder: Path, finished: Callable[[], set[str]]) -> int:
    """Start the work and kill it, twenty times; how many of the kills came while it was at work."""
    moments, killed, log = random.Random(0), 0, Log(folder / "log")
    for _ in range(KILLS):
        had, first = finished(), len(log.lines())
        child = clean_process.start(work, folder)
        enough = first + moments.randint(1, MOST_BEFORE_A_KILL)
        while len(log.lines()) < enough and child.is_alive():
            time.sleep(0.001)
        child.kill()
        child.join()
        killed += child.exitcode != 0
        begun = log.lines()[first:]
        assert len(begun) == len(set(begun))
        assert not had & set(begun), "work that was finished has been done again"
        assert had <= finished(), "finished work is lost"
    return killed


def extract_logged(folder: Path) -> ExtractionReport:
    extractor: Any = LoggedExtractor(Log(folder / "log"))
    return extract_folder(extractor, folder / "photos", folder / "f.h5", descriptor_format="float32")


def test_extraction(tmp_path: Path) -> None:
    photos, count = tmp_path / "photos", KILLS * MOST_BEFORE_A_KILL
    for number in range(count):
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[0, 0] = number % 256, number // 256, 0
        write_image(photos / f"{number:04d}.png", picture)
    store_path = tmp_path / "f.h5"

    def finished() -> set[str]:
        with FeatureStore(store_path, "a", LoggedExtractor.settings) as store:
            return set(store.names())

    assert kill_again_and_again(extract_logged, tmp_path, finished) == KILLS
    known = len(finished())
    assert known > 64
    report = extract_logged(tmp_path)
    assert (report.num_known, report.num_extracted, report.failures) == (known, count - known, ())
    with FeatureStore(store_path) as store:
        assert store.verify() == []
        for number in range(0, count, 97):
            assert torch.equal(store.read(f"{number:04d}.png").keypoints, some_features(number).keypoints)


NAMES = [f"{number:04d}.png" for number in range(60)]


def match_logged(folder: Path) -> None:
    """In a process of its own: match all pairs, and note each before it is matched."""
    log = Log(folder / "log")
    numbers = {tuple(some_features(n).keypoints[0].tolist()): name for n, name in enumerate(NAMES)}

    def logged(features0: Features, features1: Features, options: MatchOptions | None = None) -> Matches:
        log.add(" ".join(numbers[tuple(features.keypoints[0].tolist())] for features in (features0, features1)))
        return match(features0, features1, options)

    matching_module.match = logged  # type: ignore[attr-defined]
    match_pairs(folder / "f.h5", all_pairs(NAMES), folder / "m.h5")


def test_matching(tmp_path: Path) -> None:
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write_all([(name, some_features(number)) for number, name in enumerate(NAMES)], "float32")
    pairs = all_pairs(NAMES)

    def finished() -> set[str]:
        with MatchStore(tmp_path / "m.h5", "a") as store:
            return {" ".join(pair) for pair in store.pairs()}

    assert kill_again_and_again(match_logged, tmp_path, finished) > KILLS // 2
    known = len(finished())
    report = match_pairs(tmp_path / "f.h5", pairs, tmp_path / "m.h5")
    assert (report.num_known, report.num_matched, report.failures) == (known, len(pairs) - known, ())
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.verify() == []
        assert len(store) == len(pairs)
