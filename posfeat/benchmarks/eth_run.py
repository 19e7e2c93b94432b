"""ETH's benchmark from a folder of scenes to a report: the paper's Table 3 with its printed rows beside those of this run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.eth import EthScene, MappedScene, SceneScore, map_eth_scene, read_scenes
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.model_pictures import landmarks_of_model, picture_of_model
from posfeat.benchmarks.plots import track_lengths
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.published import read_table
from posfeat.benchmarks.report import Picture, Section, Table, write_report
from posfeat.benchmarks.run import ProgressFor, RunOptions, measure_methods, provenance_of, without_progress
from posfeat.benchmarks.work_files import Progress
from posfeat.interop.colmap_mapping import MappingOptions
from posfeat.options import options_to_mapping

_PROTOCOL = (
    "Features of all images, matched by mutual nearest neighbours with a ratio test, verified and mapped by COLMAP from the "
    "benchmark's cameras. The largest model counts. Rows marked (paper) are Table 3 as printed."
)


@dataclass(frozen=True)
class EthResult:
    """One method's models."""

    method: str
    fingerprint: str
    seconds: float
    scenes: list[SceneScore]


@dataclass(frozen=True)
class EthResults:
    """All methods' models, those that could not run and why, and where it all came from."""

    provenance: Provenance
    methods: list[EthResult]
    skipped: dict[str, str]


def run_eth(
    root: Path,
    options: RunOptions,
    output: Path,
    pair_list: str | None = None,
    mapping: MappingOptions | None = None,
    progress_for: ProgressFor = without_progress,
) -> EthResults:
    """Map every scene with every method and write the report to ``output``, whose folder ``work`` keeps all that was made."""
    scenes = read_scenes(root, pair_list)
    own = {"pairs": pair_list, "mapping": options_to_mapping(mapping or MappingOptions())}
    provenance = provenance_of(options, root, {file for scene in scenes for file in scene.files}, own)

    def measure(source: FeatureSource, progress: Progress | None) -> list[MappedScene]:
        matching = options.matching or source.own_matching
        return [map_eth_scene(scene, source, matching, output / "work", mapping, progress) for scene in scenes]

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = [
        EthResult(one.method, one.fingerprint, one.seconds, [mapped.score for mapped in one.result]) for one in measured
    ]
    results = EthResults(provenance, methods, skipped)
    mapped_by = {one.method: one.result for one in measured}
    sections = [_scene_section(scene, number, mapped_by) for number, scene in enumerate(scenes)]
    left_out = " ".join(f"Left out: {name}, as {why}." for name, why in skipped.items())
    intro = Section("Protocol", f"{_PROTOCOL} {left_out}".strip())
    write_report(output, f"Sparse models of {len(scenes)} scenes", results, provenance, [intro, *sections])
    return results


def published_rows(scene: str) -> list[list[str]]:
    """Table 3's printed rows of a scene, whatever separates the words of its name."""
    rows = [row for row in read_table("table3_eth") if _letters(row["scene"]) == _letters(scene)]
    keys = ("registered_images", "sparse_points", "track_length", "reprojection_error_px")
    return [[f"{row['method']} (paper)", *(row[key] for key in keys)] for row in rows]


def _scene_section(scene: EthScene, number: int, mapped_by: dict[str, list[MappedScene]]) -> Section:
    mapped = {method: scenes[number] for method, scenes in mapped_by.items()}
    return Section(
        f"{scene.name} ({len(scene.image_names)} images)", "", _tables(scene, mapped), _pictures(scene, mapped)
    )


def _tables(scene: EthScene, mapped: dict[str, MappedScene]) -> list[Table]:
    header = ["method", "registered images", "sparse points", "track length", "reprojection error [px]", ""]
    printed = [[*row, ""] for row in published_rows(scene.name)]
    rows = [[method, *_four_columns(one.score), one.score.failure] for method, one in mapped.items()]
    more = [
        "method",
        "observations",
        "per image",
        "median track",
        "tracks >= 5",
        ">= 10",
        "verified pairs",
        "models",
        "minutes",
    ]
    counts = [[method, *_further_columns(one.score)] for method, one in mapped.items()]
    return [Table(header, [*printed, *rows], [len(printed)]), Table(more, counts)]


def _four_columns(score: SceneScore) -> list[str]:
    tracks = score.tracks
    return [
        str(score.registered),
        str(tracks.points),
        f"{tracks.mean_length:.2f}",
        f"{score.reprojection_error_px:.2f}",
    ]


def _further_columns(score: SceneScore) -> list[str]:
    tracks = score.tracks
    shares = [
        sum(count for length, count in tracks.histogram.items() if length >= least) / max(tracks.points, 1)
        for least in (5, 10)
    ]
    counts = [
        f"{tracks.observations}",
        f"{tracks.observations / max(score.registered, 1):.0f}",
        f"{tracks.median_length:g}",
    ]
    counts += [f"{share:.1%}" for share in shares]
    return [*counts, f"{score.verified_pairs} of {score.pairs}", str(score.models), f"{score.seconds / 60:.1f}"]


def _pictures(scene: EthScene, mapped: dict[str, MappedScene]) -> list[Picture]:
    histograms = {method: one.score.tracks.histogram for method, one in mapped.items() if one.model is not None}
    if not histograms:
        return []
    pictures = [Picture("svg", track_lengths(histograms), "Share of points seen by at least so many images")]
    for method, one in mapped.items():
        if one.model is not None:
            pictures.append(Picture("png", picture_of_model(one.model), f"{method}: the largest model"))
            data, name, succeeded, total = landmarks_of_model(one.model, one.files.features, scene.images)
            caption = f"{method}: {succeeded} of {total} keypoints of {name} became landmarks (blue)"
            pictures.append(Picture("jpg", data, caption))
    return pictures


def _letters(name: str) -> Sequence[str]:
    return re.findall(r"[a-z0-9]+", name.lower())
