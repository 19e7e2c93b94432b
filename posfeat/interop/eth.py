"""Folders of ETH's local feature evaluation: ``keypoints/NAME.bin``, ``descriptors/NAME.bin``, ``matches/A---B.bin``.

A .bin file is a matrix: two int32 (rows, columns), then the rows in 32 bits each: keypoints x, y, scale, orientation;
descriptors; pairs of indices from 0. The benchmark puts the positions into a COLMAP database as they are, so the centre of
the top-left pixel is (0.5, 0.5). Scale is written as 1 and orientation as 0; there are no scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.interop.folder_files import file_of, names_below, not_readable, write_whole
from posfeat.types import DataError, Features, Matches

_ENDING = ".bin"
_BETWEEN = "---"


class EthFolder:
    """One data set's folder of features and matches."""

    holds_matches = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, features: Features) -> None:
        count = len(features)
        xy = features.keypoints.cpu().numpy() + COLMAP_OFFSET_PX
        keypoints = np.concatenate([xy, np.ones((count, 1)), np.zeros((count, 1))], axis=1)
        _write_matrix(file_of(self.folder / "keypoints", name, _ENDING), keypoints.astype("<f4"))
        descriptors = features.descriptors.cpu().numpy().astype("<f4")
        _write_matrix(file_of(self.folder / "descriptors", name, _ENDING), descriptors)

    def names(self) -> list[str]:
        return names_below(self.folder / "keypoints", _ENDING)

    def read(self, name: str, image_size: tuple[int, int]) -> Features:
        keypoints = _read_matrix(file_of(self.folder / "keypoints", name, _ENDING), "<f4")
        descriptors = _read_matrix(file_of(self.folder / "descriptors", name, _ENDING), "<f4")
        if len(keypoints) != len(descriptors):
            raise DataError(f"{self.folder}: {name} has {len(keypoints)} keypoints but {len(descriptors)} descriptors")
        xy = torch.from_numpy(keypoints[:, :2] - np.float32(COLMAP_OFFSET_PX))
        return Features(xy, torch.ones(len(xy)), torch.from_numpy(descriptors), image_size)

    def write_matches(self, name0: str, name1: str, matches: Matches) -> None:
        for name in (name0, name1):
            if "/" in name or _BETWEEN in name:
                raise DataError(
                    f"ETH's match files cannot hold the name {name!r}; keep images in one folder, without ---"
                )
        path = self.folder / "matches" / f"{name0}{_BETWEEN}{name1}{_ENDING}"
        _write_matrix(path, matches.indices.cpu().numpy().astype("<u4"))

    def pairs(self) -> list[tuple[str, str]]:
        names = (path.name.removesuffix(_ENDING) for path in (self.folder / "matches").glob(f"*{_BETWEEN}*{_ENDING}"))
        cuts = (name.split(_BETWEEN) for name in names)
        return sorted((cut[0], cut[1]) for cut in cuts if len(cut) == 2)

    def read_matches(self, name0: str, name1: str) -> Matches:
        path = self.folder / "matches" / f"{name0}{_BETWEEN}{name1}{_ENDING}"
        indices = torch.from_numpy(_read_matrix(path, "<u4").astype(np.int64))
        return Matches(indices, torch.ones(len(indices)))

    def close(self) -> None:
        """Nothing is open."""


def _write_matrix(path: Path, matrix: npt.NDArray[Any]) -> None:
    def write(file: Any) -> None:
        file.write(np.array(matrix.shape, dtype="<i4").tobytes())
        file.write(np.ascontiguousarray(matrix).tobytes())

    write_whole(path, write)


def _read_matrix(path: Path, dtype: str) -> npt.NDArray[Any]:
    try:
        data = path.read_bytes()
        rows, columns = np.frombuffer(data, dtype="<i4", count=2).tolist()
        if min(rows, columns) < 0 or len(data) != 8 + 4 * rows * columns:
            raise ValueError(f"{len(data)} bytes do not hold a matrix of {rows} x {columns}")
        return np.frombuffer(data, dtype=dtype, offset=8).reshape(rows, columns).copy()
    except (OSError, ValueError) as error:
        raise not_readable(path, "a matrix of ETH's benchmark", error) from None
