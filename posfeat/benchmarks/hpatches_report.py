"""The page of a run on homography sequences: Table 1, Fig. 5 beside the published curves, and matches to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posfeat.benchmarks.homography_scores import JudgedMatches, PairScore, SplitScore, summarise
from posfeat.benchmarks.hpatches import HomographySequence, hpatches_names
from posfeat.benchmarks.pictures import matches_by_error
from posfeat.benchmarks.plots import Curve, mma_curves
from posfeat.benchmarks.provenance import Provenance
from posfeat.benchmarks.published import SPLITS, TABLE1_DIFFERS, published_methods
from posfeat.benchmarks.report import Picture, Section, Table, write_report
from posfeat.data.images import read_image

_PROTOCOL = (
    "Mutual nearest neighbours on images as they are, without cropping or resizing. MMA is the mean over pairs of the "
    "share of matches within t px in the second image; a pair without matches scores 0. MMAscore is the paper's equation 12."
)
_AUC = "AUC is that of the image corners' mean error under the homography found by RANSAC, up to 1, 3 and 5 px."


@dataclass(frozen=True)
class MethodResult:
    """One method's numbers."""

    method: str
    fingerprint: str
    seconds: float  # extraction where it was not cached, matching and scoring
    splits: list[SplitScore]
    pairs: list[PairScore]

    def sequence_scores(self) -> list[tuple[str, str, float]]:
        """Name, change and MMAscore of each sequence."""
        by_sequence: dict[tuple[str, str], list[PairScore]] = {}
        for pair in self.pairs:
            by_sequence.setdefault((pair.sequence, pair.change), []).append(pair)
        return [(name, change, summarise(pairs)[0].mma_score) for (name, change), pairs in by_sequence.items()]


@dataclass(frozen=True)
class Example:
    """The matches of a method on one pair, to be looked at."""

    method: str
    sequence: HomographySequence
    target: int
    matches: JudgedMatches


@dataclass(frozen=True)
class HomographyResults:
    """All methods' numbers, those that could not run and why, and where it all came from."""

    provenance: Provenance
    methods: list[MethodResult]
    skipped: dict[str, str]


def write_homography_report(
    folder: Path, results: HomographyResults, sequences: Sequence[HomographySequence], examples: Sequence[Example]
) -> None:
    """Write results.json, report.html, and the curves once more as curves.svg."""
    title = f"Matching accuracy on {len(sequences)} image sequences"
    names = {sequence.name for sequence in sequences}
    whole = names == hpatches_names()[0]
    curves = curves_section(results.methods, whole)
    sections = [accuracy_section(results), curves]
    if whole:
        sections.append(_table1(results.methods))
    sections += [sequences_section(results.methods), examples_section(examples)]
    write_report(folder, title, results, results.provenance, sections)
    for picture in curves.pictures:
        (folder / "curves.svg").write_bytes(picture.data)


def accuracy_section(results: HomographyResults) -> Section:
    """Every method's MMA and counts on each split."""
    header = ["method", "split", "pairs", "MMAscore", "MMA@1", "MMA@3", "MMA@5", "keypoints", "matches", "within 3 px"]
    with_homographies = any(result.splits[0].homography_auc for result in results.methods)
    header += ["AUC@1", "AUC@3", "AUC@5"] if with_homographies else []
    rows: list[list[str]] = []
    rules: list[int] = []
    for result in results.methods:
        rules.append(len(rows))
        for split in result.splits:
            shares = [split.mma_score, split.mma[0], split.mma[2], split.mma[4]]
            counts = [split.keypoints, split.matches, split.correct]
            row = [result.method if split.split == "overall" else "", split.split, str(split.pairs)]
            row += [f"{share:.3f}" for share in shares] + [f"{count:.0f}" for count in counts]
            rows.append(row + [f"{area:.3f}" for area in split.homography_auc or ()])
    skipped = " ".join(f"Left out: {name}, as {why}." for name, why in results.skipped.items())
    text = " ".join(filter(None, (_PROTOCOL, _AUC if with_homographies else "", skipped)))
    return Section("Accuracy", text, [Table(header, rows, rules)])


def curves_section(methods: Sequence[MethodResult], whole: bool) -> Section:
    """Fig. 5: a panel for each split, with the published curves where they belong."""
    splits = [split.split for split in methods[0].splits] if methods else []
    published = published_methods() if whole else []
    panels: dict[str, list[Curve]] = {}
    for index, split in enumerate(splits):
        dashed = [Curve(method.name, method.mma[split], True) for method in published]
        panels[split] = dashed + [Curve(result.method, result.splits[index].mma) for result in methods]
    text = (
        "Thin and dashed: the twelve curves that the paper's authors published, by the same protocol on the same 108 sequences."
        if whole
        else "The published curves are not drawn, as they belong to the 108 sequences of HPatches."
    )
    return Section("Curves", text, pictures=[Picture("svg", mma_curves(panels))] if panels else [])


def _table1(methods: Sequence[MethodResult]) -> Section:
    rows = [
        [
            f"{method.name} (paper)",
            *(f"{method.table1[split]:.3f}" for split in SPLITS),
            f"{method.keypoints:.0f}",
            f"{method.matches:.0f}",
        ]
        for method in published_methods()
    ]
    first = len(rows)
    for result in methods:
        counts = [f"{count:.0f}" for count in (result.splits[0].keypoints, result.splits[0].matches)]
        rows.append([result.method, *(f"{split.mma_score:.3f}" for split in result.splits), *counts])
    notes = "; ".join(
        f"{name} {split}: printed {printed:.3f}, the published curve gives {computed:.3f}"
        for (name, split), (printed, computed) in TABLE1_DIFFERS.items()
    )
    text = (
        f"MMAscore as printed in the paper, and of this run. Printed entries that differ from their curves: {notes}. "
        "DISK overall, 0.762538, is printed 0.763 and differs only if it is rounded to four decimals first."
    )
    return Section("Table 1", text, [Table(["method", *SPLITS, "keypoints", "matches"], rows, [first])])


def sequences_section(methods: Sequence[MethodResult]) -> Section:
    """Every method's MMAscore on each kind of change, and on each sequence."""
    names = [result.method for result in methods]
    return Section(
        "MMAscore of each change and sequence", tables=[_by_change(methods, names), _by_sequence(methods, names)]
    )


def _by_change(methods: Sequence[MethodResult], names: Sequence[str]) -> Table:
    rows = [
        [splits[0].split, str(splits[0].pairs), *(f"{split.mma_score:.3f}" for split in splits)]
        for splits in zip(*(result.splits for result in methods), strict=True)
    ]
    return Table(["change", "pairs", *names], rows)


def _by_sequence(methods: Sequence[MethodResult], names: Sequence[str]) -> Table:
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for result in methods:
        for name, change, score in result.sequence_scores():
            scores.setdefault((name, change), {})[result.method] = score
    rows = [
        [name, change, *(f"{of_method[method]:.3f}" for method in names)]
        for (name, change), of_method in scores.items()
    ]
    return Table(["sequence", "change", *names], rows)


def examples_section(examples: Sequence[Example]) -> Section:
    """Matches of some pairs, to be looked at."""
    pictures = []
    for example in sorted(examples, key=lambda example: example.sequence.change):
        sequence, matches = example.sequence, example.matches
        image0, image1 = read_image(sequence.reference), read_image(sequence.targets[example.target])
        right = int((matches.errors_px <= 3).sum())
        caption = f"{example.method}, {sequence.name} 1-{example.target + 2}: {right} of {len(matches.xy0)} matches within 3 px"
        data = matches_by_error(image0, image1, matches.xy0, matches.xy1, matches.errors_px)
        pictures.append(Picture("jpg", data, caption))
    text = (
        "One pair of the first sequence of each kind of change. Green: within 3 px; yellow: within 10 px; red: beyond."
    )
    return Section("Matches coloured by their error", text, pictures=pictures)
