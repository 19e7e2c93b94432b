"""Photos that clients sent, kept in memory for a while, and photos in the roots: both by one kind of reference."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from posfeat.data.images import IMAGE_SUFFIXES, RGB, decode_image, encode_image, read_image, resize_longest, shown
from posfeat.page.bounded_cache import BoundedCache
from posfeat.page.limits import Limits, RefusedError, not_found
from posfeat.page.roots import Roots
from posfeat.types import ImageError

SMALLEST_SIDE_PX = 16
_SENT = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Photo:
    """A photo that a client sent, and its size."""

    reference: str
    name: str
    data: bytes
    width: int
    height: int


class Photos:
    """Gives pixels for references: a digest of what was sent, or ``root/path/of/a.jpg``."""

    def __init__(self, roots: Roots, limits: Limits) -> None:
        self._roots, self._limits = roots, limits
        self._sent: BoundedCache[Photo] = BoundedCache(limits.photo_memory_mb * 2**20, limits.photo_minutes * 60)

    def add(self, data: bytes, name: str) -> Photo:
        """Keep a photo that was sent, if it is one. The same photo has the same reference."""
        name = safe_name(name)
        rgb = self.decode(data, name)
        reference = hashlib.sha256(data).hexdigest()[:32]
        photo = Photo(reference, name, data, rgb.shape[1], rgb.shape[0])
        self._sent.put(reference, photo, len(data))
        return photo

    def decode(self, data: bytes, name: str) -> RGB:
        """The pixels of what was sent, if they may be that many."""
        return _large_enough(decode_image(data, safe_name(name), self._limits.pixels), safe_name(name))

    def pixels(self, reference: str) -> RGB:
        """The photo's pixels."""
        if _SENT.fullmatch(reference):
            photo = self._sent.get(reference)
            if photo is None:
                raise not_found("the server has forgotten this photo; send it again")
            return self.decode(photo.data, photo.name)
        path = self._roots.resolve(reference)
        if path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_file():
            raise not_found(f"{shown(path.name)} is no photo")
        try:
            return _large_enough(read_image(path, self._limits.pixels), path.name)
        except ImageError as error:  # clients know the roots' names, not where they lie
            raise ImageError(str(error).replace(shown(path), shown(path.name))) from None

    def name(self, reference: str) -> str:
        """What people call a photo: its file's name as it was sent, or where it lies in the roots."""
        photo = self._sent.get(reference)
        return reference if photo is None else photo.name

    def preview(self, reference: str, longest_px: int) -> tuple[bytes, int, int]:
        """The photo as a JPEG no larger than this, and its own width and height."""
        rgb = self.pixels(reference)
        return encode_image(resize_longest(rgb, longest_px), ".jpg"), rgb.shape[1], rgb.shape[0]

    @property
    def num_bytes(self) -> int:
        """Memory that sent photos take."""
        return self._sent.num_bytes


def safe_name(name: str | None) -> str:
    """The last part of a file's name as a client gave it, fit for a message."""
    last = PurePosixPath((name or "").replace("\\", "/")).name
    return shown(last)[:100] or "the photo"


def _large_enough(rgb: RGB, name: str) -> RGB:
    if min(rgb.shape[:2]) < SMALLEST_SIDE_PX:
        size = f"{rgb.shape[1]}x{rgb.shape[0]}"
        raise RefusedError(422, f"{shown(name)} is {size} pixels: its shorter side needs {SMALLEST_SIDE_PX}")
    return rgb
