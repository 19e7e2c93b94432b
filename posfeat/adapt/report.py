"""The one page: a plain sentence, numbers before and after, and the same pairs of held-out photos before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posfeat.adapt.measure import RIGHT_PX, Measured, Numbers, features_of_view, precision
from posfeat.benchmarks.judged_pair import errors_by_poses
from posfeat.benchmarks.report import Picture, Section, Table, page, write_text
from posfeat.data.images import encode_image, read_image
from posfeat.matching import match
from posfeat.networks.checkpoint import ModelCard
from posfeat.networks.posfeat import PoSFeat
from posfeat.pipeline.draw import draw_matches
from posfeat.types import Pair

if TYPE_CHECKING:
    from posfeat.adapt.options import AdaptOptions
    from posfeat.adapt.round import Parts, Tuned
    from posfeat.adapt.run import Adapted

DRAWN_AT = (0.1, 0.4, 0.7, 0.95)  # of the held-out pairs, from the least precise before
_HOW = (
    f"Held-out photos were neither trained on nor chosen by. A match is right within {RIGHT_PX:g} px of both epipolar lines "
    "of the known poses; mutual nearest neighbours. Recall is the share of a photo's keypoints that are matched rightly. Pose AUC is the area under recall over error of poses by RANSAC at 1 px. "
    "Repeatability is the share of keypoints found again within 3 px in rendered views of the held-out photos."
)


def write_adapt_report(
    path: Path,
    source: Path,
    result: Adapted,
    parts: Parts,
    tuned: Tuned,
    registered: dict[str, int],
    before: Measured,
    models: tuple[PoSFeat, PoSFeat],
    options: AdaptOptions,
) -> None:
    """Write the page, which needs no other file."""
    pairs = drawn_pairs(before, parts)
    sections = [
        Section(result.verdict.sentence, " ".join(f"Note: {line}." for line in result.warnings)),
        Section("Before and after", _HOW, [numbers_table(result.before, result.after)]),
        Section("The same pairs before and after", _legend(), pictures=_pictures(pairs, models, options)),
        Section(
            "How the weights came about",
            tables=[_stages_table(tuned), _mixtures_table(tuned), _photos_table(parts, registered, options)],
        ),
    ]
    write_text(path, page(f"Features adapted to {source.resolve().name}", sections))


def model_card(card: ModelCard, result: Adapted) -> str:
    """What the weights' own card says, and the numbers behind it, as Markdown."""
    said = [
        ("weights", result.weights.name),
        ("name", card.name),
        ("recipe", card.recipe),
        ("data", card.data),
        ("licence", card.licence),
    ]
    table = numbers_table(result.before, result.after)
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    lines = [
        f"# {card.name}",
        card.notes,
        "\n".join(f"- {key}: {value}" for key, value in said if value),
        "\n".join(f"| {' | '.join(row)} |" for row in rows),
        _HOW,
        *(f"Note: {line}." for line in result.warnings),
    ]
    return "\n\n".join(lines) + "\n"


def numbers_table(before: Numbers, after: Numbers) -> Table:
    """One number a row."""
    rows = [
        ["precision at 3 px", f"{before.precision_3px:.3f}", f"{after.precision_3px:.3f}"],
        ["precision at 1 px", f"{before.precision_1px:.3f}", f"{after.precision_1px:.3f}"],
        ["recall at 3 px", f"{before.recall_3px:.3f}", f"{after.recall_3px:.3f}"],
        ["right matches a pair", f"{before.right_matches:.0f}", f"{after.right_matches:.0f}"],
    ]
    if before.auc is not None and after.auc is not None:
        for limit, old, new in zip((5, 10, 20), before.auc, after.auc, strict=True):
            rows.append([f"pose AUC@{limit}°", f"{100 * old:.1f}", f"{100 * new:.1f}"])
    rows.append(["repeatability", f"{before.repeatability:.3f}", f"{after.repeatability:.3f}"])
    if before.registered is not None and after.registered is not None:
        rows.append([f"registered of {before.photos} photos", str(before.registered), str(after.registered)])
    return Table(["held-out photos", "before", "after"], rows)


def drawn_pairs(before: Measured, parts: Parts) -> list[Pair]:
    """Some held-out pairs, from hard ones to easy ones by the numbers before."""
    by_name = {(pair.view0.name, pair.view1.name): pair for pair in parts.pairs}
    ranked = sorted(before.scores, key=precision)
    places = sorted({int(share * (len(ranked) - 1)) for share in DRAWN_AT})
    return [by_name[ranked[i].name0, ranked[i].name1] for i in places]


def _legend() -> str:
    return f"Green lines are matches within {RIGHT_PX:g} px of the poses' epipolar lines, red ones are not."


def _pictures(pairs: Sequence[Pair], models: tuple[PoSFeat, PoSFeat], options: AdaptOptions) -> list[Picture]:
    titles = zip(("before", "after"), models, strict=True)
    drawn = [(title, model) for title, model in titles]
    return [_picture(pair, model, title, options.measure.keypoints) for pair in pairs for title, model in drawn]


def _picture(pair: Pair, model: PoSFeat, title: str, keypoints: int) -> Picture:
    features0, features1 = (features_of_view(model, view, keypoints) for view in (pair.view0, pair.view1))
    indices = match(features0, features1).indices
    xy0, xy1 = features0.keypoints[indices[:, 0]], features1.keypoints[indices[:, 1]]
    right = (errors_by_poses(pair, xy0, xy1) <= RIGHT_PX).numpy()
    image0, image1 = (read_image(view.image_path) for view in (pair.view0, pair.view1))
    canvas = draw_matches(image0, image1, xy0.numpy(), xy1.numpy(), right)
    caption = f"{title}: {int(right.sum())} of {len(right)} matches right, {pair.view0.name} and {pair.view1.name}"
    return Picture("jpg", encode_image(np.ascontiguousarray(canvas), ".jpg"), caption)


def _stages_table(tuned: Tuned) -> Table:
    rows = [
        [name, f"{stage.start_score:.3f}", f"{stage.best_score:.3f}"] for name, stage in sorted(tuned.stages.items())
    ]
    return Table(["validation score while tuning", "at the start", "at best"], rows)


def _mixtures_table(tuned: Tuned) -> Table:
    rows = [[f"{float(share):.0%}", f"{one.gain:+.1%}", f"{one.kept:.1%}"] for share, one in tuned.mixtures.items()]
    rows.append([f"{tuned.share:.0%} taken", "", ""])
    return Table(["share of the tuned weights", "gain on validation photos", "kept on generic pictures"], rows)


def _photos_table(parts: Parts, registered: dict[str, int], options: AdaptOptions) -> Table:
    split = parts.split
    rows = [
        [purpose, str(len(parts.views_of(names))), str(len(parts.pairs_of(names)))]
        for purpose, names in (
            ("to train on", split.training),
            ("to choose by", split.validation),
            ("held out", split.held_out),
        )
    ]
    rows += [[f"registered with {name}", str(count), "-"] for name, count in registered.items()]
    rows.append(["minutes of tuning", f"{options.minutes:g}", "-"])
    return Table(["photos", "number", "pairs"], rows)
