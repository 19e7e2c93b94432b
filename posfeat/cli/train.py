"""posfeat train: the paper's two stages, or both at once, from one configuration file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

  posfeat train description configs/compact_description.yaml --set data.photos=[photos/] -o runs/description

  posfeat train detection configs/compact_detection.yaml --set start.weights=runs/description/best.safetensors -o runs/detection

  posfeat train description runs/description/config.yaml --resume -o runs/description

  torchrun --nproc-per-node 4 -m posfeat train description configs/paper_description.yaml -o runs/paper
"""


def train(
    stage: Annotated[str, typer.Argument(help="description, detection (on a frozen description), or joint.")],
    config: Annotated[Path, typer.Argument(help="A YAML file of options, as in configs/.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run's folder; default runs/<config>.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the folder's last save.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change an option: key.key=value.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads of this process; default what torch takes.")] = None,
) -> None:
    """Train on posed photos, or on plain ones by rendered views; watch matching accuracy, not the loss."""
    import torch

    from posfeat.pipeline.draw import draw_matches
    from posfeat.training.distributed import join_workers
    from posfeat.training.run import read_run_options, run_stage
    from posfeat.types import OptionsError

    if stage not in ("description", "detection", "joint"):
        raise OptionsError(f"there is no stage {stage}: description, detection or joint")
    options = read_run_options(config, set_ or [])
    folder = output or Path("runs") / config.stem
    if threads is not None:
        torch.set_num_threads(threads)
    with join_workers(device) as workers:
        lines = _ProgressLine(stage) if workers.is_main else None
        result = run_stage(stage, options, folder, workers, resume, lines, draw_matches)  # type: ignore[arg-type]
    if lines is not None:
        lines.finish(result, folder)


class _ProgressLine:
    """One line that renews itself in a terminal, and a line now and then in a log."""

    def __init__(self, stage: str) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._stage = stage
        self._status = self._console.status(f"{stage}: starting") if self._console.is_terminal else None
        if self._status is not None:
            self._status.start()

    def __call__(self, progress) -> None:  # type: ignore[no-untyped-def]
        numbers = "  ".join(f"{key} {value:.4g}" for key, value in progress.metrics.items())
        judged = "  ".join(f"{key} {value:.3f}" for key, value in progress.validation.items())
        left = timedelta(seconds=round(progress.seconds_left))
        line = (
            f"{self._stage} {progress.step}/{progress.steps}  {numbers}  [held out: {judged or 'not yet'}]  {left} left"
        )
        if self._status is not None:
            self._status.update(line)
        else:
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def finish(self, result: dict[str, float], folder: Path) -> None:
        if self._status is not None:
            self._status.stop()
        judged = ", ".join(f"{key} {value:.3f}" for key, value in result.items())
        self._console.print(
            f"{self._stage}: done. Held out: {judged}. Weights: {folder / 'best.safetensors'}", markup=False
        )
