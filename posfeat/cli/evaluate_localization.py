"""posfeat evaluate localization: photos left out of a map and localized in it, by several methods."""

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

if TYPE_CHECKING:
    from posfeat.benchmarks.localization_run import LocalizationResults

EXAMPLES = """\b
Examples:
  posfeat evaluate localization strecha_fountain --methods default rootsift --own-matcher
  posfeat evaluate localization scenes/ --only fountain --only herzjesu --methods default --unknown-cameras
"""


def localization(
    root: Annotated[Path, typer.Argument(help="A scene of posed photos, or a folder of scenes.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    keypoints: KeypointsOption = 4096,
    ratio: Annotated[
        float, typer.Option("--ratio", min=0, max=1, help="Ratio test: nearest over second nearest distance; 1: none.")
    ] = 1.0,
    unknown_cameras: Annotated[
        bool, typer.Option("--unknown-cameras", help="Do not tell the intrinsics of the photos that are localized.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Names of scenes (again for more); the others are left out.")
    ] = None,
    output: OutputOption = Path("runs/evaluate/localization"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Leave every fifth photo out, map the rest with its known poses, and localize the others in it."""
    from posfeat.benchmarks.localization_run import run_localization

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides, ratio)
    results = run_localization(root, options, output, not unknown_cameras, only or [], progress_bar)
    print_localization(results)
    print(f"report: {output / 'report.html'}")


def print_localization(results: LocalizationResults) -> None:
    """Median errors and recall, scene by scene."""
    from posfeat.benchmarks.localization import THRESHOLDS
    from posfeat.cli.evaluate_tables import print_table

    within = [f"{centre:g} %, {angle:g}°" for centre, angle in THRESHOLDS]
    header = ["method", "scene", "localized", "centre %", "rot. °", *within, "inliers"]
    rows: list[list[str]] = []
    for result in results.methods:
        for scene in result.scenes:
            numbers = [f"{scene.localized}/{scene.queries}", f"{scene.median_centre_percent:.3f}"]
            numbers += [f"{scene.median_rotation_deg:.3f}", *(f"{share:.3f}" for share in scene.recall)]
            rows.append([result.method if scene.scene == "all" else "", scene.scene, *numbers, f"{scene.inliers:.0f}"])
    print_table(header, rows, results.skipped)
