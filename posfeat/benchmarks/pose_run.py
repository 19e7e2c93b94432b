"""The relative-pose benchmark from a folder of posed images to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.pose_pairs import read_pose_pairs
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.relative_pose import PoseScore, PoseSummary, score_pose_pairs, summarise_poses
from posfeat.benchmarks.report import Section, Table, write_report
from posfeat.benchmarks.robust_estimation import estimate_relative_pose
from posfeat.benchmarks.run import (
    Progress,
    ProgressFor,
    RunOptions,
    matcher_of,
    measure_methods,
    provenance_of,
    without_progress,
)
from posfeat.types import Pair

_PROTOCOL = (
    "Matches between images as they are; PoseLib's RANSAC at 1 px on points freed of lens distortion. A pair's error is "
    "the larger of the rotation's angle and the angle between the directions of translation, a direction and its "
    "opposite counting as one; AUC is the area under the curve of recall over error. Precision is the share of matches "
    "within so many pixels of the true epipolar lines in both images; a pair without matches has 0."
)


@dataclass(frozen=True)
class PoseResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float
    scenes: list[PoseSummary]
    pairs: list[PoseScore]


@dataclass(frozen=True)
class PoseResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    methods: list[PoseResult]
    skipped: dict[str, str]


def run_poses(
    root: Path,
    options: RunOptions,
    output: Path,
    pair_list: Path | None = None,
    neighbours: int | None = None,
    progress_for: ProgressFor = without_progress,
) -> PoseResults:
    """Score all methods on the pairs under ``root`` and write the report to ``output``."""
    pairs = read_pose_pairs(root, pair_list, neighbours)
    own = {"pairs": None if pair_list is None else pair_list.name, "neighbours": neighbours}
    views = [view for pair in pairs for view in (pair.view0, pair.view1)]
    provenance = provenance_of(options, root, images_of(pairs), own, views)

    def measure(source: FeatureSource, progress: Progress | None) -> list[PoseScore]:
        matcher = matcher_of(options, source)
        return score_pose_pairs(pairs, source.features_of, matcher, estimate_relative_pose, progress)

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = [
        PoseResult(one.method, one.fingerprint, one.seconds, summarise_poses(one.result), one.result)
        for one in measured
    ]
    results = PoseResults(provenance, methods, skipped)
    write_report(output, f"Relative poses of {len(pairs)} pairs", results, provenance, [_summary(results)])
    return results


def images_of(pairs: Sequence[Pair]) -> set[Path]:
    """The photos of pairs, each once."""
    return {view.image_path for pair in pairs for view in (pair.view0, pair.view1)}


def _summary(results: PoseResults) -> Section:
    header = ["method", "scene", "pairs", "AUC@5", "AUC@10", "AUC@20", "precision@1", "@1.5", "@3", "@5 px", "matches"]
    rows: list[list[str]] = []
    rules: list[int] = []
    for result in results.methods:
        rules.append(len(rows))
        for scene in result.scenes:
            shares = [f"{value:.3f}" for value in (*scene.auc, *scene.precision)]
            name = result.method if scene.scene == "all" else ""
            rows.append([name, scene.scene, str(scene.pairs), *shares, f"{scene.matches:.0f}"])
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    return Section("Poses", f"{_PROTOCOL} {skipped}".strip(), [Table(header, rows, rules)])
