"""Memory of choosing pairs by retrieval and matching them, for many synthetic images of many places.

    python benches/retrieval_memory.py
    python benches/retrieval_memory.py --images 2000 --keypoints 2048 --neighbours 20

An image sees a part of its place's points, each with a descriptor that is a little off, among points of its own. The
bench prints the peak of resident memory after each step, and how many of the pairs show one place.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import match_pairs, read_pairs
from posfeat.pipeline.select_pairs import PairSelectionOptions, select_pairs
from posfeat.types import Features

IMAGES_OF_A_PLACE = 20
DIM = 128
NOISE = 0.05
WIDTH, HEIGHT = 1600, 1200


def peak_mb() -> float:
    """The most memory that this process ever had in RAM."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def write_images(path: Path, count: int, keypoints: int) -> list[str]:
    """Features of images, 20 of each place, and their names."""
    generator = torch.Generator().manual_seed(0)
    names = []
    with FeatureStore(path, "a") as store:
        for first in range(0, count, IMAGES_OF_A_PLACE):
            place = F.normalize(torch.randn(keypoints, DIM, generator=generator), dim=1)
            items = []
            for number in range(first, min(first + IMAGES_OF_A_PLACE, count)):
                seen = torch.randperm(keypoints, generator=generator)[: keypoints // 2]
                own = torch.randn(keypoints - len(seen), DIM, generator=generator)
                noisy = place[seen] + NOISE * torch.randn(len(seen), DIM, generator=generator)
                xy = torch.rand(keypoints, 2, generator=generator) * torch.tensor([WIDTH - 1.0, HEIGHT - 1.0])
                descriptors = F.normalize(torch.cat([noisy, own]), dim=1)
                scores = torch.rand(keypoints, generator=generator)
                names.append(f"{first // IMAGES_OF_A_PLACE:04d}/{number:05d}.jpg")
                items.append((names[-1], Features(xy, scores, descriptors, (WIDTH, HEIGHT))))
            store.write_all(items, "float16")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--keypoints", type=int, default=2048)
    parser.add_argument("--neighbours", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.perf_counter()

        def tell(step: str) -> None:
            print(f"{step}: {time.perf_counter() - start:.0f} s, peak {peak_mb():.0f} MB", flush=True)

        tell("imported")
        names = write_images(folder / "features.h5", asked.images, asked.keypoints)
        tell(f"{len(names)} images of {asked.keypoints} keypoints written")
        options = PairSelectionOptions(method="retrieval", neighbours=asked.neighbours)
        select_pairs(folder / "features.h5", folder / "pairs.txt", options)
        pairs = read_pairs(folder / "pairs.txt", names)
        right = sum(name0.partition("/")[0] == name1.partition("/")[0] for name0, name1 in pairs)
        tell(f"{len(pairs)} pairs chosen, {right / len(pairs):.1%} of one place")
        report = match_pairs(folder / "features.h5", pairs, folder / "matches.h5")
        tell(f"{report.num_matched} pairs matched")


if __name__ == "__main__":
    main()
