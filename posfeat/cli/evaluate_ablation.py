"""posfeat evaluate ablation: train the paper's Models 1 to 8 and its grid at a chosen scale, score them, write the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.evaluate_tables import print_ablation
from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.benchmarks.ablation import RunOutcome


def ablation(
    plan: Annotated[Path, typer.Argument(help="What is trained and compared.")] = Path("configs/plans/ablation.yaml"),
    scale: Annotated[str, typer.Option(help="Which of the plan's scales: tiny, compact, paper.")] = "tiny",
    photos: Annotated[list[Path] | None, typer.Option(help="Folder of plain photos to train on.")] = None,
    posed: Annotated[list[Path] | None, typer.Option(help="Posed photos to train on.")] = None,
    sequences: Annotated[
        Path | None, typer.Option(help="HPatches' or Oxford's sequences to score on; without it nothing is scored.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="A part (models, grid, queries, beyond) or a model.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Another method to score beside the models.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the runs and the report.")] = Path(
        "runs/ablation"
    ),
    device: Annotated[str, typer.Option(help="Where to train and to score: auto, cpu, cuda or mps.")] = "auto",
    parallel: Annotated[int, typer.Option(min=1, help="So many training runs at a time.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads of each training run.")] = None,
    train: Annotated[bool, typer.Option(help="Train what is not trained yet.")] = True,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change the scale, such as description_steps=100 or minutes=1.5.")
    ] = None,
) -> None:
    """Ablations: Models 1 to 8, Table 4's grid, trained and scored (the paper's Fig. 8). Goes on where it stopped."""
    from posfeat.benchmarks.ablation import score_ablation
    from posfeat.benchmarks.ablation_report import write_ablation_report
    from posfeat.benchmarks.run import RunOptions
    from posfeat.training.ablation_plan import planned_runs, read_plan
    from posfeat.training.ablation_runs import finished_runs, train_runs

    whole = read_plan(plan, scale, overrides or [])
    ablation = whole.ablation.chosen(only or [])
    data = {"photos": photos, "posed": posed}
    changes = {"data": {key: [str(path) for path in paths] for key, paths in data.items() if paths}}
    folder = output / "runs"
    runs = planned_runs(whole, ablation.models, folder, changes)
    outcomes = finished_runs(runs, folder)
    if train:
        outcomes = train_runs(runs, folder, device, parallel, threads, _print_run)
    if sequences is not None:
        options = RunOptions(methods or [], whole.scale.keypoints, output / "features", device=_explicit(device))
        results, examples = score_ablation(sequences, folder, ablation, outcomes, options, progress_bar)
        write_ablation_report(output, results, examples)
        print_ablation(results)
        print(f"report: {output / 'report.html'}")
    if any(outcome.failure for outcome in outcomes):
        raise typer.Exit(1)


def _print_run(outcome: RunOutcome, done: int, total: int) -> None:
    held_out = ", ".join(f"{name} {value:.3f}" for name, value in outcome.validation.items())
    told = (
        f"failed: {outcome.failure}"
        if outcome.failure
        else f"{outcome.steps} steps, {outcome.seconds:.0f} s. {held_out}"
    )
    print(f"[{done}/{total}] {outcome.name}: {told}", flush=True)


def _explicit(device: str) -> str | None:
    return None if device == "auto" else device
