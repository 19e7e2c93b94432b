"""A folder of photos -> a feature store. Goes on where it stopped; a photo that cannot be used costs itself only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from posfeat.data.images import IMAGE_SUFFIXES, RGB, shown
from posfeat.matching import MatchOptions, own_matching
from posfeat.networks.checkpoint import weights_digest
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.networks.views import Mask
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import DescriptorFormat, FeatureStore
from posfeat.pipeline.photo_features import Pixels, Workshop, features_in_turn
from posfeat.pipeline.rootsift import FINGERPRINT, extract_rootsift
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import DataError, Features, StoreError

SIFT_RATIO = 0.8  # Lowe's

MOST_PHOTOS_AT_ONCE = 4  # on a processor: each needs the memory of a tile, and more cores then share a photo
PHOTOS_IN_A_BATCH = 8  # on accelerators, where tile_pixels leaves room for as many

Progress = Callable[[int, int], None]


class Extractor(Protocol):
    """What turns a photo into features."""

    @property
    def settings(self) -> dict[str, Any]:
        """What names it exactly: a store goes on with the same settings only."""
        ...

    @property
    def own_matching(self) -> MatchOptions:
        """How its features are matched unless somebody says otherwise."""
        ...

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        """The features of a photo; nothing is found where ``allowed`` is False."""
        ...


@dataclass(frozen=True)
class NetworkExtractor:
    """A model of ours."""

    model: PoSFeat
    options: ExtractionOptions

    @property
    def settings(self) -> dict[str, Any]:
        return {"weights": weights_digest(self.model), "extraction": options_to_mapping(self.options)}

    @property
    def own_matching(self) -> MatchOptions:
        return own_matching(weights_digest(self.model))

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        return self.model.extract(rgb, mask=allowed, options=self.options)

    def extract_all(self, photos: Sequence[Pixels]) -> list[Features]:
        """The features of several photos; accelerators take those of one size together."""
        if self.model.device.type == "cpu" or any(allowed is not None for _, allowed in photos):
            return [self.extract(rgb, allowed) for rgb, allowed in photos]
        return self.model.extract_batch([rgb for rgb, _ in photos], self.options)


@dataclass(frozen=True)
class RootSiftExtractor:
    """RootSIFT, which needs no weights."""

    max_keypoints: int

    @property
    def settings(self) -> dict[str, Any]:
        return {"weights": FINGERPRINT, "extraction": {"selection": {"max_keypoints": self.max_keypoints}}}

    @property
    def own_matching(self) -> MatchOptions:
        return MatchOptions(ratio=SIFT_RATIO)

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        return extract_rootsift(rgb, self.max_keypoints, allowed)


@dataclass(frozen=True)
class ExtractionReport:
    """What became of a folder's photos; ``failures`` holds a line for each that could not be used."""

    num_extracted: int
    num_known: int  # in the store already
    failures: tuple[str, ...]
    num_without_mask: int = 0  # looked at as a whole, although there is a mask folder


def extract_folder(
    model: PoSFeat | Extractor,
    image_folder: Path,
    store_path: Path,
    options: ExtractionOptions | None = None,
    *,
    names: Sequence[str] | None = None,
    mask_folder: Path | None = None,
    descriptor_format: DescriptorFormat = "float16",
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> ExtractionReport:
    """Extract every photo below a folder into a store, leaving out those that the store has.

    ``options`` are those of a model; any other extractor has its own. With ``names`` only these photos are taken, and
    the folder is not listed. ``mask_folder`` may be one mask for all of them. ``progress`` hears how many of all photos are done, ``on_failure`` each line as it comes.
    """
    extractor = NetworkExtractor(model, options or ExtractionOptions()) if isinstance(model, PoSFeat) else model
    failures: list[str] = []

    def failed(line: str) -> None:
        failures.append(line)
        if on_failure:
            on_failure(line)

    if names is None:
        names = list_images(image_folder, mask_folder, failed)
        if not names:
            raise DataError(f"there are no photos in {shown(image_folder)}; check the name, and what format they have")
        if mask_folder is not None:
            require_masks(mask_folder, names)
    masks = {} if mask_folder is None else find_masks(mask_folder, names)
    num_extracted = num_known = 0
    with FeatureStore(store_path, "a", extractor.settings) as store:
        wanted, num_known = _not_in_store(store, names, failed)
        found = features_in_turn(_workshop(extractor), image_folder, wanted, masks)
        write = partial(store.write_all, descriptor_format=descriptor_format)
        with closing(found), WriteBatch[tuple[str, Features]](write, behind=True) as batch:
            for done, (name, outcome) in enumerate(found, start=1):
                if isinstance(outcome, str):
                    failed(outcome)
                else:
                    batch.add((name, outcome))
                    num_extracted += 1
                if batch.write_if_due() and progress:
                    progress(len(names) - len(wanted) + done, len(names))
    if progress:
        progress(len(names), len(names))
    num_without_mask = 0 if mask_folder is None else len(names) - len(masks)
    return ExtractionReport(num_extracted, num_known, tuple(failures), num_without_mask)


def list_images(
    folder: Path, without: Path | None = None, on_failure: Callable[[str], None] | None = None
) -> list[str]:
    """Photos below a folder, by their paths in it with '/', in alphabetical order. Hidden files are left out."""
    if folder.is_file():
        raise DataError(f"{shown(folder)} is a file; give the folder that it is in")
    if not folder.is_dir():
        raise DataError(f"there is no image folder {shown(folder)}; check the name")

    def unreadable(error: OSError) -> None:
        if on_failure:
            on_failure(f"cannot look into {shown(error.filename)}: {error.strerror}; check its permissions")

    excluded = None if without is None else without.resolve()
    names = []
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        here = Path(parent)
        folders[:] = [f for f in folders if not f.startswith(".") and (here / f).resolve() != excluded]
        pictures = (here / f for f in files if not f.startswith(".") and Path(f).suffix.lower() in IMAGE_SUFFIXES)
        names += [p.relative_to(folder).as_posix() for p in pictures if excluded is None or p.resolve() != excluded]
    return sorted(names)


def find_masks(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The mask of each image that has one: ``a/b.jpg.png`` (COLMAP's way), ``a/b.png`` or ``a/b.jpg`` for a/b.jpg.

    Where ``folder`` is a picture, that is the mask of all.
    """
    if folder.is_file():
        return dict.fromkeys(names, folder)
    found = ((name, _find_mask(folder / name)) for name in names)
    return {name: path for name, path in found if path is not None}


def require_masks(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder that has no mask for any image: a slip in a path would go unnoticed."""
    if names and not folder.is_file() and all(_find_mask(folder / name) is None for name in names):
        raise DataError(
            f"no image has a mask in {shown(folder)}; the mask of {shown(names[0])} is {shown(names[0])}.png"
        )


def _find_mask(path: Path) -> Path | None:
    candidates = (path.with_name(path.name + ".png"), path.with_suffix(".png"), path)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _workshop(extractor: Extractor) -> Workshop:
    """How photos are shared out: several at once where that is faster."""
    if not isinstance(extractor, NetworkExtractor):
        return Workshop(lambda photos: [extractor.extract(rgb, allowed) for rgb, allowed in photos])
    if extractor.model.device.type == "cpu":
        return Workshop(extractor.extract_all, calls_at_once=min(torch.get_num_threads(), MOST_PHOTOS_AT_ONCE))
    return Workshop(extractor.extract_all, photos_in_a_call=PHOTOS_IN_A_BATCH)


def _not_in_store(store: FeatureStore, names: Sequence[str], failed: Callable[[str], None]) -> tuple[list[str], int]:
    """The names that are not in the store, without those that cannot be; and how many are."""
    wanted, num_known = [], 0
    for name in names:
        try:
            known = name in store
        except StoreError as error:
            failed(str(error))
            continue
        num_known += known
        if not known:
            wanted.append(name)
    return wanted, num_known
