"""The benchmark on homography sequences from a folder to a report: what the command line and a script call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.homography_scores import (
    Matcher,
    PairScore,
    judge_matches,
    score_sequences,
    summarise,
)
from posfeat.benchmarks.hpatches import HomographySequence, read_sequences
from posfeat.benchmarks.hpatches_report import Example, HomographyResults, MethodResult, write_homography_report
from posfeat.benchmarks.robust_estimation import estimate_homography, has_poselib
from posfeat.benchmarks.run import (
    Progress,
    ProgressFor,
    RunOptions,
    matcher_of,
    measure_methods,
    provenance_of,
    without_progress,
)

EXAMPLE_TARGET = 2  # image 4 of 6: neither the easiest pair nor the hardest


@dataclass(frozen=True)
class _Measured:
    pairs: list[PairScore]
    examples: list[Example]


def run_hpatches(
    root: Path, options: RunOptions, output: Path, progress_for: ProgressFor = without_progress
) -> HomographyResults:
    """Score all methods on the sequences under ``root`` and write the report to ``output``."""
    sequences = read_sequences(root)
    results, examples = score_methods(root, sequences, options, progress_for)
    write_homography_report(output, results, sequences, examples)
    return results


def score_methods(
    root: Path,
    sequences: Sequence[HomographySequence],
    options: RunOptions,
    progress_for: ProgressFor = without_progress,
) -> tuple[HomographyResults, list[Example]]:
    """The numbers of all methods, and an example of each kind of change for each of them."""
    files = (file for sequence in sequences for file in (*sequence.images, *sequence.homography_files))
    provenance = provenance_of(options, root, files)
    estimate = estimate_homography if has_poselib() else None

    def measure(source: FeatureSource, progress: Progress | None) -> _Measured:
        matcher = matcher_of(options, source)
        pairs = score_sequences(sequences, source.features_of, matcher, estimate, progress)
        return _Measured(pairs, list(_examples(sequences, source, matcher)))

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = [
        MethodResult(one.method, one.fingerprint, one.seconds, summarise(one.result.pairs), one.result.pairs)
        for one in measured
    ]
    examples = [example for one in measured for example in one.result.examples]
    return HomographyResults(provenance, methods, skipped), examples


def _examples(sequences: Sequence[HomographySequence], source: FeatureSource, matcher: Matcher) -> Iterator[Example]:
    """One pair of the first sequence of each kind of change."""
    firsts = {sequence.change: sequence for sequence in reversed(sequences)}
    for _, sequence in sorted(firsts.items()):
        target = min(EXAMPLE_TARGET, len(sequence.targets) - 1)
        features0, features1 = source.features_of(sequence.reference), source.features_of(sequence.targets[target])
        true = torch.from_numpy(sequence.homographies[target])
        yield Example(source.name, sequence, target, judge_matches(features0, features1, matcher, true))
