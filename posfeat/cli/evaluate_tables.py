"""The tables that posfeat evaluate prints at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posfeat.benchmarks.aachen_run import AachenResults
    from posfeat.benchmarks.ablation import AblationResults
    from posfeat.benchmarks.eth_run import EthResults
    from posfeat.benchmarks.hpatches_report import HomographyResults
    from posfeat.benchmarks.pose_run import PoseResults

_WIDTH_OF_FILES = 1000  # where no terminal sets a width, no cell is cut


def print_accuracy(results: HomographyResults) -> None:
    """MMAscore, MMA and counts of every method and split."""
    header = ["method", "split", "MMAscore", "MMA@1", "MMA@3", "MMA@5", "keypoints", "matches", "within 3 px"]
    rows: list[list[str]] = []
    for result in results.methods:
        for split in result.splits:
            numbers = [split.mma_score, split.mma[0], split.mma[2], split.mma[4]]
            counts = [split.keypoints, split.matches, split.correct]
            first = result.method if split.split == "overall" else ""
            rows.append([first, split.split, *(f"{n:.3f}" for n in numbers), *(f"{n:.0f}" for n in counts)])
    print_table(header, rows, results.skipped)


def print_ablation(results: AblationResults) -> None:
    """Every model's overall numbers, and what the claims amount to."""
    header = ["model", "MMAscore", "MMA@1", "MMA@3", "MMA@5", "keypoints", "matches", "within 3 px"]
    rows = []
    for method in results.accuracy.methods:
        overall = method.splits[0]
        shares = [overall.mma_score, overall.mma[0], overall.mma[2], overall.mma[4]]
        counts = [overall.keypoints, overall.matches, overall.correct]
        rows.append([method.method, *(f"{n:.3f}" for n in shares), *(f"{n:.0f}" for n in counts)])
    print_table(header, rows, results.accuracy.skipped, ruled=False)
    for verdict in results.verdicts:
        on = f"{verdict.better_on} of {verdict.sequences} sequences"
        print(f"{verdict.claim}: {verdict.difference:+.3f} MMAscore, better on {on}")


def print_poses(results: PoseResults) -> None:
    """Pose AUC, precision and matches of every method and scene."""
    header = ["method", "scene", "pairs", "AUC@5", "AUC@10", "AUC@20", "precision@1.5 px", "matches"]
    rows: list[list[str]] = []
    for result in results.methods:
        for scene in result.scenes:
            first = result.method if scene.scene == "all" else ""
            shares = [f"{n:.3f}" for n in (*scene.auc, scene.precision[1])]
            rows.append([first, scene.scene, str(scene.pairs), *shares, f"{scene.matches:.0f}"])
    print_table(header, rows, results.skipped)


def print_models(results: EthResults) -> None:
    """The four columns of the paper's Table 3, and observations, of every method and scene."""
    header = ["method", "scene", "registered", "points", "track length", "reprojection [px]", "observations"]
    rows = []
    for result in results.methods:
        for index, score in enumerate(result.scenes):
            tracks = score.tracks
            numbers = [f"{score.registered} of {score.images}", str(tracks.points), f"{tracks.mean_length:.2f}"]
            numbers += [f"{score.reprojection_error_px:.2f}", str(tracks.observations)]
            rows.append([result.method if index == 0 else "", score.scene, *numbers])
    print_table(header, rows, results.skipped)
    for result in results.methods:
        for score in result.scenes:
            if score.failure:
                print(f"{result.method}, {score.scene}: {score.failure}")


def print_localization(results: AachenResults) -> None:
    """Recalls where they are known, placed queries, points of every method."""
    names = [f"{metres:g} m, {degrees:g}°" for metres, degrees in results.thresholds]
    rows = []
    for result in results.methods:
        shares = ["?" for _ in names] if result.recalls is None else [f"{share:.1%}" for share in result.recalls]
        counts = [f"{result.placed} of {len(result.queries)}", str(result.points), f"{result.mean_track_length:.2f}"]
        rows.append([result.method, *shares, *counts])
    print_table(["method", *names, "placed", "points", "track length"], rows, results.skipped)


def print_table(header: list[str], rows: list[list[str]], skipped: dict[str, str], ruled: bool = True) -> None:
    """Any table; a line is drawn above every row that begins with a name."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        if ruled and row[0] and table.row_count:
            table.add_section()
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES).print(table)
    for name, why in skipped.items():
        print(f"skipped {name}: {why}")
