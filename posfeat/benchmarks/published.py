"""The paper's published figures, carried with the package so that new numbers can be drawn beside them.

``hpatches_mma_curves.csv`` holds the curves behind Fig. 5 and ``table1_hpatches_mmascore.csv`` Table 1 as printed. The
paper says that the table was computed from the curves; all but two of its 36 entries are equation 12 of the
curves, rounded to three decimals. The two are in ``TABLE1_DIFFERS``.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

import torch

from posfeat.benchmarks.metrics import MMA_THRESHOLDS_PX, mma_score

SPLITS = ("overall", "illumination", "viewpoint")
# (method, split): (printed, computed from the published curve). The printed numbers cannot come from these curves: DISK-W's
# overall is not even the mean of its two printed halves. Whoever rounds to four decimals first finds a third one: DISK's
# overall, printed 0.763, is 0.762538, which is 0.763 if it is rounded once, and 0.762 by way of 0.7625.
TABLE1_DIFFERS = {
    ("Hes. Aff. + Root-SIFT", "viewpoint"): (0.624, 0.6211),
    ("DISK-W", "overall"): (0.719, 0.7229),
}


@dataclass(frozen=True)
class PublishedMethod:
    """One method of the paper's comparison on HPatches: MMA at 1..10 px of each split, Table 1's entries, and counts."""

    name: str
    group: str
    mma: dict[str, tuple[float, ...]]
    table1: dict[str, float]
    keypoints: float  # of an image, on average
    matches: float  # of a pair

    def mma_score(self, split: str) -> float:
        """Equation 12 of the published curve."""
        return mma_score(torch.tensor(self.mma[split], dtype=torch.float64))


def published_methods() -> list[PublishedMethod]:
    """The twelve methods of Fig. 5 and Table 1, in the table's order."""
    curves: dict[tuple[str, str], dict[int, float]] = {}
    pairs: dict[str, int] = {}
    for row in read_table("hpatches_mma_curves"):
        curves.setdefault((row["method"], row["split"]), {})[int(row["threshold_px"])] = float(row["mma"])
        pairs[row["split"]] = int(row["pairs"])
    counts = {row["method"]: row for row in read_table("hpatches_counts")}
    methods = []
    for row in read_table("table1_hpatches_mmascore"):
        mma = {split: tuple(curves[row["method"], split][t] for t in MMA_THRESHOLDS_PX) for split in SPLITS[1:]}
        weighted = zip(mma["illumination"], mma["viewpoint"], strict=True)
        total = pairs["illumination"] + pairs["viewpoint"]
        mma["overall"] = tuple((i * pairs["illumination"] + v * pairs["viewpoint"]) / total for i, v in weighted)
        table1 = {split: float(row[split]) for split in SPLITS}
        of_method = counts[row["method"]]
        keypoints, matches = (float(of_method[key]) for key in ("mean_keypoints_per_image", "mean_matches_per_pair"))
        methods.append(PublishedMethod(row["method"], row["group"], mma, table1, keypoints, matches))
    return methods


def read_table(name: str) -> list[dict[str, str]]:
    """Rows of one of the package's tables of published figures."""
    text = resources.files("posfeat.benchmarks").joinpath(f"data/{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
