"""What the verbs of posfeat evaluate are asked for alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from posfeat.benchmarks.run import RunOptions

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

CACHE = Path("runs/cache/features")


def run_options(
    methods: list[str],
    keypoints: int,
    cache: Path | None,
    own_matcher: bool,
    device: str | None,
    overrides: list[str] | None,
    ratio: float = 1.0,
) -> RunOptions:
    """What a run is asked for."""
    from posfeat.benchmarks.run import RunOptions, extraction_options
    from posfeat.matching import MatchOptions

    matching = None if own_matcher else MatchOptions(ratio=ratio if ratio < 1 else None)
    return RunOptions(methods, keypoints, cache, extraction_options(overrides or []), matching, device)
