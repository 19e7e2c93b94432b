"""Photos worked on side by side: the order stays, what fails costs itself, and what is wrong with us is not swallowed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.images import write_image
from posfeat.pipeline.photo_features import Outcome, Pixels, Workshop, features_in_turn
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import Features, StoreError

NAMES = [f"{number:02}.png" for number in range(11)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos whose first pixel is their number; the sixth is none."""
    for number, name in enumerate(NAMES):
        write_image(tmp_path / name, np.full((16, 16, 3), number, np.uint8))
    (tmp_path / NAMES[5]).write_bytes(b"no picture")
    return tmp_path


def number_of(photo: Pixels) -> int:
    return int(photo[0][0, 0, 0])


def features_of(photo: Pixels) -> Features:
    return Features(torch.zeros(0, 2), torch.zeros(0), torch.zeros(0, 4), (number_of(photo), 16))


def outcomes(workshop: Workshop, folder: Path) -> list[tuple[str, Outcome]]:
    return list(features_in_turn(workshop, folder, NAMES, {}))


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("photos", [1, 4, 20])
def test_every_photo_in_its_order(folder: Path, photos: int, calls: int) -> None:
    at_work, most, sizes = 0, 0, set()
    lock, threads = threading.Lock(), torch.get_num_threads()

    def extract(group: Sequence[Pixels]) -> list[Features]:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02 * (number_of(group[0]) % 3))
        sizes.add(len(group))
        assert torch.get_num_threads() == max(threads // calls, 1)
        with lock:
            at_work -= 1
        return [features_of(photo) for photo in group]

    found = outcomes(Workshop(extract, photos, calls), folder)
    assert [name for name, _ in found] == NAMES
    for number, (_, outcome) in enumerate(found):
        if number == 5:
            assert isinstance(outcome, str)
            assert NAMES[5] in outcome
        else:
            assert isinstance(outcome, Features)
            assert outcome.image_size[0] == number
    assert most <= calls
    assert max(sizes) <= photos
    assert torch.get_num_threads() == threads


def test_a_group_that_does_not_fit_goes_one_by_one(folder: Path) -> None:
    def extract(group: Sequence[Pixels]) -> list[Features]:
        if len(group) > 1 or number_of(group[0]) == 7:
            raise torch.OutOfMemoryError("out of memory")
        return [features_of(photo) for photo in group]

    lines = {name: outcome for name, outcome in outcomes(Workshop(extract, 4), folder) if isinstance(outcome, str)}
    assert list(lines) == [NAMES[5], NAMES[7]]
    assert "does not fit into memory" in lines[NAMES[7]]


def test_our_own_mistakes_are_raised(folder: Path) -> None:
    def extract(group: Sequence[Pixels]) -> list[Features]:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        outcomes(Workshop(extract, 2, 2), folder)


def test_writing_behind_keeps_the_order_and_raises_what_goes_wrong() -> None:
    written: list[int] = []
    with WriteBatch[int](written.extend, seconds=0, behind=True) as batch:
        for number in range(100):
            batch.add(number)
            batch.write_if_due()
    assert written == list(range(100))

    def full(items: list[int]) -> None:
        raise StoreError("is the disk full?")

    with pytest.raises(StoreError, match="full"), WriteBatch[int](full, seconds=0, behind=True) as batch:  # noqa: PT012
        batch.add(1)
        batch.write_if_due()
