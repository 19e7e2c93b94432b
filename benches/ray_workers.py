"""Extraction on Ray: one worker beside two, taking turns; the ratio of their rates.

    python benches/ray_workers.py
    python benches/ray_workers.py --photos 256 --rounds 3 --rootsift

Each worker has one thread. A cluster of two one-core nodes runs here; the run with one worker uses one of the two. Photos
are made in a temporary folder. What stands beside a rate is the share of all cores that was idle.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from extract_memory import make_extractor, make_photos
from in_turn import Row
from ray.cluster_utils import Cluster

from posfeat.pipeline.extract import Extractor, RootSiftExtractor
from posfeat.scale.cluster import ClusterOptions
from posfeat.scale.extract import extract_on_ray

OBJECT_STORE_BYTES = 80 * 2**20
AT_LEAST = 1.7  # times one worker's rate
Seconds = dict[int, list[float]]  # of each round, by the number of workers


def cpu_ticks() -> tuple[int, int]:
    """Idle and all ticks of the machine's cores."""
    values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return values[3] + values[4], sum(values)


@ray.remote(num_cpus=1)
def wait_until_over(started: Path, over: Path) -> None:
    """Keeps a worker from other tasks. An actor would take a process of its own, for which Ray ends the idle worker."""
    started.touch()
    while not over.exists():
        time.sleep(0.05)


@contextmanager
def two_nodes() -> Iterator[None]:
    """A cluster of two nodes of one core each, and a head that takes no tasks."""
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def only(workers: int) -> Iterator[None]:
    """One of the two workers busy, where one worker is wanted."""
    with tempfile.TemporaryDirectory() as folder:
        started, over = Path(folder, "started"), Path(folder, "over")
        waiting = [wait_until_over.remote(started, over)] if workers == 1 else []
        while waiting and not started.exists():
            time.sleep(0.05)
        yield
        over.touch()
        ray.get(waiting)


def measure(extractor: Extractor, num_photos: int, rounds: int) -> Seconds:
    """Extract the same photos with one and with two workers by turns; in a first round, which does not count, they start."""
    seconds: Seconds = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder, two_nodes():
        photos = Path(folder, "photos")
        make_photos(photos, num_photos, 640, 480)
        for turn in range(rounds + 1):
            for workers in (1, 2):
                with only(workers):
                    output, (idle, total) = Path(folder, f"features {turn} {workers}"), cpu_ticks()
                    start = time.perf_counter()
                    report = extract_on_ray(extractor, str(photos), str(output), ClusterOptions("auto"))
                    taken = time.perf_counter() - start
                assert report.num_extracted == num_photos
                idle_now, total_now = cpu_ticks()
                if turn:
                    seconds[workers].append(taken)
                    free = (idle_now - idle) / (total_now - total)
                    line = f"{workers} worker(s): {num_photos / taken:.2f} photos a second, {free:.0%} of cores idle"
                    print(line, file=sys.stderr, flush=True)
    return seconds


def rows() -> list[Row]:
    num_photos = 192
    one, two = (min(times) / num_photos * 1e3 for times in measure(make_extractor(), num_photos, rounds=3).values())
    return [Row("photo on Ray, two workers", "one worker", two, one, "ms", 1 / AT_LEAST)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keypoints", type=int, default=2048)
    parser.add_argument("--rootsift", action="store_true", help="RootSIFT's features and not the default model's")
    arguments = parser.parse_args()
    keypoints = arguments.keypoints
    extractor: Extractor = RootSiftExtractor(keypoints) if arguments.rootsift else make_extractor(keypoints)
    seconds = measure(extractor, arguments.photos, arguments.rounds)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    print(
        f"two workers over one: {min(seconds[1]) / min(seconds[2]):.2f} (rounds: {', '.join(f'{r:.2f}' for r in ratios)})"
    )


if __name__ == "__main__":
    main()
