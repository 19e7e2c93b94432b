"""Reconstructions of posed photos from folders to a report: several methods, the same pairs, the same mapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.pose_pairs import read_views
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.reconstruction import ReconstructionScore, reconstruct_scene
from posfeat.benchmarks.report import Section, Table, write_report
from posfeat.benchmarks.run import ProgressFor, RunOptions, measure_methods, provenance_of, without_progress
from posfeat.benchmarks.work_files import Progress
from posfeat.interop.colmap_mapping import MappingOptions
from posfeat.options import options_to_mapping
from posfeat.types import DataError, View

FEWEST_PHOTOS = 3
_PROTOCOL = (
    "All methods have the same pairs (all of a scene of up to 60 photos; else those that share points of the given model, or "
    "are near by the given poses), COLMAP's verification at 4 px, and the same mapper on one thread with one seed. The largest "
    "model counts. The error of a pair of photos is that of its relative pose in that model; AUC is over all pairs of a scene, "
    "those of photos that were not placed having an infinite error. Centres are compared after a similarity alignment, in "
    "percent of the largest distance between two cameras."
)
_HEADER = (
    "method", "scene", "registered", "points", "track length", "points a photo", "reprojection [px]", "AUC@5", "AUC@10", "AUC@20",
    "centre [%]", "rotation [deg]", "verified pairs", "seconds", "",
)  # fmt: skip


@dataclass(frozen=True)
class ReconstructionResult:
    """One method's reconstructions."""

    method: str
    fingerprint: str
    seconds: float
    scenes: list[ReconstructionScore]


@dataclass(frozen=True)
class ReconstructionResults:
    """All methods' reconstructions, those that could not run and why, and where it all came from."""

    provenance: Provenance
    methods: list[ReconstructionResult]
    skipped: dict[str, str]


def run_reconstructions(
    root: Path,
    options: RunOptions,
    output: Path,
    mapping: MappingOptions,
    known_cameras: bool = False,
    only: Sequence[str] = (),
    progress_for: ProgressFor = without_progress,
) -> ReconstructionResults:
    """Reconstruct every scene (or those named) with every method; the report and all that was made go to ``output``."""
    scenes = _scenes(root, only)
    photos = [view for scene in scenes for view in scene]
    own = {"known_cameras": known_cameras, "mapping": options_to_mapping(mapping)}
    provenance = provenance_of(options, root, {view.image_path for view in photos}, own, photos)

    def measure(source: FeatureSource, progress: Progress | None) -> list[ReconstructionScore]:
        matching = options.matching or source.own_matching
        work = output / "work"
        return [reconstruct_scene(scene, source, matching, work, mapping, known_cameras, progress) for scene in scenes]

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = [ReconstructionResult(one.method, one.fingerprint, one.seconds, one.result) for one in measured]
    results = ReconstructionResults(provenance, methods, skipped)
    cameras = "Intrinsics are given and fixed." if known_cameras else "Intrinsics are not given."
    left_out = " ".join(f"Left out: {name}, as {why}." for name, why in skipped.items())
    table = Table(_HEADER, *_rows(results))
    section = Section("Reconstructions", f"{_PROTOCOL} {cameras} {left_out}".strip(), [table])
    write_report(output, f"Reconstructions of {len(scenes)} scenes", results, provenance, [section])
    return results


def _scenes(root: Path, only: Sequence[str]) -> list[list[View]]:
    """The posed photos of each scene below a folder."""
    views = sorted(read_views(root), key=lambda view: view.scene)
    scenes = {name: list(group) for name, group in groupby(views, key=lambda view: view.scene)}
    for name in only:
        if name not in scenes:
            raise DataError(f"{root} has no scene {name}; it has {', '.join(scenes)}")
    chosen = [scenes[name] for name in (only or scenes)]
    for scene in chosen:
        if len(scene) < FEWEST_PHOTOS:
            raise DataError(
                f"scene {scene[0].scene} of {root} has {len(scene)} posed photos; {FEWEST_PHOTOS} are needed"
            )
    return chosen


def _rows(results: ReconstructionResults) -> tuple[list[list[str]], list[int]]:
    """Scene by scene, the methods below one another; and where a line is drawn."""
    rows: list[list[str]] = []
    rules: list[int] = []
    for number, first in enumerate(results.methods[0].scenes if results.methods else []):
        rules.append(len(rows))
        for result in results.methods:
            score = result.scenes[number]
            rows.append(
                [
                    result.method,
                    first.scene,
                    f"{score.registered} of {score.photos}",
                    f"{score.points}",
                    f"{score.track_length:.2f}",
                    f"{score.observations_per_photo:.0f}",
                    f"{score.reprojection_error_px:.2f}",
                    *(f"{auc:.3f}" for auc in score.auc),
                    f"{score.centre_error_percent:.3f}",
                    f"{score.rotation_error_deg:.3f}",
                    f"{score.verified_pairs} of {score.pairs}",
                    f"{score.seconds:.0f}",
                    score.failure,
                ]
            )
    return rows, rules
