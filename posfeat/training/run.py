"""A run from its options: build the parts by hand, pass them on, train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from posfeat.networks.checkpoint import ModelCard, load_checkpoint, load_imagenet_encoder
from posfeat.networks.description import PaperDescription
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.options import check_options, described, nested, options_from_mapping, options_to_mapping
from posfeat.training.description_stage import DescriptionOptions, DescriptionStage
from posfeat.training.detection_stage import DetectionOptions, DetectionStage
from posfeat.training.distributed import Workers
from posfeat.training.joint_stage import JointOptions, JointStage
from posfeat.training.loop import LoopOptions, Progress, Trainer, train
from posfeat.training.run_folder import RunFolder
from posfeat.training.sources import DataOptions, open_sources, training_batches, validation_batches
from posfeat.training.stage import Stage
from posfeat.training.validation import DrawMatches, ValidationOptions, validate
from posfeat.types import CheckpointError, OptionsError, PairBatch

StageName = Literal["description", "detection", "joint"]
SETTABLE_ON_RESUME = ("steps", "minutes", "log_every", "validate_every", "save_every")


@dataclass(frozen=True)
class StartOptions:
    """What the networks start from."""

    weights: str | None = described(None, "a checkpoint to go on from (the detection stage needs one)")
    description: str | None = described(None, "a checkpoint whose description network replaces that of ``weights``")
    imagenet: str | None = described(None, "ImageNet weights for the paper's encoder")
    note: str = described("", "what these weights are, for the model card")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class RunOptions:
    """Everything that decides a run."""

    name: str = described("", "name of the model on its card")
    seed: int = described(0, "seed of weights, data and draws", low=0)
    model: ModelOptions = nested(ModelOptions, "networks")
    start: StartOptions = nested(StartOptions, "what they start from")
    data: DataOptions = nested(DataOptions, "images")
    description: DescriptionOptions = nested(DescriptionOptions, "the description stage's losses")
    detection: DetectionOptions = nested(DetectionOptions, "the detection stage's losses")
    joint: JointOptions = nested(JointOptions, "the joint stage's losses")
    validation: ValidationOptions = nested(ValidationOptions, "what is measured on held-out pairs")
    loop: LoopOptions = nested(LoopOptions, "optimiser, schedule, length")

    def __post_init__(self) -> None:
        check_options(self)


def read_run_options(path: Path, overrides: list[str]) -> RunOptions:
    """Options from a YAML file and ``key=value`` strings."""
    import yaml

    from posfeat.options import apply_overrides

    try:
        mapping = yaml.safe_load(path.read_text()) or {}
        mapping.pop("stage", None)  # the config.yaml of a run's folder names its stage
        return options_from_mapping(RunOptions, apply_overrides(mapping, overrides, yaml.safe_load))
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise OptionsError(f"{path} is no readable configuration: {' '.join(str(error).split())}") from error


def run_stage(
    stage_name: StageName,
    options: RunOptions,
    folder: Path,
    workers: Workers,
    resume: bool = False,
    report: Callable[[Progress], None] | None = None,
    draw: DrawMatches | None = None,
) -> dict[str, float]:
    """Train one stage into ``folder``; returns the last validation."""
    import yaml

    check_same_run(stage_name, options, folder, resume)
    torch.manual_seed(options.seed)
    sources = open_sources(options.data)
    stage = build_stage(stage_name, options)
    stage.to(workers.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    stage.prepare()
    rendered, posed = _validation_data(options, sources, workers)
    run_folder = RunFolder(folder, lambda step, numbers: _card(stage_name, options, sources.fingerprint, step, numbers))
    if workers.is_main:
        config = {"stage": stage_name} | options_to_mapping(options)
        run_folder.begin(yaml.safe_dump(config, sort_keys=False), sources.fingerprint, tensorboard=True)

    def judge(model: PoSFeat, step: int) -> dict[str, float]:
        keep = (lambda name, rgb: run_folder.picture(step, name, rgb)) if draw is not None else None
        return validate(model, rendered, posed, options.validation, stage_name != "description", keep, draw)

    def batches(first_step: int) -> Iterator[PairBatch]:
        return training_batches(sources, options.data, options.loop.batch_size, options.seed, first_step, workers)

    trainer = Trainer(stage, batches, judge, options.loop, run_folder, workers, options.seed, better=total_score)
    result = train(trainer, report, resume)
    if isinstance(stage, DetectionStage):
        stage.check_frozen()
    return result


def build_stage(stage_name: StageName, options: RunOptions) -> Stage:
    """The stage with its model, started as the options say."""
    model = _starting_model(options)
    if stage_name == "description":
        return DescriptionStage(model, options.description)
    if stage_name == "joint":
        return JointStage(model, options.joint)
    if options.start.weights is None:
        raise OptionsError("the detection stage trains on a frozen description: give its checkpoint in start.weights")
    return DetectionStage(model, options.detection)


def total_score(validation: dict[str, float]) -> float:
    """The number by which two validations are compared: matching accuracy, and where there is one the detector's."""
    names = ("dense_4px", "posed_3px") if "dense_4px" in validation else ("mma", "posed_3px")
    return sum(validation.get(name, 0.0) for name in names)


def check_same_run(stage_name: StageName, options: RunOptions, folder: Path, resume: bool) -> None:
    """Refuse to overwrite a run, or to resume one with other options."""
    import yaml

    config = folder / "config.yaml"
    if not config.exists():
        return
    if not resume:
        raise OptionsError(f"{folder} already holds a run: resume it with --resume, or choose another folder")
    stage = yaml.safe_load(config.read_text()).get("stage")
    # read as options: those that are newer than the run have their defaults, as if it had been asked for these
    before = {"stage": stage} | options_to_mapping(read_run_options(config, []))
    now = {"stage": stage_name} | options_to_mapping(options)
    for key in SETTABLE_ON_RESUME:
        before["loop"].pop(key)
        now["loop"].pop(key)
    changed = [key for key in now if now[key] != before[key]]
    if changed:
        raise OptionsError(f"{folder} was run with another {changed[0]}; resume with its own config.yaml")


def _starting_model(options: RunOptions) -> PoSFeat:
    model = build_model(options.model)
    start = options.start
    if start.weights is not None:
        model.load_state_dict(_same_networks(start.weights, options.model).state_dict())
    if start.description is not None:
        described_by = _same_networks(start.description, options.model)
        model.description.load_state_dict(described_by.description.state_dict())
    if start.imagenet is not None:
        if not isinstance(model.description, PaperDescription):
            raise OptionsError("start.imagenet is for the paper's encoder; the compact network has none")
        load_imagenet_encoder(start.imagenet, model.description)
    return model


def _same_networks(path: str, wanted: ModelOptions) -> PoSFeat:
    """The model of a checkpoint, which must have the networks that the options ask for."""
    loaded = load_checkpoint(Path(path))
    if loaded.options != wanted:
        raise CheckpointError(f"{path} holds other networks than the options ask for: {loaded.options}")
    return loaded


def _validation_data(options: RunOptions, sources: Any, workers: Workers) -> tuple[list[PairBatch], list[PairBatch]]:
    if not workers.is_main:
        return [], []
    judged = options.validation
    return validation_batches(sources, options.data, judged.pairs, judged.posed_pairs, min(8, judged.pairs))


def _card(
    stage_name: StageName, options: RunOptions, fingerprint: dict[str, Any], step: int, numbers: dict[str, float]
) -> ModelCard:
    measured = ", ".join(f"{key} {value:.4f}" for key, value in numbers.items())
    data = f"photos {list(options.data.photos)}, posed {list(options.data.posed)}, {fingerprint}"
    start = (
        f"; started from {options.start.note or options.start.weights or options.start.imagenet or 'random weights'}"
    )
    recipe = f"posfeat train {stage_name}, {step} steps of {options.loop.batch_size} pairs{start}"
    name = options.name or f"{options.model.architecture}-{stage_name}"
    return ModelCard(name=name, trained=True, recipe=recipe, data=data, seed=options.seed, notes=measured)
