"""The one loop: draw, step, clip, schedule, average, log, validate, save, resume.

Everything random follows from the seed and the step number, so a run that was killed goes on from its last save as if
nothing had happened; on one process to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from posfeat.data.loader import normalised
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described
from posfeat.training.distributed import Workers, item_generators
from posfeat.training.run_folder import RunFolder
from posfeat.training.stage import Stage
from posfeat.training.weight_average import WeightAverage
from posfeat.types import OptionsError, PairBatch, PosfeatError


class DivergedError(PosfeatError):
    """Training produced a number that is not finite."""


@dataclass(frozen=True)
class LoopOptions:
    """How long and how fast a network learns."""

    steps: int = described(100_000, "number of steps", low=1)
    minutes: float | None = described(
        None, "stop after this much time of training, saved and validated; the cosine schedule ends there too", low=0
    )
    batch_size: int = described(6, "pairs a step, over all processes", low=1)
    accumulate: int = described(1, "parts into which a batch is split to save memory", low=1)
    optimiser: Literal["sgd", "adamw"] = described("sgd", "SGD with Nesterov momentum (paper) or AdamW")
    learning_rate: float = described(1e-3, "learning rate", low=0)
    momentum: float = described(0.9, "momentum of SGD", low=0, high=1)
    weight_decay: float = described(0.0, "weight decay", low=0)
    schedule: Literal["constant", "step", "cosine"] = described("constant", "what the rate does after warm-up")
    milestones: tuple[int, ...] = described((), "steps at which the step schedule divides the rate by 10")
    warmup: int = described(0, "steps over which the rate rises from 0", low=0)
    clip: float | None = described(None, "largest norm of the gradient", low=0)
    average: float = described(
        0.0, "decay of the averaged weights that are validated and saved; 0: none", low=0, high=1
    )
    precision: Literal["fp32", "bf16", "fp16"] = described("fp32", "arithmetic of the networks' convolutions")
    log_every: int = described(10, "steps between lines of the log", low=1)
    validate_every: int = described(1000, "steps between validations", low=1)
    patience: int | None = described(None, "stop early after so many validations without a better one", low=1)
    save_every: int = described(500, "steps between saves of the whole state", low=1)

    def __post_init__(self) -> None:
        check_options(self)


class Progress(NamedTuple):
    """What the loop reports after a step."""

    step: int
    steps: int
    metrics: dict[str, float]
    validation: dict[str, float]
    seconds_left: float


@dataclass(frozen=True)
class Trainer:
    """The parts of a run, wired by hand: see training/run.py."""

    stage: Stage
    batches: Callable[[int], Iterator[PairBatch]]  # from this step on
    validate: Callable[[PoSFeat, int], dict[str, float]]
    options: LoopOptions
    folder: RunFolder
    workers: Workers
    seed: int
    better: Callable[[dict[str, float]], float]  # of two validations, the better one has the larger value


class _State:
    """What changes from step to step, and is saved."""

    def __init__(self, trainer: Trainer) -> None:
        options = trainer.options
        self.parameters = [p for p in trainer.stage.parameters() if p.requires_grad]
        self.optimiser = build_optimiser(self.parameters, options)
        self.average = WeightAverage(trainer.stage.model, options.average)
        self.scaler = torch.amp.GradScaler(trainer.workers.device.type, enabled=options.precision == "fp16")
        self.step, self.best = 0, -math.inf
        self.waited = 0  # validations since the best one
        self.seconds = 0.0  # of training so far, earlier sessions' included
        self.validation: dict[str, float] = {}

    def as_dict(self, trainer: Trainer) -> dict[str, Any]:
        return {
            "model": trainer.stage.model.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "waited": self.waited,
            "validation": self.validation,
        }

    def restore(self, trainer: Trainer, saved: dict[str, Any]) -> None:
        trainer.stage.model.load_state_dict(saved["model"])
        self.average.load_state_dict(saved["average"])
        self.optimiser.load_state_dict(saved["optimiser"])
        self.scaler.load_state_dict(saved["scaler"])
        torch.set_rng_state(saved["rng"])
        self.step, self.best, self.validation = saved["step"], saved["best"], saved["validation"]
        self.seconds, self.waited = saved["seconds"], saved.get("waited", 0)


def train(trainer: Trainer, report: Callable[[Progress], None] | None = None, resume: bool = False) -> dict[str, float]:
    """Run to the end (or that of ``minutes``, or of ``patience``); returns the last validation."""
    options, state = trainer.options, _State(trainer)
    share = options.batch_size // trainer.workers.world_size
    if share % options.accumulate:
        raise OptionsError(f"loop.accumulate={options.accumulate} parts of a batch of {share} would not be equal")
    if resume and (saved := trainer.folder.load_state(trainer.workers.is_main)) is not None:
        state.restore(trainer, saved)
    stage: nn.Module = trainer.stage
    if trainer.workers.world_size > 1:
        networks = trainer.stage.model.options  # line-to-window leaves a coarse map without gradient
        coarse = networks.compact_description.coarse or networks.paper_description.coarse
        stage = DistributedDataParallel(stage, broadcast_buffers=False, find_unused_parameters=coarse)
    budget = math.inf if options.minutes is None else options.minutes * 60
    first_step, before, begun = state.step, state.seconds, time.monotonic()
    batches = trainer.batches(state.step)
    while state.step < options.steps and not _gave_up(state, trainer):
        metrics = _step(trainer, stage, state, next(batches), state.seconds / budget)
        state.step += 1
        elapsed = time.monotonic() - begun
        state.seconds = before + elapsed if math.isinf(budget) else _agree(before + elapsed, trainer.workers)
        over = state.seconds > budget
        last = over or state.step == options.steps
        if last or state.step % options.validate_every == 0:
            _validate(trainer, state)
        if last or state.step % options.save_every == 0 or state.step % options.validate_every == 0:
            trainer.folder.save_state(state.as_dict(trainer), trainer.workers.is_main)
        if last or state.step % options.log_every == 0:
            left = elapsed / (state.step - first_step) * (options.steps - state.step)
            left = min(left, budget - state.seconds)
            trainer.folder.log(state.step, metrics, trainer.workers.is_main)
            if report is not None:
                report(Progress(state.step, options.steps, metrics, state.validation, max(0.0, left)))
        if over:
            break
    return state.validation


def _step(trainer: Trainer, stage: nn.Module, state: _State, batch: PairBatch, time_share: float) -> dict[str, float]:
    """One update; the batch is this process's share."""
    options, workers = trainer.options, trainer.workers
    rate = learning_rate(state.step, options, time_share)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    state.optimiser.zero_grad(set_to_none=True)
    generators = item_generators(trainer.seed, state.step, workers.items(options.batch_size))
    metrics: dict[str, float] = {}
    parts = split_batch(batch, options.accumulate)
    share = len(generators) // len(parts)
    for number, part in enumerate(parts):
        waits = number + 1 < len(parts) and isinstance(stage, DistributedDataParallel)
        with stage.no_sync() if waits else nullcontext():  # type: ignore[operator]
            with _autocast(options, workers.device):
                own = generators[number * share : (number + 1) * share]
                result = stage(to_device(part, workers.device), own, state.step)
            loss = float(result.loss.detach())
            if not math.isfinite(loss):
                raise _diverged(trainer, state, batch, f"the loss is {loss}")
            state.scaler.scale(result.loss / len(parts)).backward()
        for key, value in ({"loss": loss} | result.metrics).items():
            metrics[key] = metrics.get(key, 0.0) + value / len(parts)
    state.scaler.unscale_(state.optimiser)
    norm = float(nn.utils.clip_grad_norm_(state.parameters, options.clip or math.inf))
    overflowed = options.precision == "fp16" and state.scaler.get_scale() >= 1  # the scaler lowers its scale, goes on
    if not math.isfinite(norm) and not overflowed:
        raise _diverged(trainer, state, batch, f"the gradient's norm is {norm} at loss {metrics['loss']:.4g}")
    state.scaler.step(state.optimiser)
    state.scaler.update()
    state.average.update(trainer.stage.model)
    return metrics | {"gradient_norm": norm, "learning_rate": rate}


def _validate(trainer: Trainer, state: _State) -> None:
    """Judge the averaged weights, keep them as the last, and as the best if they are."""
    with state.average.applied_to(trainer.stage.model) as model:
        if trainer.workers.is_main:
            model.eval()
            with torch.no_grad(), _autocast(trainer.options, trainer.workers.device):
                state.validation = trainer.validate(model, state.step)
            value = trainer.better(state.validation)
            state.waited += 1
            trainer.folder.log(state.step, state.validation, True, kind="validation")
            trainer.folder.save_weights(model, state.step, "last", state.validation)
            if value > state.best or not state.validation:  # nothing to judge by: the last weights are the best known
                state.best, state.waited = value, 0
                trainer.folder.save_weights(model, state.step, "best", state.validation)
    trainer.stage.prepare()


def _gave_up(state: _State, trainer: Trainer) -> bool:
    """Whether validation has not got better for too long; only the main process validates, and tells the others."""
    patience, workers = trainer.options.patience, trainer.workers
    if patience is None:
        return False
    return _agree(float(state.waited), workers) >= patience


def build_optimiser(parameters: list[nn.Parameter], options: LoopOptions) -> torch.optim.Optimizer:
    """The optimiser that the options name; weight decay spares biases and norms."""
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if options.optimiser == "sgd":
        return torch.optim.SGD(groups, options.learning_rate, options.momentum, nesterov=options.momentum > 0)
    return torch.optim.AdamW(groups, options.learning_rate)


def learning_rate(step: int, options: LoopOptions, time_share: float = 0.0) -> float:
    """The rate of a step (counted from 0), when this share of the time allowed is over."""
    rate = options.learning_rate * min(1.0, (step + 1) / max(1, options.warmup))
    if options.schedule == "step":
        return rate * 0.1 ** sum(step >= milestone for milestone in options.milestones)
    if options.schedule == "cosine":
        share = max(time_share, (step - options.warmup) / max(1, options.steps - options.warmup), 0.0)
        return rate * (0.5 + 0.5 * math.cos(math.pi * min(1.0, share)))
    return rate


def split_batch(batch: PairBatch, parts: int) -> list[PairBatch]:
    """The batch in equal parts, in order."""
    size = batch.image0.shape[0] // parts
    return [_map_batch(batch, lambda value, p=part: value[p * size : (p + 1) * size]) for part in range(parts)]  # type: ignore[misc]


def to_device(batch: PairBatch, device: torch.device) -> PairBatch:
    """The batch on the device, its images as network input in channels-last layout."""
    moved = batch if device.type == "cpu" else _map_batch(batch, lambda value: value.to(device, non_blocking=True))
    if moved.image0.dtype == torch.uint8:
        moved = normalised(moved)
    layout = torch.channels_last
    return replace(
        moved,
        image0=moved.image0.contiguous(memory_format=layout),
        image1=moved.image1.contiguous(memory_format=layout),
    )


def _map_batch(batch: PairBatch, change: Callable[[Any], Any]) -> PairBatch:
    values = {field.name: vars(batch)[field.name] for field in fields(batch)}
    tensors: dict[str, Any] = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
    return replace(batch, **tensors)


def _autocast(options: LoopOptions, device: torch.device) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.precision)
    return torch.autocast(device.type, dtype) if dtype is not None else nullcontext()


def _agree(value: float, workers: Workers) -> float:
    """The largest value of all processes: clocks differ, but all must go on at one rate and stop at one step."""
    if workers.world_size == 1:
        return value
    longest = torch.tensor(value, device=workers.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return float(longest)


def _diverged(trainer: Trainer, state: _State, batch: PairBatch, what: str) -> DivergedError:
    """An error that says what broke and where to look."""
    model = trainer.stage.model
    broken = [name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all())]
    broken += [
        f"gradient of {n}"
        for n, p in model.named_parameters()
        if p.grad is not None and not bool(p.grad.isfinite().all())
    ]
    images = all(bool(torch.isfinite(image).all()) for image in (batch.image0, batch.image1))
    where = f"first in {broken[0]}" if broken else "all weights are finite"
    return DivergedError(
        f"training stopped at step {state.step}: {what}; {where}; images are {'finite' if images else 'NOT finite'}; "
        f"pairs {', '.join(batch.names[:4])}; lower loop.learning_rate or set loop.clip, then --resume {trainer.folder.path}"
    )
