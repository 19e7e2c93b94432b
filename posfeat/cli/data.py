"""posfeat data: what a folder of posed photos holds, and whether its poses are right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.data.check_report import SceneReport

app = typer.Typer(help="Look at posed photos before training on them.", no_args_is_help=True)

EXAMPLES = (
    "Examples: posfeat data check my_scene | posfeat data check megadepth --scenes training_scenes.txt -o runs/check"
)


@app.callback()
def _data() -> None:
    """Look at posed photos before training on them."""


@app.command("check", epilog=EXAMPLES)
def check(
    path: Annotated[
        Path, typer.Argument(help="A scene or a folder of scenes: COLMAP, nerfstudio, cameras.txt, CAPS, scene_info.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for check.json, pairs.txt and one picture a scene.")
    ] = Path("runs/data_check"),
    scenes: Annotated[
        Path | None, typer.Option("--scenes", help="Text file: only these scenes, a name a line.")
    ] = None,
    matching: Annotated[bool, typer.Option(help="Verify the poses by SIFT matches.")] = True,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option, such as pairs.max_rotation_deg=60 or check.ratio=0.75."),
    ] = None,
) -> None:
    """Count views and usable pairs, verify the poses by matching, and draw epipolar lines for the eye to judge."""
    from posfeat.data.check_run import read_check_settings, run_check

    settings = read_check_settings(overrides or [])
    reports = run_check(path, output, settings, scenes=scenes, matching=matching, progress=progress_bar)
    _print_reports(reports)
    print(f"written: {output}/check.json, pairs.txt" + (", a picture for each scene" if matching else ""))


def _print_reports(reports: list[SceneReport]) -> None:
    from rich.console import Console

    console = Console()
    for report in reports:
        for line in _lines(report):
            console.print(line, highlight=False, soft_wrap=True)


def _lines(report: SceneReport) -> list[str]:
    """A scene in a few lines."""
    (size, *other_sizes) = report.sizes or {"-": 0}
    sizes = f"{size} and {len(other_sizes)} other sizes" if other_sizes else size
    models = ", ".join(report.camera_models)
    judged = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items())
    lines = [
        f"[bold]{report.name}[/bold]: {report.layout}, {report.num_views} views, {sizes}, {models}",
        f"  {report.num_usable_pairs} usable pairs of {report.num_possible_pairs}"
        + (f" (matched: {judged})" if judged else ""),
    ]
    if report.median_error_px is not None:
        lines.append(
            f"  SIFT matches lie {report.median_error_px:.2f} px from their epipolar lines (median of confirmed pairs)"
        )
    shapes = (("overlap", "0..1"), ("rotation_deg", "0..180"), ("baseline_ratio", "0..4 x median"))
    lines += [f"  {name:<15}{_sparkline(report.histograms[name]['counts'])} {ends}" for name, ends in shapes]
    return lines + [f"  [yellow]{warning}[/yellow]" for warning in report.warnings]


def _sparkline(counts: list[float]) -> str:
    """A histogram in one word."""
    top = max(counts, default=0) or 1
    return "".join(" ▁▂▃▄▅▆▇█"[math.ceil(8 * count / top)] for count in counts)
