"""COLMAP's text features (``NAME.txt`` for each image) and its text list of matches (``matches.txt``).

COLMAP reads them with ``feature_importer`` and with ``matches_importer --match_type raw`` (or ``inliers``). The centre of the
top-left pixel is (0.5, 0.5). A line holds x, y, scale, orientation and 128 whole numbers from 0 to 255. That form fits SIFT
and RootSIFT, whose unit vectors have no negative entries and are written times 512; descriptors of any other kind
are written as zeros, so these features need the list of matches beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.interop.folder_files import file_of, names_below, not_readable, write_whole
from posfeat.types import DataError, Features, Matches, StoreError

DIM = 128
_SCALE = 512  # of a unit vector, as COLMAP and VLFeat store SIFT
_ENDING = ".txt"
_MATCHES = "matches.txt"


class ColmapTextFolder:
    """A folder of text features, with matches.txt in it."""

    holds_matches = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: TextIO | None = None
        self._matches: dict[tuple[str, str], npt.NDArray[np.int64]] | None = None

    def write(self, name: str, features: Features) -> None:
        write_whole(file_of(self.folder, name, _ENDING), lambda file: _write_features(file, features))

    def names(self) -> list[str]:
        return [name for name in names_below(self.folder, _ENDING) if name != Path(_MATCHES).stem]

    def read(self, name: str, image_size: tuple[int, int]) -> Features:
        path = file_of(self.folder, name, _ENDING)
        try:
            values = _read_table(path)
        except (OSError, ValueError) as error:
            raise not_readable(path, "COLMAP's text features", error) from None
        xy = torch.from_numpy(values[:, :2] - np.float32(COLMAP_OFFSET_PX))
        descriptors = F.normalize(torch.from_numpy(values[:, 4:].copy()), dim=1)
        return Features(xy, torch.ones(len(xy)), descriptors, image_size)

    def write_matches(self, name0: str, name1: str, matches: Matches) -> None:
        for name in (name0, name1):
            if any(c.isspace() for c in name):
                raise DataError(
                    f"COLMAP's list of matches cannot hold the name {name!r}; rename the image without spaces"
                )
        if self._writer is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._writer = (self.folder / f"{_MATCHES}.part").open("w", encoding="utf-8")
            except OSError as error:
                raise StoreError(f"cannot write into {self.folder}: {error.strerror}; choose another place") from None
        rows = "".join(f"{i} {j}\n" for i, j in matches.indices.tolist())
        self._writer.write(f"{name0} {name1}\n{rows}\n")

    def pairs(self) -> list[tuple[str, str]]:
        return sorted(self._known_matches())

    def read_matches(self, name0: str, name1: str) -> Matches:
        indices = self._known_matches().get((name0, name1))
        if indices is None:
            raise DataError(f"{self.folder / _MATCHES} holds no matches of {name0} {name1}")
        return Matches(torch.from_numpy(indices), torch.ones(len(indices)))

    def close(self) -> None:
        """Put the list of matches where it belongs."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            (self.folder / f"{_MATCHES}.part").replace(self.folder / _MATCHES)

    def _known_matches(self) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
        if self._matches is None:
            path = self.folder / _MATCHES
            try:
                self._matches = dict(_read_matches(path)) if path.is_file() else {}
            except (OSError, ValueError) as error:
                raise not_readable(path, "COLMAP's list of matches", error) from None
        return self._matches


def quantised(descriptors: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """COLMAP's bytes for SIFT-like descriptors, and zeros for others."""
    if descriptors.shape[1] != DIM or (descriptors < 0).any():
        return np.zeros((len(descriptors), DIM), np.uint8)
    return np.rint(descriptors * _SCALE).clip(0, 255).astype(np.uint8)


def _write_features(file: BinaryIO, features: Features) -> None:
    xy = features.keypoints.cpu().numpy().astype(np.float64) + COLMAP_OFFSET_PX
    file.write(f"{len(xy)} {DIM}\n".encode())
    for (x, y), row in zip(xy.tolist(), quantised(features.descriptors.cpu().numpy()).tolist(), strict=True):
        file.write(f"{x:.9g} {y:.9g} 1 0 {' '.join(map(str, row))}\n".encode())


def _read_table(path: Path) -> npt.NDArray[np.float32]:
    """Rows of x, y, scale, orientation and the descriptor."""
    with path.open(encoding="utf-8") as file:
        count, dim = map(int, file.readline().split())
        rows: list[Any] = [line.split() for line in file if line.strip()]
    values = np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows else 4 + dim)
    if values.shape != (count, 4 + dim):
        raise ValueError(f"its first line promises {count} features of {4 + dim} numbers, there are {values.shape}")
    return values


def _read_matches(path: Path) -> Iterator[tuple[tuple[str, str], npt.NDArray[np.int64]]]:
    """Blocks of a line of two names and lines of two indices; an empty line ends a block."""
    names: list[str] | None = None
    rows: list[list[str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        words = line.split()
        if names is None:
            names = words or None
        elif words:
            rows.append(words)
        else:
            name0, name1 = names
            yield (name0, name1), np.array(rows, dtype=np.int64).reshape(len(rows), 2)
            names, rows = None, []
