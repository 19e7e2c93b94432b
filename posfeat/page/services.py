"""What all routes share: one of each, for all clients."""

from __future__ import annotations

from dataclasses import dataclass

from posfeat.page.analysis import Analysis
from posfeat.page.compute_queue import ComputeQueue
from posfeat.page.limits import Limits
from posfeat.page.methods import Methods
from posfeat.page.photos import Photos
from posfeat.page.roots import Roots


@dataclass(frozen=True)
class Services:
    """The parts of the server. What the network does, matching, and reading wait in lines of their own."""

    limits: Limits
    roots: Roots
    methods: Methods
    photos: Photos
    analysis: Analysis
    network: ComputeQueue
    matching: ComputeQueue
    reading: ComputeQueue

    def close(self) -> None:
        """Begin nothing more."""
        for queue in (self.network, self.matching, self.reading):
            queue.close()


def build_services(limits: Limits, roots: Roots, methods: Methods) -> Services:
    """Wire the parts."""
    photos = Photos(roots, limits)
    return Services(
        limits,
        roots,
        methods,
        photos,
        Analysis(photos, methods, limits),
        network=ComputeQueue("network", limits.waiting_jobs),
        matching=ComputeQueue("matching", limits.waiting_matches),
        reading=ComputeQueue("reading", limits.waiting_matches),
    )
