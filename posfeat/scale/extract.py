"""Photos on any storage -> a store in shards, by workers of a Ray cluster. Goes on where it stopped.

A task is a few dozen photos, a worker's part of it is pipeline.extract, from a folder to a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posfeat.data.images import shown
from posfeat.networks.checkpoint import default_device
from posfeat.networks.posfeat import build_model
from posfeat.pipeline.extract import ExtractionReport, Extractor, NetworkExtractor, extract_folder, require_masks
from posfeat.pipeline.feature_store import DescriptorFormat, FeatureStore
from posfeat.pipeline.shards import Manifest
from posfeat.scale.cluster import ClusterOptions
from posfeat.scale.sharded_job import Progress, ShardedJob, ShardWriter
from posfeat.scale.storage import PhotoFolder, open_photos, open_shard_folder
from posfeat.types import DataError

PHOTOS_A_TASK = 32


@dataclass(frozen=True)
class ExtractionWork:
    """What a worker does with the photos of a task."""

    extractor: Extractor
    photos: PhotoFolder
    writer: ShardWriter
    mask_folder: Path | None = None
    descriptor_format: DescriptorFormat = "float16"
    device: str | None = None  # None: the fastest that a worker has

    def begin(self) -> Callable[[Sequence[str]], Manifest]:
        """With the networks on the worker's device."""
        if not isinstance(self.extractor, NetworkExtractor):
            return self.extract
        model = self.extractor.model.to(self.device or default_device())
        return replace(self, extractor=replace(self.extractor, model=model)).extract

    def extract(self, names: Sequence[str]) -> Manifest:
        """Write the shard of these photos, unless it is there."""
        known = self.writer.find(names)
        if known is not None:
            return known
        with tempfile.TemporaryDirectory(prefix="posfeat-") as folder:
            photos, shard = self.photos.fetch(names, Path(folder) / "photos"), Path(folder) / "shard.h5"
            report = extract_folder(
                self.extractor,
                photos.folder,
                shard,
                names=photos.names,
                mask_folder=self.mask_folder,
                descriptor_format=self.descriptor_format,
            )
            with FeatureStore(shard) as store:
                entries = tuple(store.names())
            lines = [line.replace(shown(photos.folder), photos.address) for line in report.failures]
            manifest = Manifest(entries, tuple(lines), report.num_without_mask)
            if photos.names:  # the shard is of the photos that could be fetched; the others are tried again later
                self.writer.write(photos.names, shard, manifest)
        return replace(manifest, failures=(*manifest.failures, *photos.failures))


def extract_on_ray(
    extractor: Extractor,
    photos: str,
    output: str,
    cluster: ClusterOptions,
    *,
    mask_folder: Path | None = None,
    descriptor_format: DescriptorFormat = "float16",
    device: str | None = None,
    photos_a_task: int = PHOTOS_A_TASK,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> ExtractionReport:
    """Extract every photo below a path or an address into shards in another, leaving out those that are there."""
    source, unlisted = open_photos(photos), list[str]()
    mask_folder = mask_folder and mask_folder.absolute()
    names = source.list(mask_folder, unlisted.append)
    if not names:
        raise DataError(f"there are no photos in {photos}; check the name")
    if mask_folder is not None:
        require_masks(mask_folder, names)
    tell = on_failure or (lambda line: None)
    for line in unlisted:
        tell(line)
    writer = ShardWriter(open_shard_folder(output), "feature", extractor.settings)
    work = ExtractionWork(
        _to_send(extractor), source, writer, mask_folder, descriptor_format, device or cluster.default_device
    )
    report = ShardedJob(writer, work, photos_a_task).run(names, len(names), cluster, progress, tell)
    return ExtractionReport(report.num_done, report.num_known, (*unlisted, *report.failures), report.num_without_mask)


def _to_send(extractor: Extractor) -> Extractor:
    """Without what a model that was used here has made of its networks for this machine."""
    if not isinstance(extractor, NetworkExtractor):
        return extractor
    model = build_model(extractor.model.options)
    model.load_state_dict(extractor.model.state_dict())
    return replace(extractor, model=model.eval())
