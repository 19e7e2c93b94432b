"""What somebody has -> posed photos: a scene with poses as it is, a folder of photos after a reconstruction.

A folder is reconstructed with the weights at hand and with RootSIFT, and the model with more photos is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from posfeat.data.colmap import read_colmap
from posfeat.data.posed import find_scenes, read_posed
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.pipeline.choose_cameras import CameraOptions, Sharing
from posfeat.pipeline.extract import Extractor, NetworkExtractor, RootSiftExtractor, find_masks, list_images
from posfeat.pipeline.reconstruct import ReconstructionOptions, reconstruct
from posfeat.pipeline.select_pairs import PairSelectionOptions
from posfeat.types import DataError, ReconstructionError, View

PairMethod = Literal["auto", "exhaustive", "sequential", "retrieval"]
ProgressBars = Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]


@dataclass(frozen=True)
class Reconstructed:
    """A folder of photos with poses, and how many each kind of features placed."""

    views: list[View]
    features: str
    registered: dict[str, int]
    num_photos: int


def is_plain_folder(path: Path) -> bool:
    """Whether this is a folder of photos without poses; DataError where it is neither that nor posed photos."""
    try:
        find_scenes(path)
    except DataError:
        if path.is_dir() and list_images(path) and not any(path.rglob("images.bin")):
            return True
        raise
    return False


def read_posed_photos(path: Path, masks: Path | None, report: Callable[[str], None]) -> list[View]:
    """Posed photos of any layout, every name once, with their masks."""
    views = read_posed(path, report=report)
    several = len({view.scene for view in views}) > 1
    named = [replace(view, name=f"{view.scene}/{view.name}") if several else view for view in views]
    return _with_masks(named, masks, [view.name for view in views])


def reconstruct_photos(
    photos: Path,
    output: Path,
    model: PoSFeat,
    model_name: str,
    with_rootsift: bool,
    keypoints: int,
    pairs: PairMethod,
    share_camera: Sharing,
    masks: Path | None,
    progress_bar: ProgressBars,
    report: Callable[[str], None],
) -> Reconstructed:
    """Reconstruct with our features, and with RootSIFT if asked; what places more photos wins, ours if both do."""
    options = ReconstructionOptions(pairs=PairSelectionOptions(method=pairs), cameras=CameraOptions(share=share_camera))
    ours = ExtractionOptions()
    ours = replace(ours, selection=replace(ours.selection, max_keypoints=keypoints))
    extractors: dict[str, Extractor] = {model_name: NetworkExtractor(model, ours)}
    if with_rootsift:
        extractors["rootsift"] = RootSiftExtractor(keypoints)
    registered: dict[str, int] = {}
    failures = []
    for name, extractor in extractors.items():
        try:
            summary = reconstruct(
                extractor,
                photos,
                output / name,
                options,
                mask_folder=masks,
                formats=(),
                progress_bar=lambda step, name=name: progress_bar(f"{name}: {step}"),  # type: ignore[misc]
                on_failure=report,
            )
            registered[name] = summary.model.num_images
        except ReconstructionError as error:
            registered[name] = 0
            failures.append(f"with {name}: {error}")
    best = max(registered, key=lambda name: registered[name])
    if registered[best] == 0:
        raise DataError(f"the photos in {photos} could not be reconstructed, so there are no poses; {failures[0]}")
    views = [replace(v, scene=photos.name) for v in read_colmap(output / best / "sparse" / "0", photos)]
    names = [view.name for view in views]
    return Reconstructed(_with_masks(views, masks, names), best, registered, len(list_images(photos, masks)))


def evenly(views: Sequence[View], most: int) -> list[View]:
    """At most so many of the views, each scene's evenly over the order of its names."""
    if len(views) <= most:
        return list(views)
    kept: list[View] = []
    ordered = sorted(views, key=lambda view: (view.scene, view.name))
    for _, group in groupby(ordered, key=lambda view: view.scene):
        scene = list(group)
        count = max(2, round(most * len(scene) / len(views)))
        chosen = np.unique(np.linspace(0, len(scene) - 1, min(count, len(scene))).round().astype(int))
        kept += [scene[i] for i in chosen]
    return kept


def _with_masks(views: list[View], masks: Path | None, names: Sequence[str]) -> list[View]:
    if masks is None:
        return views
    found = find_masks(masks, names)
    pairs = zip(views, names, strict=True)
    return [replace(view, mask_path=found.get(name, view.mask_path)) for view, name in pairs]
