"""A folder of shards -> one file in hloc's layout. Goes on where it stopped; memory is a shard's index and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.shards import (
    ShardedFile,
    ShardFolder,
    Shards,
    finished_shards,
    read_header,
    read_manifests,
)
from posfeat.types import StoreError

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MergeReport:
    """What was copied."""

    num_shards: int
    num_copied: int
    num_known: int  # in the file already


def merge_shards(folder: ShardFolder, output: Path, progress: Progress | None = None) -> MergeReport:
    """Copy all entries of all shards into one file, leaving out those that it has."""
    header = read_header(folder)
    if header is None:
        raise StoreError(f"there is no store of shards in {folder.name}; check the name")
    shards = finished_shards(folder)
    num_copied = num_known = 0
    with (FeatureStore if header["kind"] == "feature" else MatchStore)(output, "a", header["settings"]) as store:
        for done, (name, manifest) in enumerate(read_manifests(folder, shards), start=1):
            shard = ShardedFile(
                Shards(folder, header["kind"], header["settings"], dict.fromkeys(manifest.entries, name))
            )
            try:
                copied = store.add_from(shard, manifest.entries)
            finally:
                shard.close()
            num_copied, num_known = num_copied + copied, num_known + len(manifest.entries) - copied
            if progress:
                progress(done, len(shards))
    return MergeReport(len(shards), num_copied, num_known)
