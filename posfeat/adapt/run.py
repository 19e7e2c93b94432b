"""Adapt features to somebody's own photos: poses, a split by place, numbers before, tuning, numbers after, and a verdict.

OUT.safetensors always holds the weights that are recommended: the tuned ones where they are better on held-out photos, and
otherwise a copy of the start. Everything else lies in the folder of the same name; a run that was stopped goes on from there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from posfeat import __version__
from posfeat.adapt.generic import Generic
from posfeat.adapt.measure import Measured, Numbers
from posfeat.adapt.options import AdaptOptions
from posfeat.adapt.registered import MOST_PHOTOS, registered_photos
from posfeat.adapt.report import model_card, write_adapt_report
from posfeat.adapt.round import Events, Parts, Tuned, measure_held_out, share_out, tune_round
from posfeat.adapt.source import is_plain_folder, read_posed_photos, reconstruct_photos
from posfeat.adapt.verdict import Verdict, judge, unchanged
from posfeat.benchmarks.report import write_text
from posfeat.data.images import IMAGE_SUFFIXES
from posfeat.networks.checkpoint import (
    DEFAULT_WEIGHTS,
    ModelCard,
    default_device,
    load,
    load_checkpoint,
    read_card,
    save_checkpoint,
    weights_digest,
)
from posfeat.options import options_to_mapping
from posfeat.pipeline.extract import list_images
from posfeat.types import DataError, OptionsError, View


@dataclass(frozen=True)
class Adapted:
    """How an adaptation went; ``weights`` are those to use."""

    weights: Path
    report: Path
    verdict: Verdict
    before: Numbers
    after: Numbers
    warnings: list[str]


def adapt_to(
    source: Path | str,
    output: Path | str,
    options: AdaptOptions | None = None,
    *,
    weights: Path | str = "default",
    masks: Path | str | None = None,
    generic: Path | str | None = None,
    device: torch.device | str | None = None,
    events: Events | None = None,
) -> Adapted:
    """Tune weights to the posed photos, or the folder of photos, in ``source``.

    A folder of ``generic`` photos, of anything, is what must not be forgotten; without one computed pictures are.

    DataError says why photos cannot teach anything.
    """
    options, events = options or AdaptOptions(), events or Events.silent()
    given = None if generic is None else Generic.of_photos(_photos_in(Path(generic)))
    where = default_device() if device is None else torch.device(device)
    run = _Run(Path(source), Path(output), options, weights, None if masks is None else Path(masks), events, where)
    run.require_same(generic=str(generic))
    others = given or Generic.computed(run.folder / "generic")
    first: Parts | None = None
    weights_now = run.start
    for number in range(1, options.rounds + 1):
        folder = run.folder / f"round_{number}"
        parts = share_out(run.views(number, weights_now), folder, options, events, first.split if first else None)
        for line in parts.warnings:
            events.say(f"warning: {line}")
        events.say(_described(parts))
        if first is None:  # its poses judge all rounds: the tuned weights had no hand in them
            first, before = parts, run.measured("before", run.start, parts)
        minutes = options.minutes / options.rounds
        tuned = tune_round(weights_now, parts, folder, options, minutes, others, run.card(parts), run.device, events)
        weights_now = tuned.weights if tuned.share > 0 else weights_now
    assert first is not None
    return run.finish(first, weights_now, tuned, before)


class _Run:
    """An adaptation's files, and what all rounds share."""

    def __init__(
        self,
        source: Path,
        output: Path,
        options: AdaptOptions,
        weights: Path | str,
        masks: Path | None,
        events: Events,
        device: torch.device,
    ) -> None:
        if output.suffix != ".safetensors":
            raise OptionsError(f"{output} must end in .safetensors: it is where the weights go")
        self.source, self.output, self.options, self.masks, self.events = source, output, options, masks, events
        self.device, self.folder = device, output.with_suffix("")
        self.plain = is_plain_folder(source)
        if options.rounds > 1 and not self.plain:
            raise OptionsError("--rounds is for folders of photos: the poses of posed photos are taken as they are")
        self.start_name = "the default weights" if str(weights) == "default" else Path(weights).name
        self.folder.mkdir(parents=True, exist_ok=True)
        model = load(weights, "cpu")
        self.start_digest = weights_digest(model)
        self.start = self.folder / "start.safetensors"
        self.start_card = _card_of(weights, self.start_name)
        if not self.start.is_file():
            save_checkpoint(self.start, model, self.start_card)
        self.registered: dict[str, int] = {}
        self._posed: list[View] = []  # of the last reconstruction that placed no fewer photos than the one before

    def views(self, number: int, weights: Path) -> list[View]:
        """The posed photos of a round: where the tuned weights place fewer of them, the poses stay as they were."""
        if not self.plain:
            return read_posed_photos(self.source, self.masks, self.events.say)
        try:
            views = self._reconstructed(number, weights)
        except DataError:
            if not self._posed:
                raise
            views = []
        if len(views) < len(self._posed):
            self.events.say("the tuned weights place fewer photos, so that the poses stay those of the round before")
        else:
            self._posed = views
        return self._posed

    def _reconstructed(self, number: int, weights: Path) -> list[View]:
        found = reconstruct_photos(
            self.source,
            self.folder / f"round_{number}" / "reconstruction",
            load_checkpoint(weights, self.device),
            "posfeat" if number == 1 else f"tuned_{number - 1}",
            number == 1,
            self.options.keypoints,
            self.options.match_pairs,
            self.options.share_camera,
            self.masks,
            self.events.bar,
            self.events.say,
        )
        self.registered |= found.registered
        counts = ", ".join(f"{count} with {name}" for name, count in found.registered.items())
        self.events.say(f"of {found.num_photos} photos placed: {counts}; poses are those of {found.features}")
        return found.views

    def card(self, parts: Parts) -> ModelCard:
        """Where the tuned weights come from."""
        options, split = self.options, parts.split
        return ModelCard(
            name=self.output.stem,
            trained=True,
            recipe=f"posfeat adapt, {options.minutes:g} minutes in {self.options.rounds} rounds from {self.start_name}",
            data=f"{len(split.training)} photos of {self.source.resolve().name}, {len(split.validation)} to choose by; "
            f"before, what {self.start_name} were trained on",
            seed=options.seed,
            licence=self.start_card.licence,
        )

    def measured(self, title: str, weights: Path, parts: Parts) -> Measured:
        """The held-out photos' numbers, registered photos included."""
        result = measure_held_out(weights, parts, self.options, self.device, self.events, f"measuring {title}")
        views = parts.views_of(parts.split.held_out)[:MOST_PHOTOS]
        count = None
        if self.options.count_registered:
            model, folder = load_checkpoint(weights, self.device), self.folder / "registered"
            count = registered_photos(model, views, folder, self.options.measure.keypoints, self.events.bar)
        numbers = replace(result.numbers, registered=count, photos=len(views))
        self.events.say(f"{title}: {_in_words(numbers)}")
        return replace(result, numbers=numbers)

    def finish(self, parts: Parts, weights: Path, tuned: Tuned, before: Measured) -> Adapted:
        """Measure after, judge, and write the weights to use and the report."""
        changed = weights != self.start
        after = self.measured("after", weights, parts) if changed else before
        verdict = judge(before, after, self.start_name, parts.split.by_place) if changed else unchanged(self.start_name)
        best, card = (weights, self.card(parts)) if verdict.better else (self.start, self.start_card)
        model = load_checkpoint(best)
        card = replace(card, notes=verdict.sentence)
        save_checkpoint(self.output, model, card, half=verdict.better)
        report = self.folder / "report.html"
        result = Adapted(self.output, report, verdict, before.numbers, after.numbers, parts.warnings)
        write_text(self.folder / "model_card.md", model_card(card, result))
        write_text(self.folder / "results.json", json.dumps(asdict(result), indent=1, default=str) + "\n")
        models = load_checkpoint(self.start, self.device), load_checkpoint(weights, self.device)
        write_adapt_report(report, self.source, result, parts, tuned, self.registered, before, models, self.options)
        return result

    def require_same(self, **more: str) -> None:
        """Refuse to go on with another run's folder."""
        asked: dict[str, Any] = options_to_mapping(self.options)
        asked |= {"source": str(self.source.resolve()), "masks": str(self.masks), "start": self.start_digest}
        asked |= {"package": __version__} | more
        asked.pop("minutes")
        asked = json.loads(json.dumps(asked))
        path = self.folder / "asked.json"
        if path.is_file():
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = [key for key in asked if asked[key] != before.get(key)]
            if changed:
                raise OptionsError(
                    f"{self.folder} holds a run with another {changed[0]}; choose another -o, or delete that folder"
                )
        write_text(path, json.dumps(asked, indent=1) + "\n")


def _card_of(weights: Path | str, name: str) -> ModelCard:
    """What the start says of itself; weights in the published layout say nothing."""
    path = DEFAULT_WEIGHTS if str(weights) == "default" else Path(weights)
    return read_card(path) if path.is_file() else ModelCard(name=name, trained=True)


def _photos_in(folder: Path) -> list[Path]:
    names = list_images(folder)
    if not names:
        raise DataError(
            f"there are no photos in {folder}; give a folder with {', '.join(sorted(IMAGE_SUFFIXES)[:3])} ..."
        )
    return [folder / name for name in names]


def _described(parts: Parts) -> str:
    counts = [
        f"{len(parts.views_of(names))} photos and {len(parts.pairs_of(names))} pairs {purpose}"
        for names, purpose in (
            (parts.split.training, "to train on"),
            (parts.split.validation, "to choose by"),
            (parts.split.held_out, "held out"),
        )
    ]
    return f"{', '.join(counts)}, {'apart by place' if parts.split.by_place else 'all of one place'}"


def _in_words(numbers: Numbers) -> str:
    parts = [
        f"precision at 3 px {numbers.precision_3px:.3f}, recall {numbers.recall_3px:.3f}",
        f"right matches {numbers.right_matches:.0f}",
    ]
    if numbers.auc is not None:
        parts.append("pose AUC@5/10/20 " + "/".join(f"{100 * value:.1f}" for value in numbers.auc))
    parts.append(f"repeatability {numbers.repeatability:.3f}")
    if numbers.registered is not None:
        parts.append(f"{numbers.registered} of {numbers.photos} photos registered")
    return ", ".join(parts)
