"""Sources of pairs -> batches, in an order that the seed and the step number alone decide.

Item i of the global batch of step s is drawn with ``numpy.random.default_rng([seed, s, i])``, whatever process or thread draws it:
a run resumes from its step number, and gives the same batches on one process and on many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from posfeat.data.images import normalise
from posfeat.data.pair_sample import PairSample, PairSource, Pixels
from posfeat.data.photo_source import PhotoSource
from posfeat.types import OptionsError, PairBatch

__all__ = ["PairLoader", "PairSample", "PairSource", "PhotoSource", "batch_samples"]

BATCHES_AHEAD = 2  # drawn by the workers while one is being used


class PairLoader:
    """Iterates over PairBatch from ``first_step`` on; ``len()`` only where ``num_steps`` is given.

    ``batch_size`` is that of the global batch; of ``world_size`` processes, the one with number ``rank`` gets an equal,
    contiguous share. ``workers`` threads draw the items of a batch, or ``processes`` processes whole batches: threads share
    one cache of photos and suit a few cores, processes suit many. With ``raw`` the images stay uint8, for ``normalised`` to
    make network input of on whatever device they come to.
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
        processes: int = 0,
        raw: bool = False,
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
        self._first_step, self._num_steps, self._workers, self._processes = first_step, num_steps, workers, processes
        self._raw = raw

    def __len__(self) -> int:
        if self._num_steps is None:
            raise TypeError("this loader has no end")
        return self._num_steps

    def __iter__(self) -> Iterator[PairBatch]:
        if self._processes > 0:
            yield from map(self._finish, self._iterate_processes())
        elif self._workers == 0:
            for step in self._steps():
                yield self._finish(self.draw_raw(step))
        else:
            yield from self._iterate_ahead()

    def draw(self, step: int, item: int) -> PairSample:
        """Item ``item`` of the global batch of step ``step``."""
        rng = np.random.default_rng([self._seed, step, item])
        source = self._sources[int(rng.choice(len(self._sources), p=self._chances))]
        return source.draw(rng, self._height, self._width)

    def draw_raw(self, step: int) -> PairBatch:
        """This process's share of the batch of a step, as ``batch_samples`` makes it but for images of uint8."""
        return raw_batch([self.draw(step, item) for item in self._items])

    def _iterate_processes(self) -> Iterator[PairBatch]:
        """Processes draw whole batches; what they hand over is uint8, a quarter of the bytes."""
        steps = self._steps()
        batches: DataLoader[PairBatch] = DataLoader(
            _RawBatches(self),
            batch_size=None,
            sampler=steps,
            num_workers=self._processes,
            prefetch_factor=BATCHES_AHEAD,
            worker_init_fn=_use_one_thread,
            # new interpreters: in the copy of a process that has had threads, the libraries' locks may be held for ever
            multiprocessing_context="spawn",
        )
        return iter(batches)

    def _finish(self, batch: PairBatch) -> PairBatch:
        return batch if self._raw else normalised(batch)

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
                yield self._finish(raw_batch([future.result() for future in pending.popleft()]))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _use_one_thread(_worker: int) -> None:
    """As many processes as cores, each with as many threads, would mostly wait for one another."""
    import cv2
    from threadpoolctl import threadpool_limits

    cv2.setNumThreads(1)
    threadpool_limits(1)


class _RawBatches(Dataset[PairBatch]):
    """Batches by the number of their step."""

    def __init__(self, loader: PairLoader) -> None:
        self._loader = loader

    def __getitem__(self, step: int) -> PairBatch:
        return self._loader.draw_raw(step)


def normalised(batch: PairBatch) -> PairBatch:
    """The batch with images of uint8 made network input."""
    return replace(batch, image0=normalise(batch.image0), image1=normalise(batch.image1))


def batch_samples(samples: Sequence[PairSample]) -> PairBatch:
    """Pairs of equal size as one batch of normalised images."""
    return normalised(raw_batch(samples))


def raw_batch(samples: Sequence[PairSample]) -> PairBatch:
    """Pairs of equal size as one batch whose images are still uint8."""
    maps = [sample.map1_from_map0 for sample in samples]
    known = [one for one in maps if one is not None]
    return PairBatch(
        image0=_stacked([sample.image0 for sample in samples]),
        image1=_stacked([sample.image1 for sample in samples]),
        intrinsics0=torch.from_numpy(np.stack([sample.intrinsics0 for sample in samples])).float(),
        intrinsics1=torch.from_numpy(np.stack([sample.intrinsics1 for sample in samples])).float(),
        cam1_from_cam0=torch.from_numpy(np.stack([sample.cam1_from_cam0 for sample in samples])).float(),
        has_baseline=torch.tensor([sample.has_baseline for sample in samples]),
        map1_from_map0=torch.from_numpy(np.stack(known)) if len(known) == len(maps) else None,
        names=tuple(sample.name for sample in samples),
    )


def _stacked(images: Sequence[Pixels]) -> torch.Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
