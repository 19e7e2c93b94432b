"""How many of the held-out photos come into one model when they alone are reconstructed: the whole chain in one number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.pipeline.extract import NetworkExtractor
from posfeat.pipeline.reconstruct import ReconstructionOptions, reconstruct
from posfeat.types import MissingExtraError, ReconstructionError, View

MOST_PHOTOS = 60  # in the order of places, so that they hold together; more would take too long for a number
ProgressBars = Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]


def registered_photos(
    model: PoSFeat, views: Sequence[View], folder: Path, keypoints: int, progress_bar: ProgressBars
) -> int | None:
    """Photos in the largest model, their lenses known; None without pycolmap."""
    shutil.rmtree(folder, ignore_errors=True)
    copies = [replace(view, image_path=folder / "photos" / view.name) for view in views]
    copies = [replace(view, image_path=view.image_path.with_suffix(".png")) for view in copies]
    for view, copy in zip(views, copies, strict=True):
        copy.image_path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(view.image_path, copy.image_path)
    write_cameras_txt(folder / "cameras.txt", copies)
    options = ExtractionOptions()
    options = replace(options, selection=replace(options.selection, max_keypoints=keypoints))
    try:
        summary = reconstruct(
            NetworkExtractor(model, options),
            folder / "photos",
            folder / "scene",
            ReconstructionOptions(),
            cameras=folder / "cameras.txt",
            formats=(),
            progress_bar=progress_bar,
        )
        return summary.model.num_images
    except MissingExtraError:
        return None
    except ReconstructionError:
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
