"""What each step costs for one photo and one pair, measured on a folder of photos, and what that makes for a million.

    python benches/scale_costs.py PHOTOS --most 100

Times are processor seconds of one thread, so that a busy machine changes them little. Verification is COLMAP's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from extract_memory import resident_mb

from posfeat.interop.colmap_mapping import VerificationOptions
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import NetworkExtractor, extract_folder, list_images
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import match_pairs
from posfeat.pipeline.retrieval import ImageIndex, index_images
from posfeat.pipeline.select_pairs import PairSelectionOptions, select_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.scale.sharded_job import cut

MILLION = 10**6
DAY_S = 86_400
T = TypeVar("T")


def timed(step: Callable[[], T]) -> tuple[T, float]:
    """A step's result and its processor seconds."""
    start = time.process_time()
    result = step()
    return result, time.process_time() - start


def grown(make: Callable[[], T]) -> tuple[T, float]:
    """What a step leaves behind, and by how many MB it made this process larger."""
    before = resident_mb()
    result = make()
    return result, resident_mb() - before


def copy_photos(source: Path, target: Path, most: int) -> int:
    """The first photos of a folder."""
    names = list_images(source)[:most]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target / name)
    return len(names)


def photos_and_pairs(photos: Path, work: Path, keypoints: int, neighbours: int) -> tuple[float, float]:
    """Print the costs of each step; processor seconds of extraction for a photo, of matching for a pair."""
    extractor = NetworkExtractor(load("default"), ExtractionOptions(SelectionOptions(max_keypoints=keypoints)))
    features, matches, database = work / "features.h5", work / "matches.h5", work / "database.db"
    report, seconds = timed(lambda: extract_folder(extractor, photos, features))
    count = report.num_extracted
    extraction_s = seconds / count
    with FeatureStore(features) as store:
        names = store.names()
        mean = sum(store.num_keypoints(name) for name in names) / count
        _, index_s = timed(lambda: index_images(store, names))
    print(
        f"extract    {extraction_s * 1e3:7.1f} ms, {features.stat().st_size / count / 1e3:6.1f} kB a photo ({mean:.0f} keypoints)"
    )
    print(f"retrieval  {index_s / count * 1e3:7.1f} ms a photo for its vector (learning the vocabulary included)")
    selected = select_pairs(
        features, work / "pairs.txt", PairSelectionOptions(method="retrieval", neighbours=neighbours)
    )
    pairs = [tuple(line.split()) for line in (work / "pairs.txt").read_text().splitlines()]
    matched, seconds = timed(lambda: match_pairs(features, pairs, matches))  # type: ignore[arg-type]
    matching_s = seconds / matched.num_matched
    print(f"match      {matching_s * 1e3:7.1f} ms, {matches.stat().st_size / matched.num_matched / 1e3:6.1f} kB a pair")
    verified, seconds = timed(lambda: verify_pairs(features, matches, photos, database, VerificationOptions(threads=1)))
    size = database.stat().st_size
    print(
        f"verify     {seconds / selected.num_pairs * 1e3:7.1f} ms a pair, {verified.num_verified} of {selected.num_pairs} verified"
    )
    keypoint_bytes = 8 * mean * count
    print(
        f"database   {size / 1e6:.1f} MB: {keypoint_bytes / count / 1e3:.1f} kB a photo of keypoints, "
        f"{(size - keypoint_bytes) / selected.num_pairs / 1e3:.1f} kB a pair"
    )
    print(f"pairs      {selected.num_pairs / count:.1f} a photo with {neighbours} neighbours each")
    return extraction_s, matching_s


def search(num_images: int) -> None:
    """Print what exact search for neighbours costs, from a part of it."""
    vectors, queries = torch.nn.functional.normalize(torch.randn(num_images, 128), dim=1), 1024
    index = ImageIndex(("",) * num_images, vectors, vectors[:1], vectors[0], vectors[:1])
    before = resident_mb()
    _, seconds = timed(lambda: index.nearest(vectors[:queries], 20))
    print(
        f"search     {seconds / queries * num_images / 3600:7.2f} h for the 20 nearest of each of {num_images:,} photos, "
        f"{vectors.nbytes / 1e6:.0f} MB of vectors and {max(resident_mb() - before, 0):.0f} MB at work"
    )


def driver(num_images: int) -> None:
    """Print what the driver of a Ray job holds and computes."""
    names, mb = grown(lambda: [f"folder {n // 1000:05d}/photo {n:09d}.jpg" for n in range(num_images)])
    tasks, seconds = timed(lambda: sum(1 for _ in cut(names, 32)))
    index, index_mb = grown(lambda: {name: f"{number // 32:024x}" for number, name in enumerate(names)})
    print(
        f"driver     {mb:.0f} MB for {len(names):,} names, {tasks:,} tasks cut in {seconds:.1f} s, "
        f"{index_mb:.0f} MB for the index of {len(index):,} entries"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--most", type=int, default=100, help="photos to take")
    parser.add_argument("--keypoints", type=int, default=2048)
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--images", type=int, default=MILLION, help="of the job to look ahead to")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder, "photos")
        copy_photos(arguments.photos, photos, arguments.most)
        extraction_s, matching_s = photos_and_pairs(photos, Path(folder), arguments.keypoints, arguments.neighbours)
    search(arguments.images)
    driver(arguments.images)
    num_pairs = arguments.images * arguments.neighbours * 0.75
    for what, seconds in (("extraction", extraction_s * arguments.images), ("matching", matching_s * num_pairs)):
        print(f"{what} of {arguments.images:,} photos: {seconds / DAY_S:.1f} core days")


if __name__ == "__main__":
    main()
