"""posfeat evaluate: the benchmarks, one command each, with a report that says where every number came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli import evaluate_ablation
from posfeat.cli.evaluate_tables import print_accuracy, print_poses
from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.benchmarks.run import RunOptions

app = typer.Typer(help="Measure features on the paper's benchmarks, beside other people's features.")
app.command("ablation")(evaluate_ablation.ablation)

MethodsOption = Annotated[
    list[str],
    typer.Option(
        "--methods",
        metavar="METHOD...",
        help="What to measure: default, a checkpoint, rootsift, orb, akaze, disk, xfeat, aliked, sift+default, "
        "feature files; name@2048 sets the number of keypoints of one.",
    ),
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="Folder for results.json and report.html.")]
CacheOption = Annotated[Path | None, typer.Option("--cache", help="Folder where extracted features are kept.")]
KeypointsOption = Annotated[int, typer.Option("--keypoints", min=1, help="The most keypoints for one image.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="An option of our extraction, such as selection.nms_size=3.")
]

OwnMatcherOption = Annotated[
    bool, typer.Option("--own-matcher", help="Match each method as its authors do, not all alike.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="Where our networks run; default the fastest there is.")
]

_CACHE = Path("runs/cache/features")


@app.callback(invoke_without_command=True)
def _evaluate(
    context: typer.Context,
    check: Annotated[Path | None, typer.Option("--check", help="Say whether this data set lies as it must.")] = None,
) -> None:
    if check is not None:
        _check(check)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command("hpatches")
def hpatches(
    root: Annotated[Path, typer.Argument(help="Folder of HPatches' or of the Oxford affine sequences.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    keypoints: KeypointsOption = 8192,
    output: OutputOption = Path("runs/evaluate/hpatches"),
    cache: CacheOption = _CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Matching accuracy on image sequences joined by homographies (the paper's Fig. 5 and Table 1)."""
    from posfeat.benchmarks.hpatches_run import run_hpatches

    options = _run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    results = run_hpatches(root, options, output, progress_bar)
    print_accuracy(results)
    print(f"report: {output / 'report.html'}")


@app.command("pose")
def pose(
    root: Annotated[Path, typer.Argument(help="Folder of posed photos: a COLMAP model, .camera files, a pair list's.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    pairs: Annotated[Path | None, typer.Option("--pairs", help="Text list of pairs with their cameras.")] = None,
    neighbours: Annotated[
        int | None, typer.Option("--neighbours", min=1, help="Take views up to so far apart in the order of names.")
    ] = None,
    keypoints: KeypointsOption = 8192,
    output: OutputOption = Path("runs/evaluate/pose"),
    cache: CacheOption = _CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Relative poses of pairs of posed photos: pose AUC, epipolar precision, matches."""
    from posfeat.benchmarks.pose_run import run_poses

    options = _run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    results = run_poses(root, options, output, pairs, neighbours, progress_bar)
    print_poses(results)
    print(f"report: {output / 'report.html'}")


def _run_options(
    methods: list[str],
    keypoints: int,
    cache: Path | None,
    own_matcher: bool,
    device: str | None,
    overrides: list[str] | None,
) -> RunOptions:
    from posfeat.benchmarks.run import RunOptions, extraction_options
    from posfeat.matching import MatchOptions

    matching = None if own_matcher else MatchOptions()
    return RunOptions(methods, keypoints, cache, extraction_options(overrides or []), matching, device)


def _check(root: Path) -> None:
    from posfeat.benchmarks.layouts import check_layout

    found, problems = check_layout(root)
    for line in found:
        print(f"found: {line}")
    for line in problems:
        print(f"problem: {line}")
    if problems:
        raise typer.Exit(2)
    print("nothing is wrong")
