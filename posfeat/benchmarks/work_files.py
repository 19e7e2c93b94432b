"""A method's features and matches of a data set in files, so that mapping can be interrupted, repeated and looked into.

The folder's name is a digest of the images, the pairs, the known cameras, the method's exact code and weights, and how it is
matched: with any change another folder is used, so that an old result can never be read in place of a new one.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.baselines import digest_of_code
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.provenance import data_fingerprint, describe_camera
from posfeat.benchmarks.report import write_text
from posfeat.matching import MatchOptions
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import match_pairs
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import Camera, DataError, Features

_CODE_THAT_MATCHES = ("matching.py", "pipeline/match.py")
Pairs = Sequence[tuple[str, str]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class WorkFiles:
    """Where the files of one method and data set lie."""

    folder: Path

    @property
    def features(self) -> Path:
        """Features in hloc's layout."""
        return self.folder / "features.h5"

    @property
    def matches(self) -> Path:
        """Matches in hloc's layout."""
        return self.folder / "matches.h5"

    @property
    def database(self) -> Path:
        """COLMAP's database."""
        return self.folder / "database.db"

    @property
    def models(self) -> Path:
        """The folder of models."""
        return self.folder / "models"

    def add_seconds(self, seconds: float) -> float:
        """The time that all runs on these files took together, this one included."""
        path = self.folder / "seconds.json"
        before = float(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else 0.0
        write_text(path, json.dumps(before + seconds))
        return before + seconds


def extract_and_match(
    source: FeatureSource,
    images: Path,
    names: Sequence[str],
    pairs: Pairs,
    matching: MatchOptions,
    work: Path,
    cameras: Mapping[str, Camera],
    progress: Progress | None = None,
) -> WorkFiles:
    """Features of all images and matches of all pairs, from where an earlier run left off."""
    content = [
        source.fingerprint,
        images_fingerprint(str(images), tuple(names)),
        json.dumps(options_to_mapping(matching)),
        digest_of_code(_CODE_THAT_MATCHES),
    ]
    content += [f"{name}\t{describe_camera(camera)}" for name, camera in sorted(cameras.items())]
    content += [f"{name0}\t{name1}" for name0, name1 in pairs]
    files = WorkFiles(work / hashlib.sha256("\n".join(content).encode()).hexdigest()[:16])
    with FeatureStore(files.features, "a") as store:
        missing = [name for name in names if name not in store]
        with WriteBatch[tuple[str, Features]](lambda items: store.write_all(items, "float16")) as batch:
            for done, name in enumerate(missing, start=1):
                batch.add((name, source.features_of(images / name)))
                batch.write_if_due()
                if progress is not None:
                    progress(len(names) - len(missing) + done, len(names))
    report = match_pairs(files.features, list(pairs), files.matches, matching, progress=progress)
    if report.failures:
        raise DataError(f"{len(report.failures)} of {len(pairs)} pairs could not be matched: {report.failures[0]}")
    return files


@functools.lru_cache(maxsize=64)
def images_fingerprint(folder: str, names: tuple[str, ...]) -> str:
    """A digest of the images' names and contents, worked out once for all methods."""
    return data_fingerprint(Path(folder), [Path(folder) / name for name in names])
