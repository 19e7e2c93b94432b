"""The localization benchmark from posed photos to a report."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.localization import (
    THRESHOLDS,
    LocalizationSummary,
    LocalizedPhoto,
    MapSummary,
    localize_scene,
    split_views,
    summarise_localization,
)
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.report import Section, Table, write_report
from posfeat.benchmarks.run import Progress, ProgressFor, RunOptions, measure_methods, provenance_of, without_progress
from posfeat.data.posed import read_posed
from posfeat.pipeline.localize import LocalizationOptions
from posfeat.types import DataError, View

_PROTOCOL = (
    "Every fifth photo in the order of names is left out. The others are mapped with their known poses and intrinsics: each "
    "is matched with its 20 nearest that look the same way, and COLMAP triangulates what agrees with the poses. A photo that "
    "was left out is matched with the 20 photos of the map that look most like it, and its pose estimated by LO-RANSAC at "
    "1 % of its longer side and least squares, {cameras}. Errors are those of the camera's centre, in percent of the largest "
    "distance between two cameras of the scene, and of its rotation; a photo without a pose has infinite errors. Recall is "
    "the share of photos within both limits."
)
_KNOWN, _UNKNOWN = "with its known intrinsics", "without knowing its intrinsics"


@dataclass(frozen=True)
class LocalizationResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float
    scenes: list[LocalizationSummary]
    maps: list[MapSummary]
    photos: list[LocalizedPhoto]


@dataclass(frozen=True)
class LocalizationResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    known_cameras: bool
    methods: list[LocalizationResult]
    skipped: dict[str, str]


def run_localization(
    root: Path,
    options: RunOptions,
    output: Path,
    known_cameras: bool = True,
    only: Sequence[str] = (),
    progress_for: ProgressFor = without_progress,
) -> LocalizationResults:
    """Score all methods on the scenes under ``root``, or on ``only`` those, and write the report to ``output``."""
    scenes = _by_scene(read_posed(root), only)
    photos = [view for views in scenes for view in views]
    own = {"known_cameras": known_cameras}
    provenance = provenance_of(options, root, {view.image_path for view in photos}, own, photos)
    num_queries = sum(len(split_views(views)[1]) for views in scenes)
    output.mkdir(parents=True, exist_ok=True)

    def measure(source: FeatureSource, progress: Progress | None) -> tuple[list[MapSummary], list[LocalizedPhoto]]:
        maps: list[MapSummary] = []
        photos: list[LocalizedPhoto] = []
        done = 0

        def one_more() -> None:
            nonlocal done
            done += 1
            if progress:
                progress(done, num_queries)

        localization = replace(LocalizationOptions(), matching=options.matching or source.own_matching)
        for views in scenes:
            with tempfile.TemporaryDirectory(dir=output, prefix="map-") as folder:
                summary, found = localize_scene(
                    views, source.features_of, localization, known_cameras, Path(folder), one_more
                )
            maps.append(summary)
            photos += found
        return maps, photos

    measured, skipped = measure_methods(options, root, measure, progress_for)
    methods = [
        LocalizationResult(one.method, one.fingerprint, one.seconds, summarise_localization(photos), maps, photos)
        for one in measured
        for maps, photos in [one.result]
    ]
    results = LocalizationResults(provenance, known_cameras, methods, skipped)
    write_report(
        output, f"Localization of {num_queries} photos", results, provenance, [_summary(results), _maps(results)]
    )
    return results


def _by_scene(views: Sequence[View], only: Sequence[str]) -> list[list[View]]:
    names = sorted({view.scene for view in views})
    unknown = [name for name in only if name not in names]
    if unknown:
        raise DataError(f"there is no scene {unknown[0]}; there are {', '.join(names)}")
    return [[view for view in views if view.scene == name] for name in only or names]


def _summary(results: LocalizationResults) -> Section:
    within = [f"{centre:g} %, {angle:g}°" for centre, angle in THRESHOLDS]
    header = ["method", "scene", "photos", "localized", "centre, median", "rotation, median", *within, "inliers"]
    rows: list[list[str]] = []
    rules: list[int] = []
    for result in results.methods:
        rules.append(len(rows))
        for scene in result.scenes:
            rows.append(
                [
                    result.method if scene.scene == "all" else "",
                    scene.scene,
                    str(scene.queries),
                    str(scene.localized),
                    f"{scene.median_centre_percent:.3f} %",
                    f"{scene.median_rotation_deg:.3f}°",
                    *(f"{share:.3f}" for share in scene.recall),
                    f"{scene.inliers:.0f}",
                ]
            )
    protocol = _PROTOCOL.format(cameras=_KNOWN if results.known_cameras else _UNKNOWN)
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    return Section("Localization", f"{protocol} {skipped}".strip(), [Table(header, rows, rules)])


def _maps(results: LocalizationResults) -> Section:
    header = ["method", "scene", "photos", "points", "track length", "reprojection error"]
    rows: list[list[str]] = []
    rules: list[int] = []
    for result in results.methods:
        rules.append(len(rows))
        for index, one in enumerate(result.maps):
            numbers = [str(one.num_photos), str(one.num_points), f"{one.mean_track_length:.2f}"]
            error = f"{one.mean_reprojection_error_px:.2f} px"
            rows.append([result.method if index == 0 else "", one.scene, *numbers, error])
    return Section("Maps", "What the photos that were not left out gave.", [Table(header, rows, rules)])
