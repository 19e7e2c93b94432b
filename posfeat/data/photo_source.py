"""Plain photos as a source of training pairs: each pair is rendered from one photo, then both views change their look."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from posfeat.data.augment import PhotometricOptions, photometric
from posfeat.data.images import IMAGE_SUFFIXES, read_image, resize_longest, shown
from posfeat.data.pair_sample import PairSample, Pixels
from posfeat.data.synthetic import SyntheticOptions, render_pair
from posfeat.types import DataError, ImageError

MIN_SIDE_PX = 64  # a smaller photo has nothing to teach
MAX_SIDE_PX = 1024  # a larger one is shrunk: views are rendered at a few hundred pixels, and memory holds more photos


class ImageCache:
    """Decoded images, least recently used out first, within a bound on memory; safe for several threads."""

    def __init__(self, max_bytes: int, load: Callable[[Path], Pixels] = read_image) -> None:
        self._max_bytes, self._load = max_bytes, load
        self._images: OrderedDict[Path, Pixels] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ImageCache], tuple[int, Callable[[Path], Pixels]]]:
        return ImageCache, (self._max_bytes, self._load)  # another process starts with an empty one

    def read(self, path: Path) -> Pixels:
        """The image in a file; not to be written to."""
        with self._lock:
            if path in self._images:
                self._images.move_to_end(path)
                return self._images[path]
        image = self._load(path)
        with self._lock:
            if path not in self._images:
                self._images[path] = image
                self._bytes += image.nbytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._images.popitem(last=False)[1].nbytes
        return image


class PhotoSource:
    """Pairs rendered from the photos of a folder (searched with its sub-folders) or of a list of files."""

    def __init__(
        self,
        photos: str | Path | Sequence[str | Path],
        synthetic: SyntheticOptions = SyntheticOptions(),  # noqa: B008 - frozen
        look: PhotometricOptions = PhotometricOptions(),  # noqa: B008 - frozen
        cache_bytes: int = 512 * 2**20,
    ) -> None:
        self.paths = _photo_paths(photos)
        self._synthetic, self._look = synthetic, look
        self._cache = ImageCache(cache_bytes, _read_shrunk)
        self._unusable: set[Path] = set()

    def draw(self, rng: np.random.Generator, height: int, width: int) -> PairSample:
        """Two views of one photo, of the given size."""
        path, photo = self._any_photo(rng)
        _, other = self._any_photo(rng)
        sample = render_pair(photo, height, width, rng, self._synthetic, (other,))
        image0 = photometric(sample.image0, rng, self._look, other)
        image1 = photometric(sample.image1, rng, self._look, other)
        return replace(sample, image0=image0, image1=image1, name=path.name)

    def _any_photo(self, rng: np.random.Generator) -> tuple[Path, Pixels]:
        """A photo that can be read; damaged ones are reported once and passed over."""
        for _ in range(100):
            path = self.paths[int(rng.integers(len(self.paths)))]
            if path in self._unusable:
                continue
            try:
                photo = self._cache.read(path)
                if min(photo.shape[:2]) >= MIN_SIDE_PX:
                    return path, photo
                reason = f"{shown(path)} is smaller than {MIN_SIDE_PX} pixels"
            except ImageError as error:
                reason = str(error)
            self._unusable.add(path)
            logging.getLogger(__name__).warning("photo left out of training: %s", reason)
        raise DataError(
            f"hardly any of the {len(self.paths)} photos can be used, {shown(self.paths[0])} among them; give photos of at least {MIN_SIDE_PX} px"
        )


def _read_shrunk(path: Path) -> Pixels:
    return resize_longest(read_image(path), MAX_SIDE_PX)


def _photo_paths(photos: str | Path | Sequence[str | Path]) -> list[Path]:
    if isinstance(photos, (str, Path)):
        folder = Path(photos)
        if not folder.is_dir():
            raise DataError(f"no folder of photos at {shown(folder)}; check the path")
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        if not paths:
            raise DataError(f"no photos in {shown(folder)} or its sub-folders")
        return paths
    if not photos:
        raise DataError("the list of photos is empty; give at least one file")
    return [Path(photo) for photo in photos]
