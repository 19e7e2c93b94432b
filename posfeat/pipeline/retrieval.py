"""Which images show the same place: one vector for each image, made of its own keypoints' descriptors.

The vector is a VLAD (Jégou et al., 2010): descriptors are assigned to words of a small vocabulary, their directions from
the word are summed, and the sums normalised. The vocabulary, and the few directions in which the vectors of a set differ
most, are learnt from that set's own features in seconds. No second network is needed, and any features will do.

Memory is linear in the number of images: images are read one at a time and 128 numbers of each are kept. Neighbours are
exact, by blocks of one matrix product whose size does not grow with the set; up to a hundred thousand images that takes
less time than building an index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Features, StoreError

NUM_WORDS = 64
DIM = 128
MOST_KEYPOINTS = 2048  # of an image, its best ones
_IMAGES_TO_LEARN_FROM = 512
_DESCRIPTORS_OF_EACH = 100
_ROUNDS = 10
_SIMILARITIES_AT_ONCE = 2**26  # 256 MB

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImageIndex:
    """The vectors of a set of images, and what is needed to make the vector of another image."""

    names: tuple[str, ...]
    vectors: Annotated[Tensor, "images dim"]  # of unit length; zero for an image without keypoints
    words: Annotated[Tensor, "words descriptor_dim"]
    mean: Annotated[Tensor, "vlad_dim"]
    axes: Annotated[Tensor, "dim vlad_dim"]

    def vector_of(self, features: Features) -> Annotated[Tensor, "dim"]:
        """The vector of an image, in the set or not."""
        if features.descriptors.shape[1] != self.words.shape[1]:
            dims = f"{features.descriptors.shape[1]} and {self.words.shape[1]}"
            raise StoreError(f"descriptors of {dims} dimensions cannot be compared; extract all images in the same way")
        if len(features) == 0:
            return self.vectors.new_zeros(len(self.axes))
        return F.normalize(self.axes @ (_vlad(features, self.words) - self.mean), dim=0)

    def nearest(
        self, vectors: Annotated[Tensor, "queries dim"], count: int
    ) -> tuple[Annotated[Tensor, "queries found"], Annotated[Tensor, "queries found"]]:
        """Rows of the set's most similar images, and their similarities, best first."""
        count = min(count, len(self.names))
        rows = max(1, _SIMILARITIES_AT_ONCE // max(1, len(self.names)))
        found = [(block @ self.vectors.T).topk(count, dim=1) for block in vectors.split(rows)]
        return torch.cat([top.indices for top in found]), torch.cat([top.values for top in found])

    def save(self, path: Path) -> None:
        """Write the index into one file."""
        part = path.with_name(path.name + ".part")
        names = "\n".join(self.names)  # names of files hold no line breaks that survive a list of pairs either
        tensors = {"vectors": self.vectors, "words": self.words, "mean": self.mean, "axes": self.axes}
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part, {"names": names})
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> ImageIndex:
        """Read what save wrote."""
        try:
            with safe_open(path, "pt") as file:
                text = (file.metadata() or {})["names"]
                vectors, words, mean, axes = (file.get_tensor(key) for key in ("vectors", "words", "mean", "axes"))
        except (OSError, SafetensorError, KeyError) as error:
            raise StoreError(f"{path} is no index of images ({error}); make it again") from None
        return cls(tuple(text.split("\n")) if text else (), vectors, words, mean, axes)


def index_images(store: FeatureStore, names: Sequence[str], progress: Progress | None = None) -> ImageIndex:
    """Learn a vocabulary from images of a store, and index all of them. The same features give the same index."""
    if not names:
        raise StoreError(f"{store.path} holds no images; extract some first")
    chosen = names[:: 1 + len(names) // _IMAGES_TO_LEARN_FROM]
    words = _learn_words(torch.cat([store.read(name).descriptors[:_DESCRIPTORS_OF_EACH] for name in chosen]))
    mean, axes = _main_axes(torch.stack([_vlad(store.read(name), words) for name in chosen]))
    index = ImageIndex(tuple(names), torch.zeros(len(names), len(axes)), words, mean, axes)
    for row, name in enumerate(names):
        index.vectors[row] = index.vector_of(store.read(name))
        if progress:
            progress(row + 1, len(names))
    return index


def _learn_words(sample: Annotated[Tensor, "count dim"]) -> Annotated[Tensor, "words dim"]:
    """The centres of clusters of descriptors (k-means)."""
    if len(sample) == 0:
        return sample.new_zeros(1, sample.shape[1])
    order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))
    words = sample[order[:NUM_WORDS]].clone()
    for _ in range(_ROUNDS):
        nearest = _nearest_word(sample, words)
        counts = torch.bincount(nearest, minlength=len(words))[:, None]
        sums = torch.zeros_like(words).index_add_(0, nearest, sample)
        words = torch.where(counts > 0, sums / counts.clamp(min=1), words)
    return words


def _vlad(features: Features, words: Annotated[Tensor, "words dim"]) -> Annotated[Tensor, "vlad_dim"]:
    descriptors = features.descriptors[:MOST_KEYPOINTS]
    nearest = _nearest_word(descriptors, words)
    directions = F.normalize(descriptors - words[nearest], dim=1)
    sums = torch.zeros_like(words).index_add_(0, nearest, directions)
    return F.normalize(F.normalize(sums, dim=1).flatten(), dim=0)


def _nearest_word(descriptors: Tensor, words: Tensor) -> Annotated[Tensor, "count"]:
    return (descriptors @ words.T - words.square().sum(dim=1) / 2).argmax(dim=1)


def _main_axes(vlads: Annotated[Tensor, "count vlad_dim"]) -> tuple[Tensor, Annotated[Tensor, "dim vlad_dim"]]:
    """The mean, and the directions in which the vectors differ most (principal components)."""
    mean = vlads.mean(dim=0) if len(vlads) > 1 else torch.zeros_like(vlads[0])
    _, _, axes = torch.linalg.svd(vlads - mean, full_matrices=False)
    return mean, axes[:DIM]
