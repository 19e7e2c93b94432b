"""A job that writes a store in shards, one for each task: what is left to do, and what became of all of it.

Items are cut into tasks where their own content says so, not at every n-th: another photo in the folder, or another pair
in the list, changes the task that it falls into and leaves all others, and their shards, as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from posfeat.pipeline.hdf5_store import check_settings
from posfeat.pipeline.shards import (
    Manifest,
    ShardFolder,
    finished_shards,
    read_header,
    read_manifests,
    shard_name,
    write_header,
    write_shard,
)
from posfeat.scale.cluster import ClusterOptions, Work, connected, run_tasks
from posfeat.types import StoreError

Progress = Callable[[int, int], None]
SMALL_JOB_TASKS = 64  # jobs of fewer whole tasks are cut finer, so that all workers have something to do
FINER = 8


class PairItem(NamedTuple):
    """A pair to match, and the shards that hold the features of its images ("": they are in one file)."""

    name0: str
    name1: str
    shard0: str = ""
    shard1: str = ""


Item = TypeVar("Item", str, PairItem)


@dataclass(frozen=True)
class JobReport:
    """What became of all items."""

    num_done: int
    num_known: int  # done in an earlier run
    failures: tuple[str, ...]
    num_without_mask: int


@dataclass(frozen=True)
class ShardWriter:
    """The store that a job writes."""

    folder: ShardFolder
    kind: str
    settings: Mapping[str, Any]

    def begin(self) -> None:
        """Make the folder what it must be, or refuse one that holds something else."""
        header = read_header(self.folder)
        if header is None:
            if self.folder.files():
                raise StoreError(f"{self.folder.name} holds other files than shards; name another output folder")
            write_header(self.folder, self.kind, self.settings)
        elif header["kind"] != self.kind:
            raise StoreError(f"{self.folder.name} holds a {header['kind']} store; name another output folder")
        else:
            check_settings(self.folder.name, header["settings"], self.settings)

    def name_of(self, task: Sequence[str] | Sequence[PairItem]) -> str:
        """The name of a task's shard."""
        return shard_name(self.kind, self.settings, [_text(item) for item in task])

    def find(self, task: Sequence[str] | Sequence[PairItem]) -> Manifest | None:
        """What the finished shard of a task holds."""
        name = self.name_of(task)
        if not (self.folder.has(f"{name}.json") and self.folder.has(f"{name}.h5")):
            return None
        return next((manifest for _, manifest in read_manifests(self.folder, [name])), None)

    def write(self, task: Sequence[str] | Sequence[PairItem], shard: Path, manifest: Manifest) -> None:
        """Put a task's shard among the others."""
        write_shard(self.folder, self.name_of(task), shard, manifest)


@dataclass(frozen=True)
class ShardedJob(Generic[Item]):
    """Work on items in tasks, each of which writes a shard."""

    writer: ShardWriter
    work: Work[Item, Manifest]
    items_a_task: int

    def run(
        self,
        items: Iterable[Item],
        num_items: int,
        cluster: ClusterOptions,
        progress: Progress | None,
        on_failure: Callable[[str], None],
    ) -> JobReport:
        """Do what is not done, and tell of all."""
        self.writer.begin()
        finished, known = set(finished_shards(self.writer.folder)), list[str]()
        failures: list[str] = []
        seen = num_done = num_without_mask = 0

        def failed(lines: Iterable[str]) -> None:
            for line in lines:
                failures.append(line)
                on_failure(line)

        def left() -> Iterator[Sequence[Item]]:
            nonlocal seen
            size = self.items_a_task if num_items > SMALL_JOB_TASKS * self.items_a_task else self.items_a_task // FINER
            for task in cut(items, max(size, 1)):
                name = self.writer.name_of(task)
                if name not in finished:
                    yield task
                    continue
                known.append(name)
                seen += len(task)

        for task, manifest in self._outcomes(left(), cluster):
            seen += len(task)
            if manifest is None:
                failed([f"{_text(task[0])} ended its worker each time, for want of memory perhaps; leave it out"])
            else:
                failed(manifest.failures)
                num_done += len(manifest.entries)
                num_without_mask += manifest.num_without_mask
            if progress:
                progress(seen, num_items)
        num_known = 0
        for _, manifest in read_manifests(self.writer.folder, known):
            failed(manifest.failures)
            num_known += len(manifest.entries)
            num_without_mask += manifest.num_without_mask
        return JobReport(num_done, num_known, tuple(failures), num_without_mask)

    def _outcomes(
        self, tasks: Iterator[Sequence[Item]], cluster: ClusterOptions
    ) -> Iterator[tuple[Sequence[Item], Manifest | None]]:
        first = next(tasks, None)
        if first is None:  # nothing that a cluster would be needed for
            return
        with connected(cluster) as ray:
            for done in run_tasks(ray, cluster, self.work, _after(first, tasks)):
                yield done.items, done.result


def cut(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Tasks of about ``size`` items and at most twice as many, in order, ending at items whose checksum says so."""
    task: list[Item] = []
    for item in items:
        task.append(item)
        if zlib.crc32(_text(item).encode(errors="surrogateescape")) % size == 0 or len(task) == 2 * size:
            yield task
            task = []
    if task:
        yield task


def _after(first: Sequence[Item], rest: Iterator[Sequence[Item]]) -> Iterator[Sequence[Item]]:
    yield first
    yield from rest


def _text(item: str | PairItem) -> str:
    return item if isinstance(item, str) else f"{item.name0}\t{item.name1}"
