"""The rotation benchmark from a folder of photos to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.homography_scores import Matcher, PairScore, judge_matches, score_sequences
from posfeat.benchmarks.hpatches import HomographySequence
from posfeat.benchmarks.pictures import matches_by_error
from posfeat.benchmarks.plain_photos import seconds_for_image, some_photos
from posfeat.benchmarks.plots import accuracy_over_angle
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.report import Picture, Section, Table, write_report
from posfeat.benchmarks.rotation import AngleScore, TurnOptions, scores_by_angle, write_turned
from posfeat.benchmarks.run import (
    Progress,
    ProgressFor,
    RunOptions,
    matcher_of,
    measure_methods,
    provenance_of,
    without_progress,
)
from posfeat.data.images import read_image
from posfeat.options import options_to_mapping

_PROTOCOL = (
    "Each photo is matched with copies of itself, shrunk to {scale:g} of its size and turned by 0 to {last} degrees in steps of "
    "{step} on a canvas that holds all of it: mutual nearest neighbours, MMAscore of equation 12 by the true positions. "
    "Worst is the lowest mean over photos at any angle, and worst / upright what turning leaves of the accuracy. Time is that of "
    "finding the features of one photo, the best of three, methods by turns."
)
_EXAMPLE_DEG = 120


@dataclass(frozen=True)
class RotationResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float
    seconds_an_image: float
    angles: list[AngleScore]
    pairs: list[PairScore]

    @property
    def upright(self) -> AngleScore:
        """What the copies that were not turned score."""
        return self.angles[0]

    @property
    def worst(self) -> AngleScore:
        """The angle with the lowest MMAscore."""
        return min(self.angles, key=lambda score: score.mma_score)

    @property
    def left(self) -> float:
        """The worst angle's MMAscore over that of upright copies; 0 where these match nothing either."""
        return self.worst.mma_score / self.upright.mma_score if self.upright.mma_score else 0.0


@dataclass(frozen=True)
class RotationResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    turns: TurnOptions
    methods: list[RotationResult]
    skipped: dict[str, str]


@dataclass(frozen=True)
class _Measured:
    pairs: list[PairScore]
    example: Picture


def run_rotation(
    root: Path,
    options: RunOptions,
    turns: TurnOptions,
    most: int,
    output: Path,
    progress_for: ProgressFor = without_progress,
) -> RotationResults:
    """Score all methods on turned copies of at most so many photos, which lie in ``output``/turned, and write the report."""
    photos = some_photos(root, most, output)
    provenance = provenance_of(options, root, photos, {"turns": options_to_mapping(turns)})
    turned = output / "turned"
    with progress_for("turning photos") as progress:
        sequences = _write_all(photos, root, turned, turns, progress)

    def measure(source: FeatureSource, progress: Progress | None) -> _Measured:
        matcher = matcher_of(options, source)
        pairs = score_sequences(sequences, source.features_of, matcher, None, progress)
        return _Measured(pairs, _example(sequences[0], source, matcher, turns))

    measured, skipped = measure_methods(options, turned, measure, progress_for)
    opened = [name for name in options.methods if name not in skipped]
    costs = seconds_for_image(options, turned, opened, sequences[0].reference)
    methods = [
        RotationResult(
            one.method,
            one.fingerprint,
            one.seconds,
            costs[one.method],
            scores_by_angle(one.result.pairs),
            one.result.pairs,
        )
        for one in measured
    ]
    results = RotationResults(provenance, turns, methods, skipped)
    sections = [_summary(results), _curves(methods), _angles(methods)]
    sections.append(
        Section(f"Matches at {_angle_of_example(turns)}°", "", (), [one.result.example for one in measured])
    )
    write_report(output, f"Matching accuracy on {len(photos)} turned photos", results, provenance, sections)
    return results


def _write_all(
    photos: Sequence[Path], root: Path, turned: Path, turns: TurnOptions, progress: Progress | None
) -> list[HomographySequence]:
    sequences = []
    for index, photo in enumerate(photos):
        name = photo.relative_to(root).as_posix()
        sequences.append(write_turned(photo, name, turned / f"{index:04d}", turns))
        if progress is not None:
            progress(index + 1, len(photos))
    return sequences


def _angle_of_example(turns: TurnOptions) -> int:
    return min(turns.angles_deg, key=lambda angle: abs(angle - _EXAMPLE_DEG))


def _example(sequence: HomographySequence, source: FeatureSource, matcher: Matcher, turns: TurnOptions) -> Picture:
    target = turns.angles_deg.index(_angle_of_example(turns))
    copy, true = sequence.targets[target], torch.from_numpy(sequence.homographies[target])
    judged = judge_matches(source.features_of(sequence.reference), source.features_of(copy), matcher, true)
    photos = (read_image(sequence.reference), read_image(copy))
    right = int((judged.errors_px <= 3).sum())
    caption = f"{source.name}, {sequence.name}: {right} of {len(judged.xy0)} matches within 3 px"
    return Picture("jpg", matches_by_error(*photos, judged.xy0, judged.xy1, judged.errors_px), caption)


def _summary(results: RotationResults) -> Section:
    header = [
        "method",
        "upright",
        "mean",
        "worst",
        "at",
        "worst / upright",
        "MMA@1 upright",
        "MMA@1 worst",
        "time [ms]",
    ]
    rows = []
    for one in results.methods:
        mean = sum(score.mma_score for score in one.angles) / len(one.angles)
        finest = min(score.mma_1px for score in one.angles)
        shares = [f"{one.upright.mma_score:.3f}", f"{mean:.3f}", f"{one.worst.mma_score:.3f}"]
        row = [one.method, *shares, f"{one.worst.angle_deg}°", f"{one.left:.1%}", f"{one.upright.mma_1px:.3f}"]
        rows.append([*row, f"{finest:.3f}", f"{one.seconds_an_image * 1e3:.0f}"])
    turns = results.turns
    protocol = _PROTOCOL.format(scale=turns.copy_scale, last=turns.angles_deg[-1], step=turns.step_deg)
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    return Section("MMAscore of turned photos", f"{protocol} {skipped}".strip(), [Table(header, rows)])


def _curves(methods: Sequence[RotationResult]) -> Section:
    curves = {one.method: {score.angle_deg: score.mma_score for score in one.angles} for one in methods}
    return Section("Over the angle", "", (), [Picture("svg", accuracy_over_angle(curves))] if curves else ())


def _angles(methods: Sequence[RotationResult]) -> Section:
    header = ["angle", *(one.method for one in methods)]
    rows = [
        [f"{scores[0].angle_deg}°", *(f"{score.mma_score:.3f}" for score in scores)]
        for scores in zip(*(one.angles for one in methods), strict=True)
    ]
    return Section("MMAscore at each angle", "", [Table(header, rows)])
