"""From what a person writes after --methods to features: ours, a checkpoint, a peer, or a file that somebody exported.

    default            the weights that are shipped            checkpoint.safetensors   other weights of ours
    rootsift disk ...  the peers of baselines.py               sift+default             our descriptors at SIFT's keypoints
    features.h5        a feature file in hloc's layout         folder/                  .npz files in D2-Net's layout

``@2048`` behind any of them but files asks for that many keypoints instead of the run's number, ``name=`` before any of
them names it in the report, and ``default[rotations_deg=[0,90,180,270];selection.nms_size=7]`` changes options of our
extraction for this one. What stands before a plus, ``sift``, a peer or a checkpoint, only says where to describe.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.benchmarks.baselines import PEERS, RGB, Method, RootSift, digest_of_code, peer
from posfeat.benchmarks.feature_sources import CachedMethod, FeatureSource, HlocFile, NpzFolder
from posfeat.matching import MatchOptions, own_matching
from posfeat.networks.checkpoint import load, weights_digest
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.inference import choose_dtype
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import apply_overrides, options_from_mapping, options_to_mapping
from posfeat.types import Features, OptionsError

_CODE_THAT_EXTRACTS = ("networks", "geometry", "data/images.py", "data/image_header.py")


@dataclass(frozen=True)
class MethodSetting:
    """What all methods of a run are given."""

    root: Path  # of the data set, which names in feature files are relative to
    max_keypoints: int
    extraction: ExtractionOptions
    cache: Path | None = None
    device: str | None = None


def open_method(text: str, setting: MethodSetting) -> FeatureSource:
    """The features that ``text`` asks for; MissingExtraError where something must be installed first."""
    name, equals, named = text.partition("=")
    if equals and "[" not in name and not Path(text.partition("@")[0]).exists():
        source = open_method(named, setting)
        source.name = name
        return source
    spec, _, number = text.partition("@")
    if number and not number.isdecimal():
        raise OptionsError(f"method {text!r}: what follows @ is a number of keypoints")
    path = Path(spec)
    if path.suffix in (".h5", ".hdf5") and path.is_file():
        return HlocFile(path, setting.root)
    if path.is_dir() and any(path.rglob("*.npz")):
        return NpzFolder(path, setting.root)
    max_keypoints = int(number) if number else setting.max_keypoints
    source = CachedMethod(_method(spec, setting), max_keypoints, setting.cache)
    source.name = f"{source.name}@{number}" if number else source.name
    return source


def _method(spec: str, setting: MethodSetting) -> Method:
    whole = _whole_method(spec, setting)
    if whole is not None:
        return whole
    for at in (index for index, letter in enumerate(spec) if letter == "+"):
        ours = _ours(spec[at + 1 :], setting)
        keypoints = RootSift() if spec[:at] == "sift" else _whole_method(spec[:at], setting)
        if ours is not None and keypoints is not None:
            return DescribedKeypoints("sift" if spec[:at] == "sift" else keypoints.name, keypoints, ours)
    raise OptionsError(f"method {spec!r} is neither a file nor one of default, {', '.join(PEERS)}, sift+default")


def _whole_method(spec: str, setting: MethodSetting) -> Method | None:
    return peer(spec) if spec in PEERS else _ours(spec, setting)


def _ours(spec: str, setting: MethodSetting) -> Ours | None:
    weights, extraction = spec, setting.extraction
    if spec.endswith("]") and not Path(spec).exists():
        weights, _, changes = spec[:-1].partition("[")
        changed = apply_overrides(options_to_mapping(extraction), changes.split(";"))
        extraction = options_from_mapping(ExtractionOptions, changed)
    if weights != "default" and not (weights and Path(weights).exists()):
        return None
    name = spec if weights == "default" else Path(weights).stem + spec.removeprefix(weights)
    return Ours(name, load(weights, setting.device), extraction)


class Ours:
    """A model of this project."""

    def __init__(self, name: str, model: PoSFeat, extraction: ExtractionOptions) -> None:
        self.name = name
        self.own_matching = own_matching(weights_digest(model))
        self.model, self.extraction = model, extraction
        dtype = choose_dtype(extraction.precision, model.device)
        digests = f"weights {_digest_of_weights(model)} code {digest_of_code(_CODE_THAT_EXTRACTS)}"
        self.fingerprint = f"posfeat {digests} {model.device.type} {dtype} {extraction}"

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        return self.model.extract(image, max_keypoints, options=self.extraction)


class DescribedKeypoints:
    """Our descriptors at another method's keypoints: what either is worth without the other."""

    own_matching = MatchOptions()

    def __init__(self, keypoints_name: str, keypoints: Method, ours: Ours) -> None:
        self._keypoints, self._ours = keypoints, ours
        self.name = f"{keypoints_name}+{ours.name}"
        self.fingerprint = f"{keypoints.fingerprint} keypoints, {ours.fingerprint}"

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        found = self._keypoints.extract(image, max_keypoints)
        described = self._ours.model.describe(image, found.keypoints, options=self._ours.extraction)
        return dataclasses.replace(described, scores=found.scores)


def _digest_of_weights(model: PoSFeat) -> str:
    digest = hashlib.sha256(repr(model.options).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
