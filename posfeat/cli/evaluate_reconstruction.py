"""posfeat evaluate reconstruction: whole reconstructions of posed photos by several methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.evaluate_options import (
    CACHE,
    CacheOption,
    DeviceOption,
    KeypointsOption,
    MethodsOption,
    OutputOption,
    OwnMatcherOption,
    SetOption,
    run_options,
)
from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import Mapper, MapperOption

if TYPE_CHECKING:
    from posfeat.benchmarks.reconstruction_run import ReconstructionResults

EXAMPLES = """\b
Examples:
  posfeat evaluate reconstruction strecha_fountain --methods default rootsift --own-matcher
  posfeat evaluate reconstruction scenes/ --only fountain --only herzjesu --methods default rootsift --mapper global
"""


def reconstruction(
    root: Annotated[Path, typer.Argument(help="A scene of posed photos, or a folder of scenes.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    keypoints: KeypointsOption = 4096,
    ratio: Annotated[
        float, typer.Option("--ratio", min=0, max=1, help="Ratio test: nearest over second nearest distance; 1: none.")
    ] = 1.0,
    mapper: MapperOption = Mapper.incremental,
    known_cameras: Annotated[
        bool, typer.Option("--known-cameras", help="Give the true intrinsics, and keep them.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Names of scenes (again for more); the others are left out.")
    ] = None,
    output: OutputOption = Path("runs/evaluate/reconstruction"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Reconstruct posed photos with several features, the same pairs and the same mapper."""
    from posfeat.benchmarks.reconstruction_run import run_reconstructions
    from posfeat.cli.scene_options import mapping_options

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides, ratio)
    mapping = mapping_options(mapper, fix_cameras=known_cameras, seed=0, deterministic=True)
    results = run_reconstructions(root, options, output, mapping, known_cameras, only or [], progress_bar)
    print_reconstructions(results)
    print(f"report: {output / 'report.html'}")


def print_reconstructions(results: ReconstructionResults) -> None:
    """Registered photos, tracks and pose errors, scene by scene."""
    from posfeat.cli.evaluate_tables import print_table

    header = [
        "scene",
        "method",
        "registered",
        "points",
        "track length",
        "reproj. px",
        "AUC@5",
        "AUC@10",
        "AUC@20",
        "centre %",
        "rot. °",
    ]
    rows: list[list[str]] = []
    for number in range(len(results.methods[0].scenes) if results.methods else 0):
        for index, result in enumerate(results.methods):
            score = result.scenes[number]
            numbers = [f"{score.registered}/{score.photos}", str(score.points), f"{score.track_length:.2f}"]
            numbers += [f"{score.reprojection_error_px:.2f}", *(f"{auc:.3f}" for auc in score.auc)]
            numbers += [f"{score.centre_error_percent:.3f}", f"{score.rotation_error_deg:.3f}"]
            rows.append([score.scene if index == 0 else "", result.method, *numbers])
    print_table(header, rows, results.skipped)
    for result in results.methods:
        for score in result.scenes:
            if score.failure:
                print(f"{result.method}, {score.scene}: {score.failure}")
