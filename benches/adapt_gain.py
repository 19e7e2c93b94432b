"""What `posfeat adapt` gains and what is forgotten: scenes x looks x seeds, held-out numbers beside MMAscore on other images.

A look changes every photo of a scene and leaves its cameras as they are: a domain that the weights have not seen. The MMAscore
is that of the weights that adaptation recommends; where these are the old ones, nothing is gained and nothing forgotten.
Finished runs are read, not run again; so the table can be printed at any time.

    python benches/adapt_gain.py SCENE [SCENE ...] --looks plain underwater inverted --seeds 0 1 2 --minutes 20 \
        --sequences OXFORD_AFFINE -o runs/adapt_gain
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

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
from posfeat.options import apply_overrides, options_from_mapping
from posfeat.types import PosfeatError

KEYPOINTS = 2048
COLUMNS = ("scene", "look", "seed", "precision@3px", "right matches", "AUC@10", "MMAscore", "verdict")


def underwater(pixels: RGB) -> RGB:
    """As through some metres of turbid water: red is gone, a green-blue veil lies over a third of the contrast."""
    passed, veil = np.array([0.12, 0.38, 0.34]), np.array([12.0, 105.0, 115.0])
    soft = cv2.GaussianBlur(pixels, (0, 0), 1.0).astype(np.float32)
    noise = np.random.default_rng(pixels.size).normal(0, 2.0, pixels.shape)
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


def mma_scores(sequences: Path, weights: Sequence[str]) -> list[float]:
    """MMAscore of each of the weights on homography sequences."""
    found = read_sequences(sequences)
    results, _ = score_methods(sequences, found, RunOptions(methods=tuple(weights), max_keypoints=KEYPOINTS))
    return [method.splits[0].mma_score for method in results.methods]


def row(scene: Path, look: str, seed: int, arguments: argparse.Namespace, mma_before: float | None) -> tuple[str, ...]:
    """Adapt once, or read what came of it."""
    output = arguments.output / f"{scene.name}_{look}_{seed}.safetensors"
    done = output.with_suffix("") / "results.json"
    if not done.is_file():
        overrides = [f"minutes={arguments.minutes}", f"seed={seed}", *arguments.set]
        options = options_from_mapping(AdaptOptions, apply_overrides({}, overrides))
        source = scene_with_look(scene, look, arguments.output / "looks")
        try:
            adapt_to(source, output, options, weights=arguments.weights, events=Events(print, Events.silent().bar))
        except PosfeatError as error:
            return (scene.name, look, str(seed), "-", "-", "-", "-", str(error))
    result = json.loads(done.read_text(encoding="utf-8"))
    before, after = result["before"], result["after"]
    aucs = [numbers["auc"][1] * 100 if numbers["auc"] else float("nan") for numbers in (before, after)]
    forgotten = "-"
    if mma_before is not None:
        mma_after = mma_scores(arguments.sequences, [str(output)])[0] if result["verdict"]["better"] else mma_before
        forgotten = f"{mma_before:.3f} -> {mma_after:.3f}"
    return (
        scene.name,
        look,
        str(seed),
        f"{before['precision_3px']:.3f} -> {after['precision_3px']:.3f} ({after['precision_3px'] / before['precision_3px'] - 1:+.1%})",
        f"{before['right_matches']:.0f} -> {after['right_matches']:.0f}",
        f"{aucs[0]:.1f} -> {aucs[1]:.1f}",
        forgotten,
        "better" if result["verdict"]["better"] else "keep the old",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="+", type=Path, help="posed photos")
    parser.add_argument("--looks", nargs="+", choices=sorted(LOOKS), default=["plain"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--weights", default="default")
    parser.add_argument("--sequences", type=Path, help="homography sequences that tell what is forgotten")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="options of an adaptation: key=value ...")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/adapt_gain"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    start = None if arguments.sequences is None else mma_scores(arguments.sequences, [arguments.weights])[0]
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for scene in arguments.scenes:
        for look in arguments.looks:
            for seed in arguments.seeds:
                print("| " + " | ".join(row(scene, look, seed, arguments, start)) + " |", flush=True)


if __name__ == "__main__":
    main()
