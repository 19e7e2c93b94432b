"""What the benchmarks on plain photos share: which photos of a folder, and what an image costs each method."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.run import RunOptions
from posfeat.pipeline.extract import list_images
from posfeat.types import DataError

_ROUNDS = 3


def some_photos(folder: Path, most: int, without: Path) -> list[Path]:
    """At most so many photos of a folder, spread evenly over it in the order of names; none of those below ``without``."""
    names = list_images(folder, without)
    if not names:
        raise DataError(f"{folder}: no photos here or in folders below it; give a folder with some")
    count = min(most, len(names))
    return [folder / names[index * len(names) // count] for index in range(count)]


def seconds_for_image(options: RunOptions, root: Path, methods: Sequence[str], image: Path) -> dict[str, float]:
    """The time in which each method finds the features of one image, uncached: the best of several rounds taken by turns."""
    setting = MethodSetting(root, options.max_keypoints, options.extraction, None, options.device)
    sources = [open_method(name, setting) for name in methods]
    best = {source.name: float("inf") for source in sources}
    for _ in range(_ROUNDS):
        for source in sources:
            start = time.perf_counter()
            source.features_of(image)
            best[source.name] = min(best[source.name], time.perf_counter() - start)
    return best
