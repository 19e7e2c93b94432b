"""What all benchmarks share: several methods given the same setting, timed, and left out where a package is missing."""

from __future__ import annotations

import functools
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.homography_scores import Matcher
from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.provenance import Provenance, cameras_fingerprint, data_fingerprint, gather_provenance
from posfeat.matching import MatchOptions, match
from posfeat.networks.extraction import ExtractionOptions
from posfeat.options import apply_overrides, options_from_mapping, options_to_mapping
from posfeat.types import MissingExtraError, OptionsError, View

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
ProgressFor = Callable[[str], AbstractContextManager[Progress | None]]


def without_progress(name: str) -> AbstractContextManager[Progress | None]:
    """Nobody is told."""
    return nullcontext()


@dataclass(frozen=True)
class RunOptions:
    """What a run is asked for."""

    methods: Sequence[str]
    max_keypoints: int
    cache: Path | None = None
    extraction: ExtractionOptions = field(default_factory=ExtractionOptions)
    matching: MatchOptions | None = field(default_factory=MatchOptions)  # None: each method's own
    device: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if len(set(self.methods)) < len(self.methods):
            raise OptionsError("a method stands twice after --methods; give each once")


@dataclass(frozen=True)
class Measured(Generic[Result]):
    """What one method gave, and how long extraction (where not cached), matching and scoring took."""

    method: str
    fingerprint: str
    seconds: float
    result: Result


def measure_methods(
    options: RunOptions,
    root: Path,
    measure: Callable[[FeatureSource, Progress | None], Result],
    progress_for: ProgressFor = without_progress,
) -> tuple[list[Measured[Result]], dict[str, str]]:
    """Measure one method after another; the second result says which were left out, and why."""
    setting = MethodSetting(root, options.max_keypoints, options.extraction, options.cache, options.device)
    measured: list[Measured[Result]] = []
    skipped: dict[str, str] = {}
    for name in options.methods:
        try:
            source = open_method(name, setting)
        except MissingExtraError as error:
            skipped[name] = str(error)
            continue
        start = time.perf_counter()
        with progress_for(source.name) as progress:
            result = measure(source, progress)
        measured.append(Measured(source.name, source.fingerprint, time.perf_counter() - start, result))
    return measured, skipped


def matcher_of(options: RunOptions, source: FeatureSource) -> Matcher:
    """How a method's features are matched in this run."""
    return functools.partial(match, options=options.matching or source.own_matching)


def provenance_of(
    options: RunOptions,
    root: Path,
    files: Iterable[Path],
    own: Mapping[str, Any] | None = None,
    views: Iterable[View] | None = None,
) -> Provenance:
    """Where the numbers of a run that begins now will come from; ``own`` are the benchmark's own options, ``views`` its truth."""
    extraction = options_to_mapping(options.extraction)
    del extraction["selection"]["max_keypoints"]  # the run's number holds for ours as for all methods
    plain = {
        "methods": list(options.methods),
        "max_keypoints": options.max_keypoints,
        "extraction": extraction,
        "matching": "each method's own" if options.matching is None else options_to_mapping(options.matching),
    }
    data = data_fingerprint(root, files)
    if views is not None:
        data = f"{data}, {cameras_fingerprint(views)}"
    command = shlex.join(["posfeat", *sys.argv[1:]])
    return gather_provenance(command, plain | dict(own or {}), data, options.seed)


def extraction_options(overrides: list[str]) -> ExtractionOptions:
    """Our extraction's options with ``key=value`` texts applied."""
    return options_from_mapping(ExtractionOptions, apply_overrides({}, overrides, _value))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
