"""Extraction and matching killed at twenty random moments each: nothing finished is lost, and nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
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
from posfeat.pipeline.extract import extract_folder
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.types import Features, Matches

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses fork and signals")

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


def kill_again_and_again(work: Callable[[], object], log: Log, finished: Callable[[], set[str]]) -> int:
    """Start the work and kill it, twenty times; how many of the kills came while it was at work."""
    moments, killed = random.Random(0), 0
    for _ in range(KILLS):
        had, first = finished(), len(log.lines())
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        enough, ended = first + moments.randint(1, MOST_BEFORE_A_KILL), False
        while len(log.lines()) < enough and not ended:
            time.sleep(0.001)
            ended = os.waitpid(child, os.WNOHANG)[0] == child
        if not ended:
            os.kill(child, signal.SIGKILL)
            killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        begun = log.lines()[first:]
        assert len(begun) == len(set(begun))
        assert not had & set(begun), "work that was finished has been done again"
        assert had <= finished(), "finished work is lost"
    return killed


def test_extraction(tmp_path: Path) -> None:
    photos, count = tmp_path / "photos", KILLS * MOST_BEFORE_A_KILL
    for number in range(count):
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[0, 0] = number % 256, number // 256, 0
        write_image(photos / f"{number:04d}.png", picture)
    log, store_path = Log(tmp_path / "log"), tmp_path / "f.h5"

    def finished() -> set[str]:
        with FeatureStore(store_path, "a", LoggedExtractor.settings) as store:
            return set(store.names())

    def work() -> object:
        return extract_folder(LoggedExtractor(log), photos, store_path, descriptor_format="float32")  # type: ignore[arg-type]

    assert kill_again_and_again(work, log, finished) == KILLS
    known = len(finished())
    assert known > 64
    report = extract_folder(LoggedExtractor(log), photos, store_path)  # type: ignore[arg-type]
    assert (report.num_known, report.num_extracted, report.failures) == (known, count - known, ())
    with FeatureStore(store_path) as store:
        assert store.verify() == []
        for number in range(0, count, 97):
            assert torch.equal(store.read(f"{number:04d}.png").keypoints, some_features(number).keypoints)


def test_matching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:04d}.png" for number in range(60)]
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write_all([(name, some_features(number)) for number, name in enumerate(names)], "float32")
    pairs, log = all_pairs(names), Log(tmp_path / "log")
    numbers = {tuple(some_features(n).keypoints[0].tolist()): name for n, name in enumerate(names)}

    def logged(features0: Features, features1: Features, options: MatchOptions | None = None) -> Matches:
        log.add(" ".join(numbers[tuple(features.keypoints[0].tolist())] for features in (features0, features1)))
        return match(features0, features1, options)

    def finished() -> set[str]:
        with MatchStore(tmp_path / "m.h5", "a") as store:
            return {" ".join(pair) for pair in store.pairs()}

    def work() -> object:
        return match_pairs(tmp_path / "f.h5", pairs, tmp_path / "m.h5")

    monkeypatch.setattr(matching_module, "match", logged)
    assert kill_again_and_again(work, log, finished) > KILLS // 2
    known = len(finished())
    report = match_pairs(tmp_path / "f.h5", pairs, tmp_path / "m.h5")
    assert (report.num_known, report.num_matched, report.failures) == (known, len(pairs) - known, ())
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.verify() == []
        assert len(store) == len(pairs)
