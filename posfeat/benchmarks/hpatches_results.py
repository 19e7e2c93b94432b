"""Several methods on one set of homography sequences: one run, one result with its provenance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.homography_scores import (
    HomographyEstimator,
    JudgedMatches,
    Matcher,
    PairScore,
    Progress,
    SplitScore,
    judge_matches,
    score_sequences,
    summarise,
)
from posfeat.benchmarks.hpatches import HomographySequence
from posfeat.benchmarks.provenance import Provenance
from posfeat.types import MissingExtraError

EXAMPLE_TARGET = 2  # image 4 of 6: neither the easiest pair nor the hardest


@dataclass(frozen=True)
class MethodResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float  # extraction where it was not cached, matching and scoring
    splits: list[SplitScore]
    pairs: list[PairScore]

    def sequence_scores(self) -> list[tuple[str, str, float]]:
        """Name, change and MMAscore of each sequence."""
        by_sequence: dict[tuple[str, str], list[PairScore]] = {}
        for pair in self.pairs:
            by_sequence.setdefault((pair.sequence, pair.change), []).append(pair)
        return [(name, change, summarise(pairs)[0].mma_score) for (name, change), pairs in by_sequence.items()]


@dataclass(frozen=True)
class Example:
    """The matches of a method on one pair, to be looked at."""

    method: str
    sequence: HomographySequence
    target: int
    matches: JudgedMatches


@dataclass(frozen=True)
class HomographyResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    methods: list[MethodResult]
    skipped: dict[str, str]


def score_methods(
    sequences: Sequence[HomographySequence],
    openers: dict[str, Callable[[], FeatureSource]],
    matcher: Matcher,
    estimate: HomographyEstimator | None,
    progress: Callable[[str], AbstractContextManager[Progress | None]] = lambda name: nullcontext(),
) -> tuple[list[MethodResult], dict[str, str], list[Example]]:
    """Score each method on all sequences; one that lacks a package is left out, and the second result says why."""
    results: list[MethodResult] = []
    skipped: dict[str, str] = {}
    examples: list[Example] = []
    for name, open_source in openers.items():
        try:
            source = open_source()
        except MissingExtraError as error:
            skipped[name] = str(error)
            continue
        start = time.perf_counter()
        with progress(source.name) as report:
            pairs = score_sequences(sequences, source.features_of, matcher, estimate, report)
        seconds = time.perf_counter() - start
        results.append(MethodResult(source.name, source.fingerprint, seconds, summarise(pairs), pairs))
        examples.extend(_examples(sequences, source, matcher))
    return results, skipped, examples


def _examples(sequences: Sequence[HomographySequence], source: FeatureSource, matcher: Matcher) -> Iterator[Example]:
    """One pair of the first sequence of each kind of change."""
    firsts = {sequence.change: sequence for sequence in reversed(sequences)}
    for _, sequence in sorted(firsts.items()):
        target = min(EXAMPLE_TARGET, len(sequence.targets) - 1)
        features0, features1 = source.features_of(sequence.reference), source.features_of(sequence.targets[target])
        true = torch.from_numpy(sequence.homographies[target])
        yield Example(source.name, sequence, target, judge_matches(features0, features1, matcher, true))
