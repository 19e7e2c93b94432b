"""Sources of pairs -> batches, in an order that the seed and the step number alone decide.

Item i of the global batch of step s is drawn with ``numpy.random.default_rng([seed, s, i])``, whatever process or thread draws it:
a run resumes from its step number, and gives the same batches on one process and on many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from posfeat.data.images import normalise
from posfeat.data.pair_sample import PairSample, PairSource
from posfeat.data.photo_source import PhotoSource
from posfeat.types import OptionsError, PairBatch

__all__ = ["PairLoader", "PairSample", "PairSource", "PhotoSource", "batch_samples"]

BATCHES_AHEAD = 2  # drawn by the workers while one is being used


class PairLoader:
    """Iterates over PairBatch from ``first_step`` on; ``len()`` only where ``num_steps`` is given.

    ``batch_size`` is that of the global batch; of ``world_size`` processes, the one with number ``rank`` gets an equal, contiguous share.
    """

    def __init__(
        self,
        sources: Sequence[PairSource],
        weights: Sequence[float] | None,
        batch_size: int,
        height: int,
        width: int,
        seed: int,
        first_step: int = 0,
        num_steps: int | None = None,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not sources:
            raise OptionsError("a loader needs at least one source of pairs")
        if batch_size % world_size:
            raise OptionsError(f"batch_size={batch_size} cannot be shared equally by {world_size} processes")
        weights = [1.0] * len(sources) if weights is None else list(weights)
        if len(weights) != len(sources) or min(weights) < 0 or sum(weights) <= 0:
            raise OptionsError(f"weights={weights} must be one number, at least 0, for each of {len(sources)} sources")
        self._sources = list(sources)
        self._chances = np.array(weights, dtype=np.float64) / sum(weights)
        share = batch_size // world_size
        self._items = range(rank * share, (rank + 1) * share)
        self._height, self._width, self._seed = height, width, seed
        self._first_step, self._num_steps, self._workers = first_step, num_steps, workers

    def __len__(self) -> int:
        if self._num_steps is None:
            raise TypeError("this loader has no end")
        return self._num_steps

    def __iter__(self) -> Iterator[PairBatch]:
        if self._workers == 0:
            for step in self._steps():
                yield batch_samples([self.draw(step, item) for item in self._items])
        else:
            yield from self._iterate_ahead()

    def draw(self, step: int, item: int) -> PairSample:
        """Item ``item`` of the global batch of step ``step``."""
        rng = np.random.default_rng([self._seed, step, item])
        source = self._sources[int(rng.choice(len(self._sources), p=self._chances))]
        return source.draw(rng, self._height, self._width)

    def _steps(self) -> Iterator[int]:
        step = self._first_step
        while self._num_steps is None or step < self._first_step + self._num_steps:
            yield step
            step += 1

    def _iterate_ahead(self) -> Iterator[PairBatch]:
        """Threads draw the items: numpy and OpenCV let go of the interpreter lock, and one cache of photos serves all."""
        steps, pending = self._steps(), deque[list[Future[PairSample]]]()
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="pairs")
        try:
            while True:
                while len(pending) <= BATCHES_AHEAD and (step := next(steps, None)) is not None:
                    pending.append([pool.submit(self.draw, step, item) for item in self._items])
                if not pending:
                    return
                yield batch_samples([future.result() for future in pending.popleft()])
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def batch_samples(samples: Sequence[PairSample]) -> PairBatch:
    """Pairs of equal size as one batch of normalised images."""
    maps = [sample.map1_from_map0 for sample in samples]
    known = [one for one in maps if one is not None]
    return PairBatch(
        image0=normalise(np.stack([sample.image0 for sample in samples])),
        image1=normalise(np.stack([sample.image1 for sample in samples])),
        intrinsics0=torch.from_numpy(np.stack([sample.intrinsics0 for sample in samples])).float(),
        intrinsics1=torch.from_numpy(np.stack([sample.intrinsics1 for sample in samples])).float(),
        cam1_from_cam0=torch.from_numpy(np.stack([sample.cam1_from_cam0 for sample in samples])).float(),
        has_baseline=torch.tensor([sample.has_baseline for sample in samples]),
        map1_from_map0=torch.from_numpy(np.stack(known)) if len(known) == len(maps) else None,
        names=tuple(sample.name for sample in samples),
    )
