"""What all routes share: one of each, for all clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from posfeat.page.analysis import Analysis
from posfeat.page.bounded_cache import BoundedCache
from posfeat.page.compute_queue import ComputeQueue
from posfeat.page.limits import Limits
from posfeat.page.methods import Methods
from posfeat.page.photos import Photos
from posfeat.page.reconstructions import Reconstructions
from posfeat.page.roots import Roots
from posfeat.page.scene_files import Scene


@dataclass(frozen=True)
class Services:
    """The parts of the server. What the network does, matching, and reading wait in lines of their own."""

    limits: Limits
    roots: Roots
    methods: Methods
    photos: Photos
    analysis: Analysis
    scenes: BoundedCache[Scene]
    reconstructions: Reconstructions
    network: ComputeQueue
    matching: ComputeQueue
    reading: ComputeQueue
    models: ComputeQueue

    def close(self) -> None:
        """Begin nothing more."""
        self.reconstructions.close()
        for queue in (self.network, self.matching, self.reading, self.models):
            queue.close()


def build_services(limits: Limits, roots: Roots, methods: Methods, output: Path) -> Services:
    """Wire the parts; reconstructions are written below ``output``."""
    photos = Photos(roots, limits)
    return Services(
        limits,
        roots,
        methods,
        photos,
        Analysis(photos, methods, limits),
        scenes=BoundedCache(limits.scene_memory_mb * 2**20),
        reconstructions=Reconstructions(roots, methods, output, limits),
        network=ComputeQueue("network", limits.waiting_jobs),
        matching=ComputeQueue("matching", limits.waiting_matches),
        reading=ComputeQueue("reading", limits.waiting_matches),
        models=ComputeQueue("models", limits.waiting_jobs),
    )
