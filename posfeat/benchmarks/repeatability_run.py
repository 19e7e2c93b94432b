"""The benchmark of detectors from a folder of photos to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.pictures import panels, with_keypoints
from posfeat.benchmarks.plain_photos import some_photos
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.repeatability import (
    CELL_PX,
    PairRepeatability,
    RenderedPair,
    RenderingOptions,
    RepeatabilitySummary,
    render_pairs,
    score_pairs,
    summarise_repeatability,
)
from posfeat.benchmarks.report import Picture, Section, Table, write_report
from posfeat.benchmarks.run import (
    Progress,
    ProgressFor,
    RunOptions,
    matcher_of,
    measure_methods,
    provenance_of,
    without_progress,
)
from posfeat.data.images import RGB, read_image
from posfeat.options import options_to_mapping

_PROTOCOL = (
    "Two views of a photo are rendered with known cameras and their look is changed (light, colour, blur, noise, pieces of "
    "another photo before them). Repeatability is the share of view 0's keypoints, of those that view 1 shows as well, that have "
    "a keypoint of view 1 within 1 or 3 px of their true position; the standard error of the mean over pairs stands behind. Spread is the "
    "share of cells of {cell} px that hold a keypoint. MMAscore and MMA@1 are those of mutual nearest neighbours; a match whose "
    "point view 1 does not show is wrong."
)
_PICTURED = 4


@dataclass(frozen=True)
class RepeatabilityResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float
    summary: RepeatabilitySummary
    pairs: list[PairRepeatability]


@dataclass(frozen=True)
class RepeatabilityResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    rendering: RenderingOptions
    methods: list[RepeatabilityResult]
    skipped: dict[str, str]


@dataclass(frozen=True)
class _Measured:
    pairs: list[PairRepeatability]
    pictures: list[RGB]


def run_repeatability(
    root: Path,
    options: RunOptions,
    rendering: RenderingOptions,
    most: int,
    output: Path,
    progress_for: ProgressFor = without_progress,
) -> RepeatabilityResults:
    """Score all methods on views of at most so many photos, which lie in ``output``/views, and write the report."""
    photos = some_photos(root, most, output)
    provenance = provenance_of(options, root, photos, {"rendering": options_to_mapping(rendering)})
    views = output / "views"
    with progress_for("rendering") as progress:
        pairs = render_pairs(photos, views, rendering, options.seed, progress)

    def measure(source: FeatureSource, progress: Progress | None) -> _Measured:
        scores = score_pairs(pairs, source.features_of, matcher_of(options, source), progress)
        return _Measured(scores, [_dotted(pair, source) for pair in pairs[:_PICTURED]])

    measured, skipped = measure_methods(options, views, measure, progress_for)
    methods = [
        RepeatabilityResult(
            one.method, one.fingerprint, one.seconds, summarise_repeatability(one.result.pairs), one.result.pairs
        )
        for one in measured
    ]
    results = RepeatabilityResults(provenance, rendering, methods, skipped)
    pictures = {one.method: one.result.pictures for one in measured}
    title = f"Repeatability on {len(pairs)} rendered pairs"
    write_report(output, title, results, provenance, [_summary(results), _keypoints(pairs, pictures)])
    return results


def _dotted(pair: RenderedPair, source: FeatureSource) -> RGB:
    return with_keypoints(read_image(pair.image0), source.features_of(pair.image0).keypoints.numpy())


def _summary(results: RepeatabilityResults) -> Section:
    header = ["method", "keypoints", "within 3 px", "±", "within 1 px", "±", "spread", "matches", "MMAscore", "MMA@1"]
    rows = []
    for one in results.methods:
        (within_1, within_3), (error_1, error_3) = one.summary.repeatability, one.summary.standard_error
        shares = [within_3, error_3, within_1, error_1, one.summary.spread]
        row = [one.method, f"{one.summary.keypoints:.0f}", *(f"{share:.3f}" for share in shares)]
        rows.append([*row, f"{one.summary.matches:.0f}", f"{one.summary.mma_score:.3f}", f"{one.summary.mma_1px:.3f}"])
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    text = f"{_PROTOCOL.format(cell=CELL_PX)} {skipped}".strip()
    return Section("Repeatability", text, [Table(header, rows)])


def _keypoints(pairs: Sequence[RenderedPair], pictures: dict[str, list[RGB]]) -> Section:
    """One row for each of the first pairs, a column for each method."""
    if not pictures:
        return Section("Keypoints")
    rows = [list(row) for row in zip(*pictures.values(), strict=True)]
    names = ", ".join(pair.photo for pair in pairs[:_PICTURED])
    return Section("Keypoints", "", (), [Picture("jpg", panels(rows, list(pictures)), f"View 0 of {names}")])
