"""posfeat evaluate rotation and repeatability: benchmarks on anybody's plain photos."""

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
    from posfeat.benchmarks.repeatability_run import RepeatabilityResults
    from posfeat.benchmarks.rotation_run import RotationResults

PhotosArgument = Annotated[Path, typer.Argument(help="Folder of plain photos, best such as no method was trained on.")]


def rotation(
    root: PhotosArgument,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default", "default[rotations_deg=[0,90,180,270]]"],  # noqa: B006
    photos: Annotated[int, typer.Option("--photos", min=1, help="The most photos, spread over the folder.")] = 8,
    step: Annotated[int, typer.Option("--step", min=1, help="Degrees from one copy to the next.")] = 10,
    copy_scale: Annotated[
        float, typer.Option("--copy-scale", help="Size of the turned copies over the photo's.")
    ] = 0.8,
    longest: Annotated[int, typer.Option("--longest", min=64, help="Photos are shrunk to this longer side.")] = 640,
    keypoints: KeypointsOption = 2048,
    output: OutputOption = Path("runs/evaluate/rotation"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Matching accuracy on photos turned in their plane all the way round, and what being robust to it costs."""
    from posfeat.benchmarks.rotation import TurnOptions
    from posfeat.benchmarks.rotation_run import run_rotation

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    results = run_rotation(root, options, TurnOptions(step, copy_scale, longest), photos, output, progress_bar)
    print_rotation(results)
    print(f"report: {output / 'report.html'}")


def repeatability(
    root: PhotosArgument,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default", "rootsift"],  # noqa: B006
    photos: Annotated[int, typer.Option("--photos", min=1, help="The most photos, spread over the folder.")] = 500,
    render: Annotated[
        list[str] | None,
        typer.Option("--render", metavar="KEY=VALUE", help="Of the views, such as pairs=200 or look.strength=0."),
    ] = None,
    keypoints: KeypointsOption = 1024,
    output: OutputOption = Path("runs/evaluate/repeatability"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Whether detectors find the same points again, on pairs of views rendered from photos."""
    from posfeat.benchmarks.repeatability import RenderingOptions
    from posfeat.benchmarks.repeatability_run import run_repeatability
    from posfeat.options import apply_overrides, options_from_mapping

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    rendering = options_from_mapping(RenderingOptions, apply_overrides({}, render or []))
    results = run_repeatability(root, options, rendering, photos, output, progress_bar)
    print_repeatability(results)
    print(f"report: {output / 'report.html'}")


def print_rotation(results: RotationResults) -> None:
    """Upright, mean and worst MMAscore of every method, and its time for an image."""
    from posfeat.cli.evaluate_tables import print_table

    rows = []
    for one in results.methods:
        mean = sum(score.mma_score for score in one.angles) / len(one.angles)
        shares = [f"{share:.3f}" for share in (one.upright.mma_score, mean, one.worst.mma_score)]
        row = [one.method, *shares, f"{one.worst.angle_deg}°", f"{one.left:.1%}"]
        rows.append([*row, f"{one.seconds_an_image * 1e3:.0f} ms"])
    header = ["method", "MMAscore upright", "mean", "worst", "at", "worst / upright", "an image"]
    print_table(header, rows, results.skipped, ruled=False)


def print_repeatability(results: RepeatabilityResults) -> None:
    """Repeatability with its standard error, spread and matching accuracy of every method."""
    from posfeat.cli.evaluate_tables import print_table

    rows = []
    for one in results.methods:
        summary = one.summary
        shares = [
            f"{share:.3f} ± {error:.3f}"
            for share, error in zip(summary.repeatability, summary.standard_error, strict=True)
        ]
        counts = [f"{summary.spread:.3f}", f"{summary.matches:.0f}", f"{summary.mma_score:.3f}"]
        rows.append([one.method, f"{summary.keypoints:.0f}", *reversed(shares), *counts])
    header = ["method", "keypoints", "repeated in 3 px", "in 1 px", "spread", "matches", "MMAscore"]
    print_table(header, rows, results.skipped, ruled=False)
