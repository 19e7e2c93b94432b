"""Aachen Day-Night from the given files to a file ready to upload, and a report: the paper's Table 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posfeat.benchmarks.aachen import (
    PAPER_THRESHOLDS,
    LocalizedQueries,
    Poses,
    QueryScore,
    Threshold,
    localize_queries,
    read_poses,
    recalls,
    result_lines,
    with_errors,
)
from posfeat.benchmarks.aachen_data import AachenData, Part, Version, read_aachen
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.model_pictures import landmarks_of_model, picture_of_model
from posfeat.benchmarks.provenance import Provenance, data_fingerprint
from posfeat.benchmarks.published import read_table
from posfeat.benchmarks.report import Picture, Section, Table, write_report, write_text
from posfeat.benchmarks.run import ProgressFor, RunOptions, measure_methods, provenance_of, without_progress
from posfeat.benchmarks.work_files import Progress

_PROTOCOL = (
    "The given pairs, mutual nearest neighbours, COLMAP's verification, points triangulated from the reference poses with fixed "
    "intrinsics, queries placed by RANSAC at 12 px. A query that is not placed counts as wrong. Rows marked (paper) are Table 2."
)


@dataclass(frozen=True)
class AachenResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float
    result_file: str
    points: int
    mean_track_length: float
    placed: int
    recalls: tuple[float, ...] | None  # at the thresholds, where the truth is known
    queries: list[QueryScore]


@dataclass(frozen=True)
class AachenResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    version: Version
    part: Part
    thresholds: tuple[Threshold, ...]
    methods: list[AachenResult]
    skipped: dict[str, str]


def run_aachen(
    root: Path,
    options: RunOptions,
    output: Path,
    version: Version | None = None,
    part: Part = "night",
    ground_truth: Path | None = None,
    thresholds: tuple[Threshold, ...] = PAPER_THRESHOLDS,
    progress_for: ProgressFor = without_progress,
) -> AachenResults:
    """Localize the queries with every method; ``output`` gets a file to upload for each, and the report."""
    data = read_aachen(root, version, part)
    true = None if ground_truth is None else read_poses(ground_truth)
    files = {*data.files, *(data.images / name for name in data.names)}
    own: dict[str, Any] = {"version": data.version, "part": part, "thresholds": thresholds}
    own |= {} if ground_truth is None else {"ground_truth": data_fingerprint(ground_truth.parent, [ground_truth])}
    provenance = provenance_of(options, root, files, own)

    def measure(source: FeatureSource, progress: Progress | None) -> LocalizedQueries:
        matching = options.matching or source.own_matching
        return localize_queries(data, source, matching, output / "work", progress)

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = []
    for one in measured:
        path = output / result_name(data.version, one.method)
        write_text(path, result_lines(one.result.poses))
        methods.append(_result(one.method, one.fingerprint, one.result, path, true, thresholds))
    results = AachenResults(provenance, data.version, part, thresholds, methods, skipped)
    pictures = [picture for one in measured for picture in _pictures(data, one.method, one.result)]
    title = f"Aachen Day-Night {data.version}: {len(data.queries)} queries ({part})"
    sections = [_summary(results, len(data.queries)), Section("Models", "", pictures=pictures)]
    write_report(output, title, results, provenance, sections)
    return results


def result_name(version: Version, method: str) -> str:
    """The file's name as the challenge's own scripts make it."""
    plain = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in method)
    return f"Aachen{'_v1_1' if version == 'v1.1' else ''}_eval_[{plain}].txt"


def _result(
    method: str,
    fingerprint: str,
    localized: LocalizedQueries,
    path: Path,
    true: Poses | None,
    thresholds: Sequence[Threshold],
) -> AachenResult:
    queries = localized.queries if true is None else with_errors(localized.queries, localized.poses, true)
    return AachenResult(
        method=method,
        fingerprint=fingerprint,
        seconds=localized.seconds,
        result_file=path.name,
        points=localized.points,
        mean_track_length=localized.mean_track_length,
        placed=len(localized.poses),
        recalls=None if true is None else recalls(queries, thresholds),
        queries=queries,
    )


def _summary(results: AachenResults, num_queries: int) -> Section:
    names = [f"{metres:g} m, {degrees:g}°" for metres, degrees in results.thresholds]
    header = ["method", *names, "placed", "median inliers", "points", "track length", "minutes", "to upload"]
    rows = _published_rows(results, len(header))
    first = len(rows)
    for result in results.methods:
        shares = ["" for _ in names] if result.recalls is None else [f"{100 * share:.1f}" for share in result.recalls]
        inliers = sorted(query.inliers for query in result.queries)[len(result.queries) // 2]
        counts = [
            f"{result.placed} of {num_queries}",
            str(inliers),
            str(result.points),
            f"{result.mean_track_length:.2f}",
        ]
        rows.append([result.method, *shares, *counts, f"{result.seconds / 60:.1f}", result.result_file])
    known = any(result.recalls is not None for result in results.methods)
    text = _PROTOCOL if known else f"{_PROTOCOL} Recalls come from the benchmark's server: upload the files."
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    return Section("Recall [%]", f"{text} {skipped}".strip(), [Table(header, rows, [first])])


def _published_rows(results: AachenResults, width: int) -> list[list[str]]:
    """Table 2's rows of the version, where the thresholds are the paper's and the queries those of the night."""
    if results.thresholds != PAPER_THRESHOLDS or results.part != "night":
        return []
    prefix = "v1" if results.version == "v1" else "v11"
    keys = [f"{prefix}_{metres:g}m_{degrees:g}deg" for metres, degrees in PAPER_THRESHOLDS]
    rows = [
        [f"{row['method']} (paper)", *(row[key] for key in keys)] for row in read_table("table2_aachen") if row[keys[0]]
    ]
    return [row + [""] * (width - len(row)) for row in rows]


def _pictures(data: AachenData, method: str, localized: LocalizedQueries) -> list[Picture]:
    if localized.points == 0:
        return []
    model = Picture("png", picture_of_model(localized.model), f"{method}: points and database cameras")
    shown, name, succeeded, total = landmarks_of_model(localized.model, localized.files.features, data.images)
    caption = f"{method}: {succeeded} of {total} keypoints of {name} became landmarks (blue)"
    return [model, Picture("jpg", shown, caption)]
