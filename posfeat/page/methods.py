"""Whose features a page shows: the networks that the server was started with, and SIFT to compare them with."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posfeat.data.images import RGB, normalise
from posfeat.networks.checkpoint import DEFAULT_WEIGHTS, load, read_card
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.page.limits import RefusedError
from posfeat.pipeline.rootsift import extract_rootsift
from posfeat.types import CheckpointError, Features

SIFT = "rootsift"
MAP_STRIDE = 4


@dataclass(frozen=True)
class DenseMaps:
    """What a network sees at every place of an image: unit descriptors in 16 bits, and scores."""

    descriptors: Annotated[Tensor, "map_height map_width dim"]
    scores: npt.NDArray[np.float32]  # (height, width)

    @property
    def num_bytes(self) -> int:
        """Memory that the maps take."""
        return self.descriptors.numel() * self.descriptors.element_size() + self.scores.nbytes


@dataclass(frozen=True)
class MethodCard:
    """What a client is told about a method."""

    name: str
    title: str
    has_maps: bool  # score and descriptor maps can be shown
    note: str = ""


class Methods:
    """Methods by name. A network is loaded when it is first asked for, once, and shared by all clients."""

    def __init__(self, weights: Sequence[str], load_model: Callable[[str], PoSFeat] = load) -> None:
        self._load_model = load_model
        self._sources: dict[str, str] = {}
        self._cards: dict[str, MethodCard] = {}
        self._models: dict[str, PoSFeat] = {}
        self._lock = threading.Lock()
        for source in dict.fromkeys([*weights, *default_weights()]):
            self._add(source)
        self._cards[SIFT] = MethodCard(SIFT, "SIFT (RootSIFT)", has_maps=False)

    def cards(self) -> list[MethodCard]:
        """All methods, the preferred one first."""
        return list(self._cards.values())

    def networks(self) -> list[str]:
        """Names of the methods that are networks."""
        return list(self._sources)

    def source(self, name: str) -> str | None:
        """Where a network's weights lie; None for a method without weights."""
        return self._sources.get(name)

    def check(self, name: str) -> str:
        """The name of a method that exists; the preferred one if it is empty."""
        if not name:
            return next(iter(self._cards))
        if name not in self._cards:
            raise RefusedError(422, f"there is no method {name!r}; there are {', '.join(self._cards)}")
        return name

    def extract(self, name: str, rgb: RGB, max_keypoints: int) -> Features:
        """Features of an image."""
        if name == SIFT:
            return extract_rootsift(rgb, max_keypoints)
        options = ExtractionOptions(selection=SelectionOptions(max_keypoints=max_keypoints))
        return self.model(name).extract(rgb, options=options)

    def maps(self, name: str, rgb: RGB) -> DenseMaps:
        """Dense maps of an image."""
        if not self._cards[name].has_maps:
            raise RefusedError(422, f"{name} has no dense maps; choose one of the networks")
        model = self.model(name)
        with torch.no_grad():
            dense = model.dense(normalise(rgb).to(model.device))
            descriptors = torch.nn.functional.normalize(dense.descriptors[0].float(), dim=0).permute(1, 2, 0)
        return DenseMaps(descriptors.half().contiguous().cpu(), dense.scores[0, 0].float().cpu().numpy())

    def model(self, name: str) -> PoSFeat:
        """A network, loaded."""
        with self._lock:
            if name not in self._models:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that weights are untrained stands on their card
                    self._models[name] = self._load_model(self._sources[name])
            return self._models[name]

    def _add(self, source: str) -> None:
        path = DEFAULT_WEIGHTS if source == "default" else Path(source)
        name = base = "default" if source == "default" else path.stem or "weights"
        number = 1
        while name in self._cards or name == SIFT:
            number += 1
            name = f"{base}-{number}"
        if path.is_dir():
            title, note = f"{name} (published layout)", ""
        elif path.is_file():
            card = read_card(path)
            title = name if card.name in ("", name) else f"{name} ({card.name})"
            note = "" if card.trained else "untrained weights: its features mean nothing yet"
        else:
            raise CheckpointError(f"there are no weights {source}; check the name given to --weights")
        self._sources[name] = source
        self._cards[name] = MethodCard(name, title, has_maps=True, note=note)


def default_weights() -> list[str]:
    """The weights that the package carries, where it carries some."""
    return ["default"] if DEFAULT_WEIGHTS.is_file() else []
