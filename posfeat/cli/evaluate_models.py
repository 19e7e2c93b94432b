"""posfeat evaluate eth and aachen: the benchmarks that make models of scenes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.evaluate_options import (
    DeviceOption,
    MethodsOption,
    OutputOption,
    OwnMatcherOption,
    SetOption,
    run_options,
)
from posfeat.cli.evaluate_tables import print_localization, print_models
from posfeat.cli.progress import progress_bar

RatioOption = Annotated[
    float, typer.Option("--ratio", min=0, max=1, help="Ratio test: nearest over second nearest distance; 1: none.")
]


def eth(
    root: Annotated[Path, typer.Argument(help="Folder of scenes with images/ and database.db, or one such scene.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    pairs: Annotated[
        str | None, typer.Option("--pairs", help="A list of pairs in each scene's folder; default all pairs.")
    ] = None,
    keypoints: Annotated[int, typer.Option("--keypoints", min=1, help="The most keypoints for one image.")] = 20_000,
    ratio: RatioOption = 0.8,
    mapper: Annotated[str, typer.Option(help="incremental, as in the benchmark, or global.")] = "incremental",
    output: OutputOption = Path("runs/evaluate/eth"),
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """ETH's local feature benchmark: sparse models of scenes (the paper's Table 3). Goes on where it stopped."""
    from posfeat.benchmarks.eth_run import run_eth
    from posfeat.interop.colmap_mapping import MappingOptions
    from posfeat.options import options_from_mapping

    changes = ["selection.nms_size=7", *(overrides or [])]
    options = run_options([*methods, *(more or [])], keypoints, None, own_matcher, device, changes, ratio)
    mapping = options_from_mapping(MappingOptions, {"mapper": mapper})
    results = run_eth(root, options, output, pairs, mapping, progress_bar)
    print_models(results)
    print(f"report: {output / 'report.html'}")


def aachen(
    root: Annotated[
        Path, typer.Argument(help="Folder of Aachen Day-Night with the challenge's pair list and database.")
    ],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    version: Annotated[str | None, typer.Option(help="v1 or v1.1; default the newest that is there.")] = None,
    part: Annotated[str, typer.Option(help="Queries by night, by day, or all.")] = "night",
    ground_truth: Annotated[
        Path | None,
        typer.Option("--ground-truth", help="True poses of the queries, in the layout of the file to upload."),
    ] = None,
    thresholds: Annotated[
        list[str] | None, typer.Option(help="metres,degrees of a recall; default the paper's 0.5,2 1,5 5,10.")
    ] = None,
    keypoints: Annotated[int, typer.Option("--keypoints", min=1, help="The most keypoints for one image.")] = 16_384,
    ratio: RatioOption = 1.0,
    output: OutputOption = Path("runs/evaluate/aachen"),
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
) -> None:
    """Aachen Day-Night v1 or v1.1: a file ready to upload, and recalls where the truth is known (the paper's Table 2)."""
    from posfeat.benchmarks.aachen import PAPER_THRESHOLDS
    from posfeat.benchmarks.aachen_run import run_aachen
    from posfeat.types import OptionsError

    if version not in (None, "v1", "v1.1"):
        raise OptionsError(f"there is no version {version} of Aachen Day-Night: v1 or v1.1")
    if part not in ("night", "day", "all"):
        raise OptionsError(f"there are no queries by {part}: night, day or all")
    changes = ["selection.nms_size=7", *(overrides or [])]
    options = run_options([*methods, *(more or [])], keypoints, None, own_matcher, device, changes, ratio)
    limits = tuple(map(_threshold, thresholds)) if thresholds else PAPER_THRESHOLDS
    results = run_aachen(root, options, output, version, part, ground_truth, limits, progress_bar)  # type: ignore[arg-type]
    print_localization(results)
    for result in results.methods:
        print(f"to upload: {output / result.result_file}")
    print(f"report: {output / 'report.html'}")


def _threshold(text: str) -> tuple[float, float]:
    from posfeat.types import OptionsError

    try:
        metres, degrees = (float(part) for part in text.split(","))
    except ValueError as error:
        raise OptionsError(f"--thresholds {text!r}: write metres,degrees such as 0.25,2") from error
    return metres, degrees
