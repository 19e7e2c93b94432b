"""One stage of tuning: from a checkpoint to better ones, judged on validation pairs as it goes; goes on where it stopped.

Batch norms keep the statistics that the start weights were trained with: those of a few photos of one kind make the weights
worse at once, on these photos too, and are most of what would be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from posfeat.adapt.recipe import (
    RecipeOptions,
    StageName,
    description_losses,
    detection_losses,
    geometry,
    look,
    loop_options,
    rendering,
)
from posfeat.data.augment import PhotometricOptions
from posfeat.data.geometric import GeometricOptions
from posfeat.data.loader import PairLoader
from posfeat.data.pair_sample import PairSource
from posfeat.data.photo_source import PhotoSource
from posfeat.data.posed_source import PosedSource
from posfeat.data.synthetic import SyntheticOptions
from posfeat.networks.checkpoint import ModelCard, load_checkpoint
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import options_to_mapping
from posfeat.training.description_stage import DescriptionStage
from posfeat.training.detection_stage import DetectionStage
from posfeat.training.distributed import Workers
from posfeat.training.loop import Progress, Trainer, train
from posfeat.training.run_folder import RunFolder, write_text
from posfeat.training.stage import Stage
from posfeat.training.validation import ValidationOptions, validate
from posfeat.types import Pair, PairBatch, View

_VALIDATION_SEED = 11
_KEYPOINTS = 512
_DONE = "done.json"
_NO_BASELINE = {"description": 0.3, "detection": 0.5}

Report = Callable[[StageName, Progress, float], None]  # the last: validation's gain over the start, in its score


@dataclass(frozen=True)
class TuningPhotos:
    """What is trained on, and what chooses; generic pictures are of anything, against forgetting."""

    training_pairs: Sequence[Pair]
    training_views: Sequence[View]
    validation_pairs: Sequence[Pair]
    validation_views: Sequence[View]
    generic: Sequence[Path]


class TunedDescription(DescriptionStage):
    """The description stage with fixed statistics."""

    def prepare(self) -> None:
        super().prepare()
        fix_statistics(self.model)


class TunedDetection(DetectionStage):
    """The detection stage with fixed statistics."""

    def prepare(self) -> None:
        super().prepare()
        fix_statistics(self.model)


@dataclass(frozen=True)
class StageResult:
    """The best weights of a stage by validation, and how they score beside the start."""

    weights: Path
    start_score: float
    best_score: float


def tune_stage(
    name: StageName,
    start: Path,
    photos: TuningPhotos,
    folder: Path,
    recipe: RecipeOptions,
    minutes: float,
    seed: int,
    device: torch.device,
    card: ModelCard,
    report: Report | None = None,
) -> StageResult:
    """Tune description or detector of the start weights into ``folder``."""
    done = _finished(folder, minutes)
    if done is not None:
        return done
    rendered, posed = validation_batches(photos, recipe)
    judged = ValidationOptions(keypoints=_KEYPOINTS, pictures=0)

    def judge(model: PoSFeat, step: int = 0) -> dict[str, float]:
        return validate(model, rendered, posed, judged, with_detector=True)

    torch.manual_seed(seed)
    stage = _stage(name, load_checkpoint(start, device))
    before = _start_score(folder, stage.model, judge)
    stage.prepare()
    sources, weights = training_sources(name, photos, recipe)
    options = loop_options(recipe, name, minutes, device)

    size = image_size(photos.training_views, recipe)

    def batches(first_step: int) -> Iterator[PairBatch]:
        return iter(PairLoader(sources, weights, options.batch_size, *size, seed, first_step, workers=1, raw=True))

    run = RunFolder(folder, lambda step, numbers: card)
    run.begin(json.dumps(options_to_mapping(recipe), indent=1), {}, tensorboard=False)
    trainer = Trainer(stage, batches, judge, options, run, Workers(device=device), seed, better=validation_score)

    def tell(progress: Progress) -> None:
        if report is not None:
            report(name, progress, validation_score(progress.validation) - before if progress.validation else 0.0)

    train(trainer, tell, resume=True)
    result = StageResult(folder / "best.safetensors", before, _best_score(folder))
    scores = {"minutes": minutes, "start_score": before, "best_score": result.best_score}
    write_text(folder / _DONE, json.dumps(scores) + "\n")
    return result


def validation_score(numbers: dict[str, float]) -> float:
    """The number by which weights are compared while tuning: right shares of posed and of rendered matches."""
    return numbers.get("posed_3px", 0.0) + numbers.get("mma", 0.0)


def training_sources(
    name: StageName, photos: TuningPhotos, recipe: RecipeOptions
) -> tuple[list[PairSource], list[float]]:
    """Posed pairs, rendered views of the same photos, and of generic pictures."""
    drawn = rendering(_NO_BASELINE[name])
    own = PhotoSource([view.image_path for view in photos.training_views], drawn, look(recipe))
    sources: list[PairSource] = [PosedSource(photos.training_pairs, geometry(), look(recipe)), own]
    rest = 1 - recipe.posed_share
    return [*sources, PhotoSource(photos.generic, drawn)], [recipe.posed_share, rest / 2, rest / 2]


def image_size(views: Sequence[View], recipe: RecipeOptions) -> tuple[int, int]:
    """Height and width of training images: upright where most photos are, lest crops of two photos hardly overlap."""
    upright = sum(view.camera.height > view.camera.width for view in views)
    return (recipe.width, recipe.height) if 2 * upright > len(views) else (recipe.height, recipe.width)


def fix_statistics(model: PoSFeat) -> None:
    """Batch norms normalise by what they know, and learn their factors only."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def validation_batches(photos: TuningPhotos, recipe: RecipeOptions) -> tuple[list[PairBatch], list[PairBatch]]:
    """Rendered and posed pairs of the validation photos, the same each time."""
    plain, upright = PhotometricOptions(strength=0.0), GeometricOptions(strength=0.0)
    paths = [view.image_path for view in photos.validation_views]
    sources = (
        PhotoSource(paths, SyntheticOptions(correspondences=True), look(recipe)),
        PosedSource(photos.validation_pairs, upright, plain),
    )
    batch = min(8, recipe.validation_pairs)
    steps = recipe.validation_pairs // batch
    size = image_size(photos.validation_views, recipe)
    rendered, posed = (
        list(PairLoader([one], None, batch, *size, _VALIDATION_SEED, num_steps=steps)) for one in sources
    )
    return rendered, posed


def _stage(name: StageName, model: PoSFeat) -> Stage:
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if name == "description":
        return TunedDescription(model, description_losses())
    return TunedDetection(model, detection_losses())


def _finished(folder: Path, minutes: float) -> StageResult | None:
    """What came of a stage that had its whole time."""
    path = folder / _DONE
    if not path.is_file():
        return None
    done = json.loads(path.read_text(encoding="utf-8"))
    if done["minutes"] < minutes:
        return None
    return StageResult(folder / "best.safetensors", done["start_score"], done["best_score"])


def _start_score(folder: Path, model: PoSFeat, judge: Callable[[PoSFeat], dict[str, float]]) -> float:
    """The start's score, measured once: a resumed run reads it."""
    path = folder / "start.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        model.eval()
        with torch.no_grad():
            numbers = judge(model)
        path.write_text(json.dumps(numbers), encoding="utf-8")
    return validation_score(json.loads(path.read_text(encoding="utf-8")))


def _best_score(folder: Path) -> float:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return max((validation_score(line) for line in lines if line["kind"] == "validation"), default=0.0)
