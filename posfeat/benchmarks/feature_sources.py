"""Where a benchmark's features come from: a method behind a cache keyed by content, or files that somebody exported.

A cache entry's name is a digest of the image's bytes, the method's exact code and weights and the number of keypoints
asked for. A changed checkpoint, option or image has another name, so an old result can never be read in its place.
"""

from __future__ import annotations

import functools
import hashlib
import os
import zipfile
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from posfeat.benchmarks.baselines import Method
from posfeat.benchmarks.provenance import path_below
from posfeat.data.images import image_size, read_image
from posfeat.matching import MatchOptions
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Features, StoreError

_IMAGE_FOLDERS = ("images", "images_upright")
_FORMAT = "1"  # of a cache entry; another number makes all old entries unknown


class FeatureSource(Protocol):
    """Features by image file, and a name for reports."""

    name: str

    @property
    def fingerprint(self) -> str: ...

    @property
    def own_matching(self) -> MatchOptions: ...

    def features_of(self, image_path: Path) -> Features: ...


class CachedMethod:
    """Runs a method once for each image and keeps what it found."""

    def __init__(self, method: Method, max_keypoints: int, cache: Path | None) -> None:
        self.name = method.name
        self.fingerprint = f"{method.fingerprint}, {max_keypoints} keypoints"
        self.own_matching = method.own_matching
        self._method, self._max_keypoints, self._cache = method, max_keypoints, cache

    def features_of(self, image_path: Path) -> Features:
        if self._cache is None:
            return self._method.extract(read_image(image_path), self._max_keypoints)
        entry = self._entry(image_path)
        cached = _read_entry(entry)
        if cached is None:
            cached = self._method.extract(read_image(image_path), self._max_keypoints)
            _write_entry(entry, cached)
        return cached

    def _entry(self, image_path: Path) -> Path:
        assert self._cache is not None
        image = hashlib.sha256(image_path.read_bytes()).hexdigest()
        digest = hashlib.sha256("\n".join((_FORMAT, self.fingerprint, image)).encode()).hexdigest()
        return self._cache / digest[:2] / f"{digest}.safetensors"


class NpzFolder:
    """Features that D2-Net's and similar scripts wrote: one .npz for each image, beside it or under another root.

    For ``root/graf/1.ppm`` it reads the only file of ``folder/graf/`` whose name is 1.ppm and an ending, or 1.npz.
    """

    own_matching = MatchOptions()

    def __init__(self, folder: Path, root: Path) -> None:
        self.name = folder.name
        self._folder, self._root = folder, root

    @functools.cached_property
    def fingerprint(self) -> str:
        """With a digest of the names and contents of all files."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        parts = (f"{path.relative_to(self._folder).as_posix()} {_digest_of_file(path)}" for path in files)
        return f"npz files {self._folder.name} sha256 {hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"

    def features_of(self, image_path: Path) -> Features:
        relative = path_below(self._root, image_path)
        folder = self._folder / relative.parent
        found = sorted(folder.glob(f"{relative.name}.*")) or sorted(folder.glob(f"{relative.stem}.npz"))
        if len(found) != 1:
            raise StoreError(f"{self._folder}: {len(found)} feature files for {relative}; there must be exactly one")
        try:
            with np.load(found[0], allow_pickle=False) as arrays:
                return _features_of_arrays(arrays["keypoints"], arrays.get("scores"), arrays["descriptors"], image_path)
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise StoreError(f"{found[0]}: not a feature file with keypoints and descriptors ({error})") from error


class HlocFile:
    """Features in a file of hloc's layout, ours or another tool's, under names relative to the data set's folder."""

    own_matching = MatchOptions()

    def __init__(self, path: Path, root: Path) -> None:
        self.name = path.stem
        self.fingerprint = f"feature file {path.name} sha256 {_digest_of_file(path)}"
        self._store, self._root = FeatureStore(path), root

    def features_of(self, image_path: Path) -> Features:
        relative = path_below(self._root, image_path)
        name = next((name for name in _names_in_files(relative) if name in self._store), None)
        if name is None:
            raise StoreError(
                f"{self._store.path}: no image {relative}; names in it are relative to the data set's folder"
            )
        found = self._store.read(name)
        if found.image_size != image_size(image_path):
            raise StoreError(f"{self._store.path}: {name} is of {found.image_size}, another size than {image_path}")
        order = found.scores.argsort(descending=True, stable=True)
        unit = F.normalize(found.descriptors[order], dim=-1)
        return Features(found.keypoints[order], found.scores[order], unit, found.image_size)


def _features_of_arrays(
    keypoints: np.ndarray, scores: np.ndarray | None, descriptors: np.ndarray, image_path: Path
) -> Features:
    positions = torch.from_numpy(np.ascontiguousarray(keypoints[:, :2], dtype=np.float32))
    known = np.linspace(1, 0, len(keypoints)) if scores is None else scores
    ranks = torch.from_numpy(np.ascontiguousarray(known, dtype=np.float32)).reshape(-1)
    order = ranks.argsort(descending=True, stable=True)
    unit = F.normalize(torch.from_numpy(np.ascontiguousarray(descriptors, dtype=np.float32)), dim=-1)
    return Features(positions[order], ranks[order], unit[order], image_size(image_path))


def _names_in_files(relative: Path) -> list[str]:
    """What a feature file may call an image: its path, the same without folders of images, or what lies within these."""
    parts = relative.parts
    shorter = tuple(part for part in parts if part not in _IMAGE_FOLDERS)
    last = max((index for index, part in enumerate(parts) if part in _IMAGE_FOLDERS), default=-1)
    return [Path(*names).as_posix() for names in (parts, shorter, parts[last + 1 :])]


def _digest_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**22):
            digest.update(block)
    return digest.hexdigest()[:16]


def _read_entry(path: Path) -> Features | None:
    try:
        tensors = load_file(path)
    except (FileNotFoundError, SafetensorError):
        return None  # never written, or cut off by a crash: made again
    width, height = tensors["image_size"].tolist()
    return Features(tensors["keypoints"], tensors["scores"], tensors["descriptors"], (width, height))


def _write_entry(path: Path, features: Features) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        "keypoints": features.keypoints.contiguous(),
        "scores": features.scores.contiguous(),
        "descriptors": features.descriptors.contiguous(),
        "image_size": torch.tensor(features.image_size),
    }
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    save_file(tensors, part)
    os.replace(part, path)
