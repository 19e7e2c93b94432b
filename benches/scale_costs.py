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
from typing import NamedTuple, TypeVar

import torch
from extract_memory import resident_mb

from posfeat.interop.colmap_mapping import VerificationOptions
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import NetworkExtractor, extract_folder, list_images
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import match_pairs, read_pairs
from posfeat.pipeline.retrieval import ImageIndex, index_images
from posfeat.pipeline.select_pairs import PairSelectionOptions, select_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.scale.sharded_job import cut

MILLION = 10**6
DAY_S = 86_400
PAIRS_OF_A_NEIGHBOUR = 0.75  # half a pair where each is the other's neighbour, a whole one where not
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


class Costs(NamedTuple):
    """Processor seconds and bytes of each step, for a photo or for a pair."""

    extraction_s: float
    feature_bytes: float
    vector_s: float
    matching_s: float
    match_bytes: float
    verification_s: float
    keypoint_bytes: float  # in the database
    geometry_bytes: float


def photos_and_pairs(photos: Path, work: Path, keypoints: int, neighbours: int) -> Costs:
    """Run each step on the photos, and print what it costs."""
    extractor = NetworkExtractor(load("default"), ExtractionOptions(SelectionOptions(max_keypoints=keypoints)))
    features, matches, database = work / "features.h5", work / "matches.h5", work / "database.db"
    report, extraction_s = timed(lambda: extract_folder(extractor, photos, features))
    count = report.num_extracted
    with FeatureStore(features) as store:
        names = store.names()
        mean = sum(store.num_keypoints(name) for name in names) / count
        _, vectors_s = timed(lambda: index_images(store, names))
    options = PairSelectionOptions(method="retrieval", neighbours=neighbours)
    num_pairs = select_pairs(features, work / "pairs.txt", options).num_pairs
    pairs = read_pairs(work / "pairs.txt", names)
    _, matching_s = timed(lambda: match_pairs(features, pairs, matches))
    verified, verification_s = timed(
        lambda: verify_pairs(features, matches, photos, database, VerificationOptions(threads=1))
    )
    keypoint_bytes = 8 * mean
    costs = Costs(
        extraction_s / count,
        features.stat().st_size / count,
        vectors_s / count,
        matching_s / num_pairs,
        matches.stat().st_size / num_pairs,
        verification_s / num_pairs,
        keypoint_bytes,
        (database.stat().st_size - keypoint_bytes * count) / num_pairs,
    )
    ms, kb = 1e3, 1e-3
    print(
        f"{count} photos, {mean:.0f} keypoints each; {num_pairs} pairs, of which {verified.num_verified} are verified"
    )
    print(f"extract    {costs.extraction_s * ms:7.1f} ms a photo {costs.feature_bytes * kb:7.1f} kB")
    print(f"vector     {costs.vector_s * ms:7.1f} ms a photo (learning the vocabulary included)")
    print(f"match      {costs.matching_s * ms:7.1f} ms a pair  {costs.match_bytes * kb:7.1f} kB")
    print(f"verify     {costs.verification_s * ms:7.1f} ms a pair  {costs.geometry_bytes * kb:7.1f} kB of the database")
    print(f"database   {costs.keypoint_bytes * kb:7.1f} kB a photo of keypoints")
    return costs


def look_ahead(costs: Costs, num_images: int, num_pairs: float) -> None:
    """Print what that makes for many photos."""
    print(f"\n{num_images:,} photos, {num_pairs:,.0f} pairs")
    for what, count, seconds, size in (
        ("extraction", num_images, costs.extraction_s, costs.feature_bytes),
        ("vectors", num_images, costs.vector_s, 4 * 128.0),
        ("matching", num_pairs, costs.matching_s, costs.match_bytes),
        ("verification", num_pairs, costs.verification_s, costs.geometry_bytes),
    ):
        print(f"{what:12} {count * seconds / DAY_S:6.2f} core days {count * size / 1e9:8.1f} GB written")
    print(f"keypoints in the database {num_images * costs.keypoint_bytes / 1e9:.1f} GB")
    print(f"features read for matching {(num_images + num_pairs) * costs.feature_bytes / 1e12:.1f} TB at most")


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
        costs = photos_and_pairs(photos, Path(folder), arguments.keypoints, arguments.neighbours)
    search(arguments.images)
    driver(arguments.images)
    look_ahead(costs, arguments.images, arguments.images * arguments.neighbours * PAIRS_OF_A_NEIGHBOUR)


if __name__ == "__main__":
    main()
