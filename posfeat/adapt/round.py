"""One round: examined and split photos -> tuned weights. Every step leaves a file, and is not done again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from posfeat.adapt.blend import Mixture, blended, choose_share
from posfeat.adapt.copies import without_copies
from posfeat.adapt.generic import Generic
from posfeat.adapt.measure import Measured, Numbers, chosen_pairs, measure, rendered_mma, rendered_pairs
from posfeat.adapt.options import AdaptOptions
from posfeat.adapt.place_split import PlaceSplit, pairs_within, split_by_place
from posfeat.adapt.prepare import prepare_photos, told_of_tones
from posfeat.adapt.recipe import StageName
from posfeat.adapt.source import evenly
from posfeat.adapt.suitability import examine, require_photos
from posfeat.adapt.tune import Report, StageResult, TuningPhotos, tune_stage
from posfeat.adapt.verdict import merit
from posfeat.benchmarks.report import write_text
from posfeat.data.pair_list import read_pair_list, write_pair_list
from posfeat.networks.checkpoint import ModelCard, load_checkpoint, save_checkpoint
from posfeat.types import DataError, Pair, View

ONE_PLACE = (
    "all photos show one place, so the held-out photos show it too: the numbers say how well the weights do there, and not "
    "on other places"
)


@dataclass(frozen=True)
class Events:
    """Whom to tell how it goes."""

    say: Callable[[str], None]
    bar: Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]
    tuning: Report | None = None

    @staticmethod
    def silent() -> Events:
        """Nobody is told."""
        return Events(lambda line: None, lambda title: nullcontext())


@dataclass(frozen=True)
class Parts:
    """Photos and pairs of a source, shared out."""

    views: dict[str, View]
    pairs: list[Pair]
    split: PlaceSplit
    warnings: list[str]

    def pairs_of(self, names: Sequence[str]) -> list[Pair]:
        """The usable pairs within a part."""
        return pairs_within(self.pairs, names)

    def views_of(self, names: Sequence[str]) -> list[View]:
        """The photos of a part, those that are still there."""
        return [self.views[name] for name in names if name in self.views]


@dataclass(frozen=True)
class Tuned:
    """The weights of a round, and how they came about."""

    weights: Path
    share: float  # of the way from the start to what tuning gave
    mixtures: dict[str, Mixture]  # of every share
    stages: dict[str, StageResult]


def share_out(
    views: list[View], folder: Path, options: AdaptOptions, events: Events, kept: PlaceSplit | None = None
) -> Parts:
    """Prepare, examine and split; ``kept`` is an earlier round's split, whose photos stay where they were."""
    require_photos(len(views), options.fewest_photos, "")
    lost: list[str] = []
    with events.bar("preparing photos") as progress:
        chosen = evenly(views, options.most_photos)
        prepared = prepare_photos(chosen, folder / "photos", options.longest_px, progress, lost.append)
    for line in lost:
        events.say(line)
    split_path, pairs_path = folder / "split.json", folder / "pairs.txt"
    if split_path.is_file():
        saved = json.loads(split_path.read_text(encoding="utf-8"))
        names = [tuple(saved[part]) for part in ("training", "validation", "held_out")]
        split = PlaceSplit(names[0], names[1], names[2], saved["by_place"])
        pairs = read_pair_list(pairs_path, prepared)
        return Parts({view.name: view for view in prepared}, pairs, split, saved["warnings"])
    parts = _examined(prepared, options, events, kept)
    write_pair_list(pairs_path, parts.pairs)
    saved = asdict(parts.split) | {"warnings": parts.warnings}
    write_text(split_path, json.dumps(saved, indent=1) + "\n")
    return parts


def _examined(prepared: list[View], options: AdaptOptions, events: Events, kept: PlaceSplit | None) -> Parts:
    different, copies = without_copies(prepared)
    warnings = told_of_tones(different)
    if copies:
        warnings.append(f"{len(copies)} photos are copies of others and are left out, such as {copies[0].name}")
    require_photos(len(different), options.fewest_photos, " that differ from one another" if copies else "")
    with events.bar("checking poses") as progress:
        material = examine(
            different, options.pairs, options.check, options.fewest_photos, options.trust_poses, progress
        )
    names = [view.name for view in material.views]
    split = split_by_place(names, material.common, material.pairs, options.split) if kept is None else kept
    if split is None:
        raise DataError(
            f"{len(material.pairs)} pairs of {len(names)} photos are too few to share out into training, validation and "
            "held-out photos; take more photos"
        )
    warnings += material.warnings + ([] if split.by_place else [ONE_PLACE])
    return Parts({view.name: view for view in prepared}, material.pairs, split, warnings)


def tune_round(
    start: Path,
    parts: Parts,
    folder: Path,
    options: AdaptOptions,
    minutes: float,
    generic: Generic,
    card: ModelCard,
    device: torch.device,
    events: Events,
) -> Tuned:
    """Tune description, then detector, then choose how far to go from the start."""
    split = parts.split
    photos = TuningPhotos(
        parts.pairs_of(split.training),
        parts.views_of(split.training),
        parts.pairs_of(split.validation),
        parts.views_of(split.validation),
        generic.to_learn,
    )
    times: dict[StageName, float] = {
        "description": minutes * (1 - options.tune.detection_time),
        "detection": minutes * options.tune.detection_time,
    }
    stages: dict[str, StageResult] = {}
    weights = start
    for name, time in times.items():
        if time <= 0:
            continue
        result = tune_stage(
            name, weights, photos, folder / name, options.tune, time, options.seed, device, card, events.tuning
        )
        stages[name] = result
        if result.best_score > result.start_score:
            weights = result.weights
    share, mixtures = _choose(start, weights, parts, generic, options, device, events)
    model = blended(start, weights, share, device)
    path = folder / "tuned.safetensors"
    notes = f"{share:.0%} of the way from the start to the tuned weights, chosen on validation photos"
    save_checkpoint(path, model, replace(card, notes=notes), half=True)
    return Tuned(path, share, {f"{key:.2f}": one for key, one in mixtures.items()}, stages)


def _choose(
    start: Path,
    tuned: Path,
    parts: Parts,
    generic: Generic,
    options: AdaptOptions,
    device: torch.device,
    events: Events,
) -> tuple[float, dict[float, Mixture]]:
    """How far to go from the start, by the validation photos and by what is forgotten of generic pictures."""
    if tuned == start:
        return 0.0, {0.0: Mixture(0.0, 1.0)}
    pairs = chosen_pairs(parts.pairs_of(parts.split.validation), options.measure.pairs)
    rendered = rendered_pairs(generic.to_judge, options.measure.rendered_pairs, options.tune.height, options.tune.width)
    first: list[tuple[Numbers, float]] = []

    def mixture_of(share: float) -> Mixture:
        model = blended(start, tuned, share, device)
        with events.bar(f"choosing the mixture: {share:.0%} tuned") as progress:
            numbers = measure(model, pairs, [], options.measure, progress).numbers
        mma = rendered_mma(model, rendered)
        first.append((numbers, mma))
        return Mixture(merit(numbers, first[0][0]), mma / max(first[0][1], 1e-9))

    return choose_share(mixture_of, generic.shows * options.tune.most_forgotten)


def measure_held_out(
    weights: Path, parts: Parts, options: AdaptOptions, device: torch.device, events: Events, title: str
) -> Measured:
    """The numbers of the report, on photos that nothing was tuned or chosen on."""
    names = parts.split.held_out
    pairs = chosen_pairs(parts.pairs_of(names), options.measure.pairs)
    size = (options.tune.height, options.tune.width)
    paths = [view.image_path for view in parts.views_of(names)]
    rendered = rendered_pairs(paths, options.measure.rendered_pairs, *size)
    with events.bar(title) as progress:
        return measure(load_checkpoint(weights, device), pairs, rendered, options.measure, progress)
