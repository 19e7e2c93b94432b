"""Features and matches on disk, in the HDF5 layout that hloc reads and writes.

Features: a group for each image, named by its path below the image folder, with ``keypoints`` (N, 2), ``descriptors``
(D, N: transposed), ``scores`` (N) and ``image_size`` (width, height). Keypoints are float32 always: 16 bits would move
them by up to two pixels in a large image. Matches: a group ``a.jpg/b.jpg`` ('/' within a name written '-') with
``matches0`` (N0), for each keypoint of image 0 its partner in image 1 or -1, and ``matching_scores0``.

One process writes a file, and what ``write`` has returned from survives the end of that process at any moment (see
hdf5_store). A folder of shards, which several processes wrote, is read in the same way (see shards).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import h5py
import numpy as np
import torch
from torch import Tensor

from posfeat.data.images import IMAGE_SUFFIXES
from posfeat.pipeline.hdf5_store import Hdf5Store, entries_of, not_open
from posfeat.pipeline.shards import LocalFolder, is_shard_folder, read_header
from posfeat.types import Features, Matches, StoreError

DescriptorFormat = Literal["float32", "float16"]
PAIR_SEPARATORS = ("/", "_")  # between the names of a pair; hloc's older files have the second
DETECTION_NOISE_PX = 1.0  # hloc's own default for the attribute that it reads


class FeatureStore(Hdf5Store):
    """Features by image name."""

    kind = "feature"
    marker = "keypoints"

    def __contains__(self, name: str) -> bool:
        return self._has(_checked_name(name))

    def names(self) -> list[str]:
        """All images in the store, in alphabetical order."""
        return sorted(self.entries())

    def write(self, name: str, features: Features, descriptor_format: DescriptorFormat = "float32") -> None:
        """Add an image, or replace it, for good."""
        self.write_all([(name, features)], descriptor_format)

    def write_all(self, items: Sequence[tuple[str, Features]], descriptor_format: DescriptorFormat = "float32") -> None:
        """Add several images in one go: all of them or, if the process dies meanwhile, none."""
        with self._transaction():
            for name, features in items:
                group = self._new_group(_checked_name(name))
                keypoints = group.create_dataset("keypoints", data=_numpy(features.keypoints, "float32"))
                keypoints.attrs["uncertainty"] = DETECTION_NOISE_PX
                group.create_dataset(
                    "descriptors", data=np.ascontiguousarray(_numpy(features.descriptors, descriptor_format).T)
                )
                group.create_dataset("scores", data=_numpy(features.scores, "float32"))
                group.create_dataset("image_size", data=np.array(features.image_size, dtype=np.int64))

    def read(self, name: str) -> Features:
        """The features of an image, in float32."""
        group = self._group(_checked_name(name), f"image {name}")
        keypoints = _tensor(group["keypoints"])
        scores = next((_tensor(group[key]) for key in ("scores", "keypoint_scores") if key in group), None)
        if "descriptors" not in group or "image_size" not in group:
            raise StoreError(
                f"{self.path} holds keypoints of {name} without descriptors or image size; extract it again"
            )
        width, height = (int(value) for value in group["image_size"][()])
        descriptors = _tensor(group["descriptors"]).T.contiguous()
        return Features(
            keypoints, torch.ones(len(keypoints)) if scores is None else scores, descriptors, (width, height)
        )

    def num_keypoints(self, name: str) -> int:
        """How many keypoints an image has, without reading them."""
        return int(self._group(_checked_name(name), f"image {name}")["keypoints"].shape[0])

    def image_size(self, name: str) -> tuple[int, int]:
        """Width and height of an image, without reading its features."""
        group = self._group(_checked_name(name), f"image {name}")
        if "image_size" not in group:
            raise StoreError(f"{self.path} holds keypoints of {name} without its size; extract it again")
        width, height = (int(value) for value in group["image_size"][()])
        return width, height

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Read everything; a line for each image that is not as it should be."""
        return _verify(self.names(), self._problem, progress)

    def _problem(self, name: str) -> str | None:
        features = self.read(name)
        width, height = features.image_size
        count = len(features)
        if (
            features.keypoints.shape != (count, 2)
            or features.scores.shape != (count,)
            or len(features.descriptors) != count
        ):
            return "keypoints, scores and descriptors differ in number"
        if self._file[name]["keypoints"].dtype != np.float32:
            return f"keypoints are {self._file[name]['keypoints'].dtype}, too coarse for pixel positions"
        if not all(bool(torch.isfinite(t).all()) for t in (features.keypoints, features.scores, features.descriptors)):
            return "some values are not finite"
        outside = (features.keypoints < -0.5) | (features.keypoints > torch.tensor([width - 0.5, height - 0.5]))
        if bool(outside.any()):
            return f"keypoints lie outside the image of {width}x{height} pixels"
        if bool(((features.descriptors.norm(dim=1) - 1).abs() > 0.01).any()):
            return "descriptors are not of unit length"
        return None


class MatchStore(Hdf5Store):
    """Matches by pair of image names."""

    kind = "match"
    marker = "matches0"

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return self._group_of(*pair) is not None

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs in the store; for files of other tools the names as they stand there, with '-' for '/'."""
        found = []
        for group in self.entries():
            attributes = self._file[group].attrs
            name0, name1 = _names_of_group(group)
            found.append((str(attributes.get("name0", name0)), str(attributes.get("name1", name1))))
        return sorted(found)

    def write(self, name0: str, name1: str, matches: Matches, num_keypoints0: int) -> None:
        """Add a pair, or replace it, for good."""
        self.write_all([(name0, name1, matches, num_keypoints0)])

    def write_all(self, items: Sequence[tuple[str, str, Matches, int]]) -> None:
        """Add several pairs in one go: all of them or, if the process dies meanwhile, none."""
        with self._transaction():
            for name0, name1, matches, num_keypoints0 in items:
                partner = np.full(num_keypoints0, -1, dtype=np.int32)
                scores = np.zeros(num_keypoints0, dtype=np.float16)
                index0 = _numpy(matches.indices[:, 0], "int64")
                partner[index0] = _numpy(matches.indices[:, 1], "int32")
                scores[index0] = _numpy(matches.scores, "float16")
                group = self._new_group(_pair_group(name0, name1))
                group.attrs["name0"], group.attrs["name1"] = name0, name1
                for key, values in (("matches0", partner), ("matching_scores0", scores)):
                    # mostly -1 and 0: a fraction of the size, at no cost worth measuring
                    packing = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if len(values) else {}
                    group.create_dataset(key, data=values, **packing)

    def read(self, name0: str, name1: str) -> Matches:
        """The matches of a pair, in whichever order the store has it."""
        straight, reverse = self._group_of(name0, name1), self._group_of(name1, name0)
        turned = straight is None and reverse is not None
        group = self._group(straight or reverse or _pair_group(name0, name1), f"the pair {name0} {name1}")
        partner = group["matches0"][()].astype(np.int64)
        if (partner < -1).any():
            raise StoreError(
                f"{self.path} holds indices of {name0} {name1} that overflowed 16 bits; match that pair again"
            )
        index0 = np.flatnonzero(partner >= 0)
        scores = group["matching_scores0"][()][index0] if "matching_scores0" in group else np.ones(len(index0))
        columns = (partner[index0], index0) if turned else (index0, partner[index0])
        order = np.argsort(-scores.astype(np.float32), kind="stable")
        indices = torch.from_numpy(np.stack(columns, axis=1)[order])
        return Matches(indices, torch.from_numpy(scores[order].astype(np.float32)))

    def _group_of(self, name0: str, name1: str) -> str | None:
        """Where a pair's matches are, in this order of its names."""
        groups = (_pair_group(name0, name1, separator) for separator in PAIR_SEPARATORS)
        return next((group for group in groups if self._has(group)), None)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Read everything; a line for each pair that is not as it should be."""
        return _verify(self.pairs(), self._problem, progress)

    def _problem(self, pair: tuple[str, str]) -> str | None:
        matches = self.read(*pair)
        if len(matches.indices[:, 1].unique()) != len(matches):
            return "two keypoints share one partner"
        return None if bool(torch.isfinite(matches.scores).all()) else "some scores are not finite"


def store_kind(path: str | os.PathLike[str]) -> Literal["feature", "match"] | None:
    """Which kind of store a file or folder is, by what it holds; None where it is neither."""
    if is_shard_folder(path):
        header = read_header(LocalFolder(Path(path)))
        return "match" if header and header["kind"] == "match" else "feature"
    try:
        with h5py.File(path, "r") as file:
            named = file.attrs.get("kind")
            if named == "feature" or next(entries_of(file, FeatureStore.marker), None) is not None:
                return "feature"
            return "match" if named == "match" or next(entries_of(file, MatchStore.marker), None) is not None else None
    except OSError as error:
        raise not_open(Path(path), error) from None


def _checked_name(name: str) -> str:
    path = PurePosixPath(name)
    text = name.encode(errors="replace").decode() == name  # file systems allow names that are no text
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or not text:
        raise StoreError(
            f"{name!r} cannot name an image in a store; rename it, or name it by its path below the folder"
        )
    return str(path)


def _pair_group(name0: str, name1: str, separator: str = PAIR_SEPARATORS[0]) -> str:
    return separator.join(_checked_name(name).replace("/", "-") for name in (name0, name1))


def _names_of_group(group: str) -> tuple[str, str]:
    """The two names in a group's name. Joined with '_', the first of them ends where a picture's name does."""
    name0, separator, name1 = group.rpartition(PAIR_SEPARATORS[0])
    if separator:
        return name0, name1
    cuts = [(group[:at], group[at + 1 :]) for at, letter in enumerate(group) if letter == PAIR_SEPARATORS[1]]
    pictures = [cut for cut in cuts if PurePosixPath(cut[0]).suffix.lower() in IMAGE_SUFFIXES]
    return next(iter(pictures or cuts), (group, ""))


def _numpy(tensor: Tensor, dtype: str) -> np.ndarray[Any, Any]:
    return tensor.detach().cpu().numpy().astype(dtype, copy=False)


def _tensor(dataset: h5py.Dataset) -> Tensor:
    return torch.from_numpy(dataset[()].astype(np.float32))


def _verify(
    keys: Sequence[Any], problem_of: Callable[[Any], str | None], progress: Callable[[int, int], None] | None
) -> list[str]:
    problems = []
    for number, key in enumerate(keys):
        try:
            problem = problem_of(key)
        except (StoreError, OSError, KeyError, ValueError) as error:
            problem = " ".join(str(error).split())
        if problem:
            problems.append(f"{key if isinstance(key, str) else ' '.join(key)}: {problem}")
        if progress:
            progress(number + 1, len(keys))
    return problems
