"""The runs of an ablation plan, trained one after another or several at a time, each where it was left off.

A run whose options are wrong, or that diverges, costs itself and what would have started from it; all others go on.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from posfeat.benchmarks.ablation import RunOutcome
from posfeat.options import options_to_mapping
from posfeat.training.ablation_plan import PlannedRun
from posfeat.training.distributed import join_workers
from posfeat.training.run import read_run_options, run_stage
from posfeat.training.run_folder import write_text
from posfeat.types import OptionsError, PosfeatError

OUTCOME = "outcome.json"
# what may differ where a finished run was trained elsewhere: paths, and how batches are prepared
_OF_A_MACHINE = {"data": ("photos", "posed", "scenes", "validation_posed", "workers", "processes")}

Report = Callable[[RunOutcome, int, int], None]


def train_runs(
    runs: Sequence[PlannedRun],
    folder: Path,
    device: str = "auto",
    parallel: int = 1,
    threads: int | None = None,
    report: Report | None = None,
) -> list[RunOutcome]:
    """Train what is not finished yet; ``report`` hears of every run that ends, with how many have and how many there are."""
    outcomes: dict[str, RunOutcome] = {}

    def ended(outcome: RunOutcome) -> None:
        outcomes[outcome.name] = outcome
        if report is not None:
            report(outcome, len(outcomes), len(runs))

    waiting = list(runs)
    if parallel == 1:
        for run in waiting:
            ended(_without_start(run, outcomes) or train_run(run, folder, device, threads))
    else:
        with ProcessPoolExecutor(parallel, mp_context=multiprocessing.get_context("spawn")) as pool:
            _train_side_by_side(pool, waiting, outcomes, ended, (folder, device, threads))
    return [outcomes[run.name] for run in runs]


def finished_runs(runs: Sequence[PlannedRun], folder: Path) -> list[RunOutcome]:
    """How those runs ended that have ended."""
    outcomes = (read_outcome(run, folder) for run in runs)
    return [outcome for outcome in outcomes if outcome is not None]


def train_run(run: PlannedRun, folder: Path, device: str, threads: int | None) -> RunOutcome:
    """Train one run to its end, from where it was left off; at once where it is finished."""
    path = folder / run.name
    try:
        finished = read_outcome(run, folder)
        if finished is not None:
            return finished
        if threads is not None:
            torch.set_num_threads(threads)
        begun = time.monotonic()
        with join_workers(device) as workers:
            validation = run_stage(run.stage, run.options, path, workers, resume=True)
    except PosfeatError as error:
        return RunOutcome(run.name, run.stage, 0, 0.0, {}, str(error))
    outcome = RunOutcome(run.name, run.stage, _last_step(path), time.monotonic() - begun, validation)
    write_text(path / OUTCOME, json.dumps(dataclasses.asdict(outcome), indent=1) + "\n")
    return outcome


def read_outcome(run: PlannedRun, folder: Path) -> RunOutcome | None:
    """How a run ended, if it did; OptionsError where it was trained with other options than the plan's."""
    path = folder / run.name
    if not (path / OUTCOME).is_file():
        return None
    trained = options_to_mapping(read_run_options(path / "config.yaml", []))
    for section, wanted in options_to_mapping(run.options).items():
        if section != "start" and _comparable(section, wanted) != _comparable(section, trained[section]):
            raise OptionsError(f"{path} was trained with another {section}; give another output folder, or delete it")
    return RunOutcome(**json.loads((path / OUTCOME).read_text(encoding="utf-8")))


def _train_side_by_side(
    pool: ProcessPoolExecutor,
    waiting: list[PlannedRun],
    outcomes: dict[str, RunOutcome],
    ended: Callable[[RunOutcome], None],
    setting: tuple[Any, ...],
) -> None:
    """Hand each run to the pool as soon as the one that it starts from has ended."""
    running: set[Future[RunOutcome]] = set()
    while waiting or running:
        ready = [run for run in waiting if run.start is None or run.start in outcomes]
        waiting = [run for run in waiting if run not in ready]
        for run in ready:
            failed = _without_start(run, outcomes)
            if failed is not None:
                ended(failed)
            else:
                running.add(pool.submit(train_run, run, *setting))
        if running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                ended(future.result())


def _without_start(run: PlannedRun, outcomes: dict[str, RunOutcome]) -> RunOutcome | None:
    """The outcome of a run whose start has failed."""
    if run.start is not None and outcomes[run.start].failure:
        return RunOutcome(run.name, run.stage, 0, 0.0, {}, f"the run {run.start} failed, from which it starts")
    return None


def _last_step(path: Path) -> int:
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(int(json.loads(line)["step"]) for line in lines)


def _comparable(section: str, value: Any) -> Any:
    """Without what belongs to a machine."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if key not in _OF_A_MACHINE.get(section, ())}
    return value
