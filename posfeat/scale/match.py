"""Features and pairs -> a store of matches in shards, by workers of a Ray cluster. Goes on where it stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posfeat.matching import MatchOptions
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import MatchingReport, match_pairs
from posfeat.pipeline.shards import Manifest, Shards, open_shards
from posfeat.scale.cluster import ClusterOptions
from posfeat.scale.sharded_job import PairItem, Progress, ShardedJob, ShardWriter
from posfeat.scale.storage import is_remote, open_shard_folder

PAIRS_A_TASK = 256


@dataclass(frozen=True)
class MatchingWork:
    """What a worker does with the pairs of a task."""

    features: Path | Shards  # shards without their index: each pair names its own
    writer: ShardWriter
    options: MatchOptions = field(default_factory=MatchOptions)

    def begin(self) -> Callable[[Sequence[PairItem]], Manifest]:
        """There is nothing to load."""
        return self.match

    def match(self, pairs: Sequence[PairItem]) -> Manifest:
        """Write the shard of these pairs, unless it is there."""
        known = self.writer.find(pairs)
        if known is not None:
            return known
        with tempfile.TemporaryDirectory(prefix="posfeat-") as folder:
            shard = Path(folder) / "shard.h5"
            names = [(pair.name0, pair.name1) for pair in pairs]
            report = match_pairs(self._features_of(pairs), names, shard, self.options)
            with MatchStore(shard) as store:
                manifest = Manifest(tuple(store.entries()), report.failures)
            self.writer.write(pairs, shard, manifest)
        return manifest

    def _features_of(self, pairs: Sequence[PairItem]) -> Path | Shards:
        if isinstance(self.features, Path):
            return self.features
        index = {pair.name0: pair.shard0 for pair in pairs} | {pair.name1: pair.shard1 for pair in pairs}
        known = {name: shard for name, shard in index.items() if shard}
        return Shards(self.features.folder, self.features.kind, self.features.settings, known)


def match_on_ray(
    features: Path | Shards,
    pairs: Iterable[tuple[str, str]],
    num_pairs: int,
    output: str,
    cluster: ClusterOptions,
    options: MatchOptions | None = None,
    *,
    pairs_a_task: int = PAIRS_A_TASK,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> MatchingReport:
    """Match pairs of images into shards in a path or an address, leaving out those that are there."""
    options = options or MatchOptions()
    index = features.shard_of if isinstance(features, Shards) else {}
    writer = ShardWriter(open_shard_folder(output), "match", {"matching": options_to_mapping(options)})
    work = MatchingWork(features.only([]) if isinstance(features, Shards) else features.absolute(), writer, options)
    job = ShardedJob(writer, work, pairs_a_task)
    report = job.run(_items(pairs, index), num_pairs, cluster, progress, on_failure or (lambda line: None))
    return MatchingReport(report.num_done, report.num_known, report.failures)


def open_features(place: str) -> Path | Shards:
    """A feature file, or shards on a path or an address."""
    if not is_remote(place) and not Path(place).is_dir():
        return Path(place)
    return open_shards(open_shard_folder(place))


def names_in(features: Path | Shards) -> list[str]:
    """All images."""
    with FeatureStore(features) as store:
        return store.names()


def _items(pairs: Iterable[tuple[str, str]], index: Mapping[str, str]) -> Iterator[PairItem]:
    for name0, name1 in pairs:
        yield PairItem(name0, name1, index.get(name0, ""), index.get(name1, ""))
