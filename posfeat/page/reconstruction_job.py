"""A reconstruction in a process of its own, so that it can be stopped: ``python -m posfeat.page.reconstruction_job JSON``.

The argument is a JobRequest as JSON. Standard output has a JSON value in each line: {"step", "done", "total"} as it goes on,
{"line"} for what had to be left out, and at the end {"summary"} or {"error"}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posfeat.interop.colmap import load_pycolmap
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.options import options_from_mapping
from posfeat.pipeline.choose_cameras import CameraOptions, Sharing
from posfeat.pipeline.extract import Extractor, NetworkExtractor, RootSiftExtractor
from posfeat.pipeline.reconstruct import Progress, ReconstructionOptions, ReconstructionSummary, reconstruct
from posfeat.pipeline.select_pairs import PairSelectionOptions
from posfeat.types import PosfeatError

POLITENESS = 5  # the server that started this one goes first


@dataclass(frozen=True)
class JobRequest:
    """What is to be reconstructed; ``weights`` of "" means RootSIFT."""

    photos: str
    output: str
    weights: str
    max_keypoints: int = 4096
    pairs: Literal["auto", "exhaustive", "sequential", "retrieval"] = "auto"
    share_camera: Sharing = "auto"


def main() -> None:
    """Reconstruct what the argument says."""
    request = options_from_mapping(JobRequest, json.loads(sys.argv[1]))
    if hasattr(os, "nice"):
        os.nice(POLITENESS)
    try:
        load_pycolmap()  # it is missed before anything is worked out
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # its own answer would be a page of addresses
        summary = run(request)
    except (PosfeatError, OSError) as error:
        tell({"error": " ".join(str(error).split())})
        sys.exit(1)
    tell({"summary": summary_json(summary)})


def run(request: JobRequest) -> ReconstructionSummary:
    """The reconstruction, telling how far it is."""
    options = ReconstructionOptions(
        pairs=PairSelectionOptions(method=request.pairs), cameras=CameraOptions(share=request.share_camera)
    )

    @contextmanager
    def progress_bar(step: str) -> Iterator[Progress]:
        tell({"step": step, "done": 0, "total": 0})
        yield lambda done, total: tell({"step": step, "done": done, "total": total})

    return reconstruct(
        extractor(request),
        Path(request.photos),
        Path(request.output),
        options,
        formats=(),
        progress_bar=progress_bar,
        on_failure=lambda line: tell({"line": line}),
    )


def extractor(request: JobRequest) -> Extractor:
    """What turns photos into features."""
    if not request.weights:
        return RootSiftExtractor(request.max_keypoints)
    selection = SelectionOptions(max_keypoints=request.max_keypoints)
    return NetworkExtractor(load(request.weights), ExtractionOptions(selection=selection))


def summary_json(summary: ReconstructionSummary) -> dict[str, Any]:
    """How it went, without what grows with the number of photos."""
    return {
        "photos": summary.num_photos,
        "images": summary.model.num_images,
        "points": summary.model.num_points,
        "seconds": round(sum(summary.seconds.values()), 1),
        "doubts": list(summary.doubts),
        "left_out": dict(list(summary.left_out.items())[:20]),
        "track_length": round(summary.model.mean_track_length, 2),
        "reprojection_error_px": round(summary.model.mean_reprojection_error_px, 3),
    }


def tell(value: dict[str, Any]) -> None:
    """One line for the server; without a server this process ends."""
    try:
        print(json.dumps(value), flush=True)
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
