"""The paper's ablations as a plan: one YAML file (configs/plans/ablation.yaml) and a scale become training runs and models.

Each run is a complete set of options for ``posfeat train``: the scale's base configuration, then what the scale changes for
all runs, then what the run itself changes. The joint stage gets the losses of the two stages that it is compared with.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from posfeat.benchmarks.ablation import SIFT, WEIGHTS, Ablation, AblationModel, Comparison, GridCell
from posfeat.options import apply_overrides, check_options, described, options_from_mapping
from posfeat.training.run import RunOptions, StageName
from posfeat.types import OptionsError

Length = Literal["start", "description", "detection", "joint"]
SHORTEST_WARMUP_SHARE = 10  # a run warms up for at most one in so many of its steps


@dataclass(frozen=True)
class RunSpec:
    """One training run of a plan."""

    stage: StageName = described("description", "what is trained")
    start: str | None = described(None, "the run whose last weights it starts from")
    length: Length | None = described(None, "which of the scale's lengths it has; default that of its stage")
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "what differs from the other runs"})

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class ScaleOptions:
    """How long the runs are and what they are based on."""

    base: str = described("", "a configuration of posfeat train, relative to the plan's file")
    detection_base: str | None = described(None, "another configuration for the detection stage")
    start_steps: int = described(0, "steps of the run that the others start from; 0: there is none", low=0)
    description_steps: int = described(1, "steps of the description stage", low=1)
    detection_steps: int = described(1, "steps of the detection stage", low=1)
    minutes: float | None = described(
        None, "stop a description run after this much time, shorter runs after their share of it", low=0
    )
    keypoints: int = described(8192, "the most keypoints of an image in the evaluation", low=1)
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "changes of the base for all runs"})

    def __post_init__(self) -> None:
        check_options(self)

    def steps(self, length: Length) -> int:
        """How many steps a run of this length has."""
        return {
            "start": self.start_steps,
            "description": self.description_steps,
            "detection": self.detection_steps,
            "joint": self.description_steps + self.detection_steps,
        }[length]


@dataclass(frozen=True)
class GridSpec:
    """Table 4 as multiples of the base configuration's N_line and w_patch."""

    line_points: tuple[float, ...] = described((), "multiples of N_line")
    window: tuple[float, ...] = described((), "multiples of w_patch")
    centre: str = described("", "the model that both multiples 1 stand for")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class AblationPlan:
    """What is trained at which scale, and what is made of it."""

    scale: ScaleOptions
    bases: dict[StageName, dict[str, Any]]  # the base configuration of each stage, with what the scale changes
    runs: dict[str, RunSpec]
    ablation: Ablation


@dataclass(frozen=True)
class PlannedRun:
    """A run ready to be trained once the one that it starts from is done."""

    name: str
    stage: StageName
    start: str | None
    options: RunOptions


def read_plan(path: Path, scale_name: str, overrides: Sequence[str] = ()) -> AblationPlan:
    """The plan at one of its scales, whose options ``key=value`` texts change."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        scales = content["scales"]
        if scale_name not in scales:
            raise OptionsError(f"{path} has no scale {scale_name}: {', '.join(scales)}")
        changed = apply_overrides(scales[scale_name], list(overrides), yaml.safe_load)
        scale = options_from_mapping(ScaleOptions, changed, "scale ")
        base = _read_base(path.parent / scale.base, scale)
        detection = base if scale.detection_base is None else _read_base(path.parent / scale.detection_base, scale)
        runs = {name: options_from_mapping(RunSpec, spec, f"run {name} ") for name, spec in content["runs"].items()}
        models = [options_from_mapping(AblationModel, model, "model ") for model in content["models"]]
        comparisons = [options_from_mapping(Comparison, one, "comparison ") for one in content["comparisons"]]
        grid = options_from_mapping(GridSpec, content["grid"], "grid ")
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise OptionsError(f"{path} is no readable plan: {' '.join(str(error).split())}") from error
    bases: dict[StageName, dict[str, Any]] = {"description": base, "detection": detection, "joint": base}
    cells = _add_grid(grid, base, runs, models)
    _check_names(path, runs, models)
    return AblationPlan(scale, bases, runs, Ablation(scale_name, models, cells, comparisons))


def planned_runs(
    plan: AblationPlan, models: Sequence[AblationModel], folder: Path, changes: Mapping[str, Any] | None = None
) -> list[PlannedRun]:
    """The runs that the models need, each after the one that it starts from; ``changes`` hold for all of them."""
    ordered: dict[str, PlannedRun] = {}

    def add(name: str) -> None:
        if name in ordered:
            return
        start = _start_of(plan, name)
        if start is not None:
            add(start)
        ordered[name] = PlannedRun(name, plan.runs[name].stage, start, _options_of(plan, name, folder, changes or {}))

    for model in models:
        for run in model.runs:
            add(run)
    return list(ordered.values())


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings with the other's values where both have one."""
    result = copy.deepcopy(dict(one))
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result


def _read_base(path: Path, scale: ScaleOptions) -> dict[str, Any]:
    import yaml

    return merged(yaml.safe_load(path.read_text(encoding="utf-8")) or {}, scale.options)


def _start_of(plan: AblationPlan, name: str) -> str | None:
    start = plan.runs[name].start
    return None if start is not None and _steps(plan, start) == 0 else start


def _steps(plan: AblationPlan, name: str) -> int:
    spec = plan.runs[name]
    return plan.scale.steps(spec.length or spec.stage)


def _options_of(plan: AblationPlan, name: str, folder: Path, changes: Mapping[str, Any]) -> RunOptions:
    spec, steps, start = plan.runs[name], _steps(plan, name), _start_of(plan, name)
    mapping = merged(merged(plan.bases[spec.stage], spec.options), changes)
    joint = mapping.setdefault("joint", {})
    for stage, base in plan.bases.items():  # equal losses on both sides of the comparison
        if stage != "joint":
            joint[stage] = merged(base.get(stage, {}), joint.get(stage, {}))
    loop = mapping.setdefault("loop", {})
    loop |= {
        "steps": steps,
        "validate_every": steps,
        "warmup": min(loop.get("warmup", 0), steps // SHORTEST_WARMUP_SHARE),
    }
    if plan.scale.minutes is not None:
        loop["minutes"] = plan.scale.minutes * steps / plan.scale.description_steps
    mapping["name"] = name
    if start is not None:
        mapping["start"] = {"weights": str(folder / start / WEIGHTS), "note": f"the run {start}"}
    return options_from_mapping(RunOptions, mapping)


def _add_grid(
    grid: GridSpec, base: Mapping[str, Any], runs: dict[str, RunSpec], models: list[AblationModel]
) -> list[GridCell]:
    """Runs and models of the grid's outer cells; the middle one is a model that there is already."""
    search = options_from_mapping(RunOptions, base).description.search
    centre = next((model for model in models if model.name == grid.centre), None)
    if centre is None:
        raise OptionsError(f"the grid's centre {grid.centre!r} is none of the plan's models")
    description = runs[centre.keypoints].start or centre.keypoints
    cells = []
    for row, line_factor in enumerate(grid.line_points):
        for column, window_factor in enumerate(grid.window):
            line_points, window = round(search.line_points * line_factor), round(search.window * window_factor, 6)
            model = centre.name
            if (line_factor, window_factor) != (1, 1):
                model = f"N_line {line_points} w_patch {window:g}"
                run = f"grid_{line_points}_{window:g}"
                search_changes = {"description": {"search": {"line_points": line_points, "window": window}}}
                described_by = runs[description]
                runs[run] = dataclasses.replace(described_by, options=merged(described_by.options, search_changes))
                runs[f"{run}_detector"] = dataclasses.replace(runs[centre.keypoints], start=run)
                models.append(
                    AblationModel(
                        model, f"{run}_detector", f"{run}_detector", "grid", f"{centre.name} with another search"
                    )
                )
            cells.append(GridCell(model, line_points, window, row, column))
    return cells


def _check_names(path: Path, runs: Mapping[str, RunSpec], models: Sequence[AblationModel]) -> None:
    named = [spec.start for spec in runs.values() if spec.start] + [run for model in models for run in model.runs]
    unknown = sorted(set(named) - set(runs))
    if unknown:
        raise OptionsError(f"{path} speaks of a run {unknown[0]} that it does not describe")
    names = [model.name for model in models]
    if len(set(names)) < len(names) or any("=" in name or name == SIFT for name in names):
        raise OptionsError(f"{path}: every model needs a name of its own, without '='")
