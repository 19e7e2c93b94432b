"""The features that a benchmark will ask for, made by workers of a Ray cluster.

Benchmarks keep features in a folder, named by the image's bytes and the method's exact code and weights. Workers fill that
folder, which all machines must see; the benchmark itself runs as always and finds everything there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posfeat.benchmarks.feature_sources import CachedMethod
from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.run import ProgressFor, RunOptions, without_progress
from posfeat.scale.cluster import ClusterOptions, connected, run_tasks
from posfeat.scale.sharded_job import cut
from posfeat.types import MissingExtraError, OptionsError, PosfeatError

IMAGES_A_TASK = 8


@dataclass(frozen=True)
class FeatureExport:
    """A method's features of images, kept in the folder of the setting."""

    method: str
    setting: MethodSetting

    def begin(self) -> Callable[[Sequence[str]], str]:
        """With the method's networks loaded."""
        source = open_method(self.method, self.setting)

        def export(images: Sequence[str]) -> str:
            for image in images:
                try:
                    source.features_of(Path(image))
                except PosfeatError:
                    continue  # the benchmark meets it again and says what it means there
            return source.fingerprint

        return export


def export_features(
    options: RunOptions,
    root: Path,
    images: Iterable[Path],
    cluster: ClusterOptions,
    progress_for: ProgressFor = without_progress,
) -> None:
    """Have the features of all methods of a run in its cache."""
    if options.cache is None:
        raise OptionsError(
            "evaluation with --ray needs a folder for features that all machines see; name it with --cache"
        )
    paths = sorted({str(image.absolute()) for image in images})
    cache, root = options.cache.absolute(), root.absolute()
    setting = MethodSetting(root, options.max_keypoints, options.extraction, cache, options.device)
    for_workers = replace(setting, device=options.device or cluster.default_device)
    for method in options.methods:
        try:
            source = open_method(method, setting)
        except MissingExtraError:
            continue  # the report names it
        if not isinstance(source, CachedMethod):
            continue  # features that somebody exported are there already
        with connected(cluster) as ray, progress_for(f"{source.name} on Ray") as progress:
            done = 0
            for outcome in run_tasks(ray, cluster, FeatureExport(method, for_workers), cut(paths, IMAGES_A_TASK)):
                done += len(outcome.items)
                _require_same(outcome.result, source)
                if progress is not None:
                    progress(done, len(paths))


def _require_same(fingerprint: str | None, source: CachedMethod) -> None:
    """Workers that extract otherwise than this machine would fill the cache with what nobody asks for."""
    if fingerprint is not None and fingerprint != source.fingerprint:
        raise OptionsError(
            f"workers extract otherwise ({fingerprint}) than this machine does ({source.fingerprint}); "
            "give --device cpu, or run on a machine like theirs"
        )
