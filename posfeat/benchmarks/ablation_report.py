"""The ablations' page, and a shorter one in Markdown: models, Fig. 8, Table 4, the claims, and how all was trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posfeat.benchmarks.ablation import AblationResults, published_grid
from posfeat.benchmarks.hpatches_report import (
    Example,
    MethodResult,
    accuracy_section,
    examples_section,
    sequences_section,
)
from posfeat.benchmarks.plots import Curve, mma_curves
from posfeat.benchmarks.report import Picture, Section, Table, write_markdown, write_report

_PROTOCOL = (
    "All models were trained by this project at one scale, on the same photos, and are scored alike: mutual nearest "
    "neighbours, MMAscore of equation 12. A joint model was trained for as many steps as description and detection together."
)


def write_ablation_report(folder: Path, results: AblationResults, examples: Sequence[Example]) -> None:
    """Write results.json and report.html, and without every sequence's numbers and examples ablation.md with fig8.svg."""
    title, provenance = f"Ablations at the scale {results.ablation.scale}", results.accuracy.provenance
    short = _filled([_claims(results), _models(results), *_fig8(results), *_grid(results), _training(results)])
    details = [accuracy_section(results.accuracy), sequences_section(results.accuracy.methods)]
    details.append(examples_section([one for one in examples if one.method in ("Model 1", "Model 2")]))
    write_report(folder, title, results, provenance, [*short, *_filled(details)])
    write_markdown(folder / "ablation.md", title, provenance, short)


def _filled(sections: Sequence[Section]) -> list[Section]:
    return [section for section in sections if section.tables or section.pictures]


def _models(results: AblationResults) -> Section:
    header = ["model", "what", *_splits(results), "MMA@1", "MMA@3", "keypoints", "matches"]
    by_name = {method.method: method for method in results.accuracy.methods}
    rows = []
    for model in (model for model in results.ablation.models if model.part != "grid"):
        method = by_name.pop(model.name, None)
        if method is None:
            why = results.accuracy.skipped.get(model.name, "it was not asked for")
            rows.append([model.name, model.note, f"left out: {why}"])
        else:
            rows.append([model.name, model.note, *_scores(method)])
    first = len(rows)
    grid = {cell.model for cell in results.ablation.grid}
    rows += [[name, "", *_scores(method)] for name, method in by_name.items() if name not in grid]
    width = len(header)
    return Section("Models", _PROTOCOL, [Table(header, [row + [""] * (width - len(row)) for row in rows], [first])])


def _splits(results: AblationResults) -> list[str]:
    methods = results.accuracy.methods
    names = [split.split for split in methods[0].splits] if methods else ["overall"]
    return [f"MMAscore {name}" if name == "overall" else name for name in names]


def _scores(method: MethodResult) -> list[str]:
    overall = method.splits[0]
    shares = [split.mma_score for split in method.splits] + [overall.mma[0], overall.mma[2]]
    return [f"{share:.3f}" for share in shares] + [f"{overall.keypoints:.0f}", f"{overall.matches:.0f}"]


def _fig8(results: AblationResults) -> list[Section]:
    names = {model.name for model in results.ablation.models if model.part == "models"}
    methods = [method for method in results.accuracy.methods if method.method in names]
    if not methods:
        return []
    panels = {
        split.split: [Curve(method.method, method.splits[index].mma) for method in methods]
        for index, split in enumerate(methods[0].splits)
    }
    picture = Picture("svg", mma_curves(panels), "MMA of Models 1 to 8")
    return [Section("Fig. 8", "MMA over the threshold, on all pairs and on those of each change.", pictures=[picture])]


def _grid(results: AblationResults) -> list[Section]:
    scores = {method.method: method.splits[0].mma_score for method in results.accuracy.methods}
    cells = {(cell.row, cell.column): cell for cell in results.ablation.grid}
    if not any(cell.model in scores for cell in results.ablation.grid if cell.model.startswith("N_line")):
        return []
    printed = published_grid()
    columns = sorted({column for _, column in cells})
    header = ["N_line \\ w_patch", *(f"{cells[0, column].window:g}" for column in columns)]
    rows = []
    for row in sorted({row for row, _ in cells}):
        entries = []
        for column in columns:
            score, paper = scores.get(cells[row, column].model), printed.get((row, column))
            here = "-" if score is None else f"{score:.3f}"
            entries.append(here if paper is None else f"{here} ({paper:.4f})")
        rows.append([str(cells[row, columns[0]].line_points), *entries])
    text = "MMAscore, overall. In brackets what the paper prints for the cell of the same place, at its own scale."
    return [Section("Table 4", text, [Table(header, rows)])]


def _claims(results: AblationResults) -> Section:
    header = ["claim", "difference of MMAscore", "better on"]
    rows = [
        [verdict.claim, f"{verdict.difference:+.3f}", f"{verdict.better_on} of {verdict.sequences} sequences"]
        for verdict in results.verdicts
    ]
    text = "A positive difference bears the claim out, a negative one speaks against it."
    return Section("Claims", text, [Table(header, rows)] if rows else [])


def _training(results: AblationResults) -> Section:
    header = ["run", "stage", "steps", "minutes", "held out"]
    rows = []
    for outcome in results.training:
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in outcome.validation.items())
        minutes = f"{outcome.seconds / 60:.1f}"
        rows.append([outcome.name, outcome.stage, str(outcome.steps), minutes, outcome.failure or numbers])
    return Section("Training", "", [Table(header, rows)] if rows else [])
