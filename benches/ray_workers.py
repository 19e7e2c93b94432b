"""Extraction on Ray: one worker beside two, taking turns; the ratio of their rates.

    python benches/ray_workers.py
    python benches/ray_workers.py --photos 256 --rounds 3 --rootsift

Each worker has one thread. A cluster of two one-core nodes runs here; the run with one worker uses one of the two. Photos
are made in a temporary folder. ``cpu`` is the share of the two cores that other programs left over.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from extract_memory import make_photos
from ray.cluster_utils import Cluster

from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import Extractor, NetworkExtractor, RootSiftExtractor
from posfeat.scale.cluster import ClusterOptions
from posfeat.scale.extract import extract_on_ray

OBJECT_STORE_BYTES = 80 * 2**20


def cpu_ticks() -> tuple[int, int]:
    """Idle and all ticks of the machine's cores."""
    values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return values[3] + values[4], sum(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keypoints", type=int, default=2048)
    parser.add_argument("--rootsift", action="store_true", help="RootSIFT's features and not the default model's")
    arguments = parser.parse_args()
    extractor: Extractor = RootSiftExtractor(arguments.keypoints)
    if not arguments.rootsift:
        options = ExtractionOptions(SelectionOptions(max_keypoints=arguments.keypoints))
        extractor = NetworkExtractor(load("default"), options)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES, resources={"core": 1})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

    @ray.remote(num_cpus=1)
    class Occupied:
        """Keeps one of the two cores from taking tasks."""

        def ready(self) -> bool:
            return True

    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder, "photos")
        make_photos(photos, arguments.photos, 640, 480)
        for turn in range(arguments.rounds + 1):
            for workers in (1, 2):
                occupied = Occupied.remote() if workers == 1 else None
                if occupied is not None:
                    ray.get(occupied.ready.remote())
                idle, total = cpu_ticks()
                start = time.perf_counter()
                output = Path(folder, f"features {turn} {workers}")
                report = extract_on_ray(extractor, str(photos), str(output), ClusterOptions("auto"), photos_a_task=8)
                taken = time.perf_counter() - start
                assert report.num_extracted == arguments.photos
                idle_now, total_now = cpu_ticks()
                free = (idle_now - idle) / (total_now - total)
                if turn:  # in the first round workers start
                    seconds[workers].append(taken)
                    rate = arguments.photos / taken
                    print(f"{workers} worker(s): {rate:.2f} photos a second, {free:.0%} of cores idle", flush=True)
                if occupied is not None:
                    ray.kill(occupied)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    print(f"two workers over one: {statistics.median(ratios):.2f} (median of {', '.join(f'{r:.2f}' for r in ratios)})")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
