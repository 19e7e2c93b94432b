"""A folder of photos -> a feature store. Goes on where it stopped; a photo that cannot be used costs itself only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from posfeat.data.images import IMAGE_SUFFIXES, RGB, shown
from posfeat.matching import MatchOptions
from posfeat.networks.checkpoint import weights_digest
from posfeat.networks.extraction import ExtractionOptions, read_pixels
from posfeat.networks.posfeat import PoSFeat
from posfeat.networks.views import Mask
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import DescriptorFormat, FeatureStore
from posfeat.pipeline.rootsift import FINGERPRINT, extract_rootsift
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import DataError, Features, PosfeatError, StoreError

SIFT_RATIO = 0.8  # Lowe's

Progress = Callable[[int, int], None]
Pixels = tuple[RGB, Mask | None]


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
        return MatchOptions()

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        return self.model.extract(rgb, mask=allowed, options=self.options)


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
    the folder is not listed. ``progress`` hears how many of all photos are done, ``on_failure`` each line as it comes.
    """
    extractor = NetworkExtractor(model, options or ExtractionOptions()) if isinstance(model, PoSFeat) else model
    failures: list[str] = []

    def failed(line: str) -> None:
        failures.append(line)
        if on_failure:
            on_failure(line)

    if names is None:
        names = list_images(image_folder, mask_folder, failed)
        if mask_folder is not None:
            require_masks(mask_folder, names)
    masks = {} if mask_folder is None else find_masks(mask_folder, names)
    num_extracted = num_known = 0
    with FeatureStore(store_path, "a", extractor.settings) as store:
        wanted, num_known = _not_in_store(store, names, failed)
        with WriteBatch[tuple[str, Features]](lambda items: store.write_all(items, descriptor_format)) as batch:
            for done, (name, pixels) in enumerate(_decoded(image_folder, wanted, masks), start=1):
                outcome = _features_of(extractor, name, pixels)
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
        names += [picture.relative_to(folder).as_posix() for picture in pictures]
    return sorted(names)


def find_masks(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The mask of each image that has one: ``a/b.jpg.png`` (COLMAP's way), ``a/b.png`` or ``a/b.jpg`` for a/b.jpg."""
    found = ((name, _find_mask(folder / name)) for name in names)
    return {name: path for name, path in found if path is not None}


def require_masks(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder that has no mask for any image: a slip in a path would go unnoticed."""
    if names and all(_find_mask(folder / name) is None for name in names):
        raise DataError(
            f"no image has a mask in {shown(folder)}; the mask of {shown(names[0])} is {shown(names[0])}.png"
        )


def _find_mask(path: Path) -> Path | None:
    candidates = (path.with_name(path.name + ".png"), path.with_suffix(".png"), path)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _decoded(folder: Path, names: Sequence[str], masks: dict[str, Path]) -> Iterator[tuple[str, Future[Pixels]]]:
    """Images in turn; while one is in use the next is read, and no more than that."""
    with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
        coming: Future[Pixels] | None = None
        for name, next_name in zip_longest(names, names[1:]):
            current = coming or pool.submit(read_pixels, folder / name, masks.get(name))
            coming = None
            current.exception()  # waits
            if next_name is not None:
                coming = pool.submit(read_pixels, folder / next_name, masks.get(next_name))
            yield name, current


def _features_of(extractor: Extractor, name: str, pixels: Future[Pixels]) -> Features | str:
    """The features of an image, or the line that says why there are none."""
    try:
        rgb, allowed = pixels.result()
        return extractor.extract(rgb, allowed)
    except PosfeatError as error:
        return str(error)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return f"{shown(name)} does not fit into memory; shrink it, or run it in smaller tiles"


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
