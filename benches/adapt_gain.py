"""What `posfeat adapt` gains and what is forgotten: scenes x looks x seeds, held-out numbers beside MMAscore on other images.

A look changes every photo of a scene and leaves its cameras as they are: a domain that the weights have not seen. Every
finished row is a line of --rows and is not done again for the same start weights, and a row that was stopped goes on where it
was; so the table can grow over weeks, a row at a time, in any order. The numbers are those of the tuned weights, whether the
verdict recommends them or not. benches/adapt_gain.jsonl holds the rows of the shipped weights.

    python benches/adapt_gain.py SCENE [SCENE ...] --looks plain underwater inverted --seeds 0 1 2 --minutes 20 \
        --threads 2 --generic PHOTOS --sequences OXFORD_AFFINE -o runs/adapt_gain
    python benches/adapt_gain.py SCENE --looks underwater --seeds 1 ...      # this row alone
    python benches/adapt_gain.py SCENE [SCENE ...] --most 1 ...              # the next row that is missing
    python benches/adapt_gain.py                                             # the table so far
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from posfeat.adapt.options import AdaptOptions
from posfeat.adapt.round import Events
from posfeat.adapt.run import adapt_to
from posfeat.benchmarks.hpatches import read_sequences
from posfeat.benchmarks.hpatches_run import score_methods
from posfeat.benchmarks.run import RunOptions
from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.images import RGB, read_image, write_image
from posfeat.data.posed import read_posed
from posfeat.networks.checkpoint import load, weights_digest
from posfeat.options import apply_overrides, options_from_mapping
from posfeat.types import PosfeatError

STORED = Path(__file__).with_suffix(".jsonl")
KEYPOINTS = 2048
LEAST_PRECISION_GAIN, LEAST_AUC_POINTS, MOST_FORGOTTEN = 0.10, 5.0, 0.01
COLUMNS = ("scene", "look", "seed", "precision@3px", "recall@3px", "AUC@10", "registered", "MMAscore", "verdict")
MEANS = (
    "scene",
    "look",
    "seeds",
    "precision@3px",
    "AUC@10",
    "MMAscore",
    "10 % precision or 5 points AUC, 1 % MMAscore",
)

Row = dict[str, Any]


def underwater(pixels: RGB) -> RGB:
    """As through turbid water: red is gone, a green-blue veil leaves a tenth of the contrast, and light scatters."""
    passed, veil = np.array([0.03, 0.10, 0.09]), np.array([12.0, 105.0, 115.0])
    soft = cv2.GaussianBlur(pixels, (0, 0), 1.5).astype(np.float32)
    noise = np.random.default_rng(zlib.crc32(pixels.tobytes())).normal(0, 2.0, pixels.shape)
    return np.clip(soft * passed + veil * (1 - passed) + noise, 0, 255).astype(np.uint8)


def inverted(pixels: RGB) -> RGB:
    """Grey, bright for dark, as some thermal cameras show the world."""
    grey = 255 - cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return np.repeat(grey[..., None], 3, axis=2)


LOOKS: dict[str, Callable[[RGB], RGB] | None] = {"plain": None, "underwater": underwater, "inverted": inverted}


def scene_with_look(scene: Path, look: str, folder: Path) -> Path:
    """The scene itself, or a copy whose photos have the look."""
    change = LOOKS[look]
    if change is None:
        return scene
    copy = folder / f"{scene.name}_{look}"
    if not (copy / "cameras.txt").is_file():
        views = []
        for view in read_posed(scene):
            path = copy / "images" / Path(view.name).with_suffix(".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_image(path, change(read_image(view.image_path)))
            views.append(replace(view, image_path=path))
        write_cameras_txt(copy / "cameras.txt", views)
    return copy


class Rows:
    """The finished rows of some start weights, in a file that only grows."""

    def __init__(self, path: Path, start: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._start = path, start

    def read(self) -> list[Row]:
        """All of them, in order; a line that a kill cut off is no row, and of two of one name the later counts."""
        if not self._path.is_file():
            return []
        whole = [line for line in self._path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        ours = [row for row in map(json.loads, whole) if row["start"] == self._start]
        return sorted({name_of(row): row for row in ours}.values(), key=name_of)

    def add(self, row: Row) -> None:
        """Append a row, on a line of its own whatever stands before it."""
        cut_off = self._path.is_file() and not self._path.read_bytes().endswith(b"\n")
        with open(self._path, "a", encoding="utf-8") as file:
            file.write("\n" * cut_off + json.dumps({"start": self._start} | row) + "\n")


def name_of(row: Row) -> tuple[str, str, int]:
    """What tells a row from the others."""
    return row["scene"], row["look"], row["seed"]


def adapted_row(scene: Path, look: str, seed: int, arguments: argparse.Namespace) -> Row:
    """Adapt, or go on with it, and measure what is forgotten."""
    row: Row = {"scene": scene.name, "look": look, "seed": seed, "minutes": arguments.minutes}
    row |= {"threads": arguments.threads, "set": arguments.set}
    output = arguments.output / f"{scene.name}_{look}_{seed}.safetensors"
    overrides = [f"minutes={arguments.minutes}", f"seed={seed}", *arguments.set]
    options = options_from_mapping(AdaptOptions, apply_overrides({}, overrides))
    source = scene_with_look(scene, look, arguments.output / "looks")
    begun = time.monotonic()
    try:
        result = adapt_to(
            source, output, options, weights=arguments.weights, generic=arguments.generic, events=_events()
        )
    except PosfeatError as error:
        return row | {"error": str(error)}
    row |= {name: value for name, value in asdict(result).items() if name not in ("weights", "report")}
    row["seconds"] = round(time.monotonic() - begun)
    if arguments.sequences is not None:
        tuned = output.with_suffix("") / f"round_{options.rounds}" / "tuned.safetensors"
        scores = mma_scores(arguments.sequences, [arguments.weights, str(tuned)])
        row["mma"] = dict(zip(("before", "after"), scores, strict=True))
    return row


def mma_scores(sequences: Path, weights: Sequence[str]) -> list[float]:
    """MMAscore of each of the weights on homography sequences."""
    found = read_sequences(sequences)
    results, _ = score_methods(sequences, found, RunOptions(methods=tuple(weights), max_keypoints=KEYPOINTS))
    return [method.splits[0].mma_score for method in results.methods]


def table(rows: Sequence[Row]) -> str:
    """All rows, and the means over the seeds of each scene and look."""
    groups = [(key, list(group)) for key, group in groupby(rows, key=lambda row: (row["scene"], row["look"]))]
    means = [mean_line(*key, [row for row in group if "error" not in row]) for key, group in groups]
    return f"{_markdown(COLUMNS, [line_of(row) for row in rows])}\n\n{_markdown(MEANS, means)}"


def line_of(row: Row) -> list[str]:
    """A row's cells."""
    name = [row["scene"], row["look"], str(row["seed"])]
    if "error" in row:
        return [*name, *["-"] * 5, row["error"]]
    before, after = row["before"], row["after"]
    return [
        *name,
        f"{before['precision_3px']:.3f} -> {after['precision_3px']:.3f} ({precision_gain(row):+.1%})",
        f"{before['recall_3px']:.3f} -> {after['recall_3px']:.3f}",
        f"{_auc(before):.1f} -> {_auc(after):.1f}",
        f"{before['registered']} -> {after['registered']} of {before['photos']}",
        f"{row['mma']['before']:.4f} -> {row['mma']['after']:.4f}" if "mma" in row else "-",
        "better" if row["verdict"]["better"] else "keep the old",
    ]


def mean_line(scene: str, look: str, rows: Sequence[Row]) -> list[str]:
    """Means over seeds with their spread, and whether they reach what adaptation is for."""
    if not rows:
        return [scene, look, "0", *["-"] * 4]
    gains, points = [precision_gain(row) for row in rows], [_auc(row["after"]) - _auc(row["before"]) for row in rows]
    kept = [row["mma"]["after"] / row["mma"]["before"] - 1 for row in rows if "mma" in row]
    enough = np.mean(gains) >= LEAST_PRECISION_GAIN or np.mean(points) >= LEAST_AUC_POINTS
    reached = enough and bool(kept) and np.mean(kept) >= -MOST_FORGOTTEN
    return [
        scene,
        look,
        str(len(rows)),
        f"{np.mean(gains):+.1%} ± {np.std(gains):.1%}",
        f"{np.mean(points):+.1f} ± {np.std(points):.1f}",
        f"{np.mean(kept):+.2%} ± {np.std(kept):.2%}" if kept else "-",
        "reached" if reached else "not reached",
    ]


def precision_gain(row: Row) -> float:
    """Relative."""
    return float(row["after"]["precision_3px"] / max(row["before"]["precision_3px"], 1e-9) - 1)


def _auc(numbers: Row) -> float:
    return 100 * float(numbers["auc"][1]) if numbers["auc"] else float("nan")


def _markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *lines))


def _events() -> Events:
    """Every validation of tuning as a line."""
    last: list[object] = [None]

    def tuning(stage: str, progress: Any, gain: float) -> None:
        if progress.validation and progress.validation != last[0]:
            last[0] = progress.validation
            print(f"{stage} {progress.step}: {gain:+.3f}, {progress.seconds_left:.0f} s left", flush=True)

    return Events(lambda line: print(line, flush=True), Events.silent().bar, tuning)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", type=Path, help="posed photos; without any the table so far is printed")
    parser.add_argument("--looks", nargs="+", choices=sorted(LOOKS), default=["plain"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--most", type=int, help="run at most so many of the rows that are missing")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--weights", default="default")
    parser.add_argument("--sequences", type=Path, help="homography sequences that tell what is forgotten")
    parser.add_argument("--generic", type=Path, help="other photos, against forgetting")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="options of an adaptation: key=value ...")
    parser.add_argument("--rows", type=Path, default=STORED, help="where finished rows are kept")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/adapt_gain"))
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of what was asked for, and print the table of all rows."""
    torch.set_num_threads(arguments.threads)
    rows = Rows(arguments.rows, weights_digest(load(arguments.weights, "cpu")))
    done = {name_of(row) for row in rows.read()}
    asked = product(arguments.scenes, arguments.looks, arguments.seeds)
    missing = [(scene, look, seed) for scene, look, seed in asked if (scene.name, look, seed) not in done]
    for scene, look, seed in missing[: arguments.most]:
        print(f"{scene.name}, {look}, seed {seed}", flush=True)
        rows.add(adapted_row(scene, look, seed, arguments))
    print(table(rows.read()))


if __name__ == "__main__":
    run(parsed())
