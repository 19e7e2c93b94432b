"""The photos of a folder -> their features, in turn: reading, networks, selection and writing go on side by side.

A processor takes several photos at once, each on its share of the cores: while one is in the networks another's keypoints
are selected, and nobody waits for the slowest thread of every layer. An accelerator takes several photos of one size in
one run. Photos are read ahead, and never more than one group of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.data.images import RGB, shown
from posfeat.networks.extraction import read_pixels
from posfeat.networks.views import Mask
from posfeat.types import Features, PosfeatError

Pixels = tuple[RGB, Mask | None]
Outcome = Features | str  # or the line that says why there are none


@dataclass(frozen=True)
class Workshop:
    """What turns photos into features, how many photos it takes in one call, and how many calls at a time."""

    extract_all: Callable[[Sequence[Pixels]], list[Features]]
    photos_in_a_call: int = 1
    calls_at_once: int = 1


def features_in_turn(
    workshop: Workshop, folder: Path, names: Sequence[str], masks: dict[str, Path]
) -> Generator[tuple[str, Outcome], None, None]:
    """What became of each photo, in the order of the names."""
    step, under_way = workshop.photos_in_a_call, deque[Future[list[tuple[str, Outcome]]]]()
    with _pools(workshop.calls_at_once) as (readers, workers):
        for start in range(0, len(names), step):
            group = names[start : start + step]
            pixels = [readers.submit(read_pixels, folder / name, masks.get(name)) for name in group]
            under_way.append(workers.submit(_outcomes, workshop, group, pixels))
            if len(under_way) > workshop.calls_at_once:  # those at work, and one being read
                yield from under_way.popleft().result()
        while under_way:
            yield from under_way.popleft().result()


@contextmanager
def _pools(calls: int) -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
    """Threads that read, and threads that compute with an equal share of torch's threads each."""
    threads = torch.get_num_threads()
    readers = ThreadPoolExecutor(threads, "decode")
    workers = ThreadPoolExecutor(calls, "features", torch.set_num_threads, (max(threads // calls, 1),))
    try:
        yield readers, workers
    finally:
        for pool in (readers, workers):
            pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # some libraries take what the workers set for everybody


def _outcomes(workshop: Workshop, names: Sequence[str], pixels: Sequence[Future[Pixels]]) -> list[tuple[str, Outcome]]:
    """What became of a group of photos that are being read."""
    read: dict[str, Pixels] = {}
    outcomes: dict[str, Outcome] = {}
    for name, future in zip(names, pixels, strict=True):
        try:
            read[name] = future.result()
        except (PosfeatError, MemoryError) as error:
            outcomes[name] = _reason(name, error)
    outcomes |= _features(workshop, read)
    return [(name, outcomes[name]) for name in names]


def _features(workshop: Workshop, photos: dict[str, Pixels]) -> dict[str, Outcome]:
    """The features of photos; where all at once are too much, of one after another."""
    if not photos:
        return {}
    try:
        return dict(zip(photos, workshop.extract_all(list(photos.values())), strict=True))
    except (PosfeatError, MemoryError, RuntimeError) as error:
        if len(photos) > 1:
            return {name: _features(workshop, {name: photo})[name] for name, photo in photos.items()}
        (name,) = photos
        return {name: _reason(name, error)}


def _reason(name: str, error: Exception) -> str:
    """The line for a photo that costs itself only; what is wrong with us is raised."""
    if isinstance(error, PosfeatError):
        return str(error)
    if isinstance(error, RuntimeError) and "memory" not in str(error):
        raise error
    return f"{shown(name)} does not fit into memory; shrink it, or run it in smaller tiles"
