"""The paper's ablations scored: which runs make which model, their matching accuracy, and what the claims amount to.

Models are told apart by whose keypoints and whose descriptors they have; both are checkpoints of training runs, or the
keypoints are SIFT's. Nothing is trained here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posfeat.benchmarks.hpatches import read_sequences
from posfeat.benchmarks.hpatches_report import Example, HomographyResults, MethodResult
from posfeat.benchmarks.hpatches_run import score_methods
from posfeat.benchmarks.published import read_table
from posfeat.benchmarks.run import ProgressFor, RunOptions, without_progress
from posfeat.options import check_options, described
from posfeat.types import OptionsError

Part = Literal["models", "grid", "queries", "beyond"]
SIFT = "sift"
WEIGHTS = "last.safetensors"  # equal lengths are compared: not the best of a run but its end


@dataclass(frozen=True)
class AblationModel:
    """Whose keypoints and whose descriptors a model has."""

    name: str = described("", "the model's name")
    keypoints: str = described("", "the run whose detector finds its keypoints, or sift")
    descriptors: str = described("", "the run whose description network describes them")
    part: Part = described("models", "which part of the ablations it belongs to")
    note: str = described("", "what it is, in words")

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that it is made of."""
        return tuple(dict.fromkeys(run for run in (self.descriptors, self.keypoints) if run != SIFT))

    def method(self, runs: Path) -> str:
        """The model as one of a run's methods."""
        descriptors = runs / self.descriptors / WEIGHTS
        if self.keypoints == self.descriptors:
            return f"{self.name}={descriptors}"
        keypoints = SIFT if self.keypoints == SIFT else str(runs / self.keypoints / WEIGHTS)
        return f"{self.name}={keypoints}+{descriptors}"


@dataclass(frozen=True)
class GridCell:
    """One cell of Table 4."""

    model: str
    line_points: int
    window: float
    row: int
    column: int


@dataclass(frozen=True)
class Comparison:
    """A claim of the paper as the difference of two models."""

    claim: str = described("", "the claim")
    better: str = described("", "the model that the claim prefers")
    worse: str = described("", "the other one")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Ablation:
    """What is compared."""

    scale: str
    models: list[AblationModel]
    grid: list[GridCell]
    comparisons: list[Comparison]

    def chosen(self, only: Sequence[str]) -> Ablation:
        """With the models of some parts or names only."""
        known = {model.part for model in self.models} | {model.name for model in self.models}
        for name in only:
            if name not in known:
                raise OptionsError(f"there is no part or model {name} here: {', '.join(sorted(known))}")
        models = [model for model in self.models if not only or model.part in only or model.name in only]
        return dataclasses.replace(self, models=models)


@dataclass(frozen=True)
class RunOutcome:
    """How a training run ended."""

    name: str
    stage: str
    steps: int
    seconds: float
    validation: dict[str, float]
    failure: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a claim amounts to here."""

    claim: str
    difference: float  # of the two MMAscores, overall
    better_on: int  # sequences on which the preferred model scores higher
    sequences: int


@dataclass(frozen=True)
class AblationResults:
    """All models' numbers, the claims, and how the runs were trained."""

    ablation: Ablation
    accuracy: HomographyResults
    verdicts: list[Verdict]
    training: list[RunOutcome]


def score_ablation(
    sequences: Path,
    runs: Path,
    ablation: Ablation,
    training: Sequence[RunOutcome],
    options: RunOptions,
    progress_for: ProgressFor = without_progress,
) -> tuple[AblationResults, list[Example]]:
    """Score the models whose weights are there, and beside them ``options.methods``."""
    absent = {model.name: _untrained(model, runs) for model in ablation.models if missing_runs(model, runs)}
    methods = [model.method(runs) for model in ablation.models if model.name not in absent]
    asked = dataclasses.replace(options, methods=[*methods, *options.methods])
    accuracy, examples = score_methods(sequences, read_sequences(sequences), asked, progress_for)
    accuracy = dataclasses.replace(accuracy, skipped=accuracy.skipped | absent)
    verdicts = judge(ablation.comparisons, accuracy.methods)
    return AblationResults(ablation, accuracy, verdicts, list(training)), examples


def missing_runs(model: AblationModel, runs: Path) -> list[str]:
    """The runs that a model needs and that have left no weights."""
    return [run for run in model.runs if not (runs / run / WEIGHTS).is_file()]


def judge(comparisons: Sequence[Comparison], methods: Sequence[MethodResult]) -> list[Verdict]:
    """The claims that both of their models were scored for."""
    by_name = {method.method: method for method in methods}
    return [
        _verdict(comparison, by_name[comparison.better], by_name[comparison.worse])
        for comparison in comparisons
        if comparison.better in by_name and comparison.worse in by_name
    ]


def published_grid() -> Mapping[tuple[int, int], float]:
    """Table 4 as printed, by the places of N_line and w_patch in it."""
    rows = read_table("table4_ablation")
    lines = sorted({int(row["n_line"]) for row in rows})
    windows = sorted({float(row["w_patch"]) for row in rows})
    return {
        (lines.index(int(row["n_line"])), windows.index(float(row["w_patch"]))): float(row["mmascore"]) for row in rows
    }


def _verdict(comparison: Comparison, better: MethodResult, worse: MethodResult) -> Verdict:
    ours, theirs = ({name: score for name, _, score in method.sequence_scores()} for method in (better, worse))
    return Verdict(
        comparison.claim,
        better.splits[0].mma_score - worse.splits[0].mma_score,
        sum(ours[name] > theirs[name] for name in ours),
        len(ours),
    )


def _untrained(model: AblationModel, runs: Path) -> str:
    return f"there are no weights of {', '.join(missing_runs(model, runs))} in {runs.name}"
