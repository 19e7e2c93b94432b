"""Folders of the Image Matching Challenge (2020, 2021): ``keypoints.h5``, ``descriptors.h5``, ``scores.h5``, ``matches.h5``.

Each is flat: a dataset for each image under its file name without the ending, (N, 2) and (N, D) and (N); and in matches.h5 one
(2, M) of indices for each pair under ``a-b`` with a > b in the order of letters. The centre of the top-left pixel is
(0, 0), OpenCV's convention, which the challenge's own baselines use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import h5py
import numpy as np
import torch

from posfeat.interop.folder_files import not_readable
from posfeat.types import DataError, Features, Matches, StoreError

_MATCH_FILES = ("matches.h5", "matches_multiview.h5", "matches_stereo.h5")


class ImcFolder:
    """One sequence's folder. What is written stands there when it is closed. ``images`` are the names to read into."""

    holds_matches = True

    def __init__(self, folder: Path, images: Sequence[str] = ()) -> None:
        self.folder = folder
        self._images = {_key(name): name for name in images}
        self._writers: dict[str, h5py.File] = {}
        self._readers: dict[str, h5py.File] = {}

    def write(self, name: str, features: Features) -> None:
        key = _key(name)
        keypoints = self._writer("keypoints.h5")
        if key in keypoints:
            raise DataError(
                f"the challenge's files cannot tell {name} from another image named {key}; rename one of them"
            )
        keypoints[key] = features.keypoints.cpu().numpy().astype(np.float32)
        self._writer("descriptors.h5")[key] = features.descriptors.cpu().numpy().astype(np.float32)
        self._writer("scores.h5")[key] = features.scores.cpu().numpy().astype(np.float32)

    def names(self) -> list[str]:
        return sorted(self._images.get(key, key) for key in self._reader("keypoints.h5"))

    def read(self, name: str, image_size: tuple[int, int]) -> Features:
        key = _key(name)
        keypoints, descriptors = (self._array(file, key) for file in ("keypoints.h5", "descriptors.h5"))
        known = (self.folder / "scores.h5").is_file() and key in self._reader("scores.h5")
        scores = self._array("scores.h5", key).reshape(-1) if known else torch.ones(len(keypoints))
        if not len(keypoints) == len(descriptors) == len(scores):
            raise DataError(f"{self.folder}: keypoints, scores and descriptors of {key} differ in number")
        return Features(keypoints[:, :2].contiguous(), scores, descriptors, image_size)

    def write_matches(self, name0: str, name1: str, matches: Matches) -> None:
        key0, key1 = _key(name0), _key(name1)
        indices = matches.indices.cpu().numpy().T.astype(np.int32)
        key, rows = (f"{key0}-{key1}", indices) if key0 > key1 else (f"{key1}-{key0}", indices[::-1])
        self._writer(_MATCH_FILES[0])[key] = rows

    def pairs(self) -> list[tuple[str, str]]:
        file = self._match_file()
        known = set(self._reader("keypoints.h5"))
        return sorted(self._names_of(key, known) for key in self._reader(file)) if file else []

    def read_matches(self, name0: str, name1: str) -> Matches:
        key0, key1 = _key(name0), _key(name1)
        file = self._match_file()
        found = self._reader(file) if file else {}
        turned = f"{key0}-{key1}" not in found
        key = f"{key1}-{key0}" if turned else f"{key0}-{key1}"
        if key not in found:
            raise DataError(f"{self.folder} holds no matches of {name0} {name1}")
        rows = np.asarray(found[key][()], dtype=np.int64)
        indices = torch.from_numpy(np.ascontiguousarray((rows[::-1] if turned else rows).T))
        return Matches(indices, torch.ones(len(indices)))

    def close(self) -> None:
        """Put what was written where it belongs."""
        for file in self._readers.values():
            file.close()
        for name, file in self._writers.items():
            file.close()
            os.replace(self.folder / f"{name}.part", self.folder / name)
        self._readers, self._writers = {}, {}

    def _writer(self, name: str) -> h5py.File:
        if name not in self._writers:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._writers[name] = h5py.File(self.folder / f"{name}.part", "w")
            except OSError as error:
                raise StoreError(
                    f"cannot write into {self.folder}: {error.strerror or error}; choose another"
                ) from None
        return self._writers[name]

    def _reader(self, name: str) -> h5py.File:
        if name not in self._readers:
            try:
                self._readers[name] = h5py.File(self.folder / name, "r")
            except OSError as error:
                raise not_readable(self.folder / name, "the Image Matching Challenge's HDF5", error) from None
        return self._readers[name]

    def _array(self, file: str, key: str) -> Any:
        datasets = self._reader(file)
        if key not in datasets:
            raise DataError(f"{self.folder / file} holds nothing for {key}")
        return torch.from_numpy(np.asarray(datasets[key][()], dtype=np.float32))

    def _match_file(self) -> str | None:
        return next((name for name in _MATCH_FILES if (self.folder / name).is_file()), None)

    def _names_of(self, key: str, known: set[str]) -> tuple[str, str]:
        cuts = [(key[:at], key[at + 1 :]) for at, letter in enumerate(key) if letter == "-"]
        good = [cut for cut in cuts if cut[0] in known and cut[1] in known]
        if len(good) != 1:
            raise DataError(f"{self.folder}: {key!r} does not name two of the images in keypoints.h5")
        return self._images.get(good[0][0], good[0][0]), self._images.get(good[0][1], good[0][1])


def _key(name: str) -> str:
    path = PurePosixPath(name)
    if len(path.parts) != 1:
        raise DataError(f"the challenge's files cannot hold {name!r}: a sequence is one folder without folders in it")
    return path.stem
