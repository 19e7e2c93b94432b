"""The nouns of PoSFeat: what passes between its parts, and the errors a person can meet.

Every pixel position in this package has the centre of the top-left pixel at (0, 0) and is written (x, y).
Every pose is a 4x4 matrix ``cam_from_world`` or ``cam1_from_cam0`` that takes homogeneous points of the right-hand
frame to the left-hand frame. The two images of a pair are always 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[np.float64]
Array32 = npt.NDArray[np.float32]


class PosfeatError(Exception):
    """Something a person can put right. The message is one line: what is wrong, where, and what to do."""


class ImageError(PosfeatError):
    """An image file or array that cannot be used."""


class CheckpointError(PosfeatError):
    """A weight file that is missing, damaged, foreign or does not fit the network."""


class StoreError(PosfeatError):
    """A feature or match store that is missing, damaged or lacks what was asked for."""


class DataError(PosfeatError):
    """Posed images that are missing, damaged or not usable for what was asked."""


class OptionsError(PosfeatError):
    """An option that does not exist or has a value it cannot have."""


class ReconstructionError(PosfeatError):
    """No model or pose could be computed; the message says why."""


class MissingExtraError(PosfeatError):
    """A feature needs a package that is not installed; the message names the extra to install."""


@dataclass(frozen=True)
class Camera:
    """A camera's intrinsics: pinhole matrix in 0-centred pixels, and distortion under COLMAP's model name.

    ``distortion`` holds the parameters that follow focal lengths and principal point in COLMAP's order for ``model``
    (none for PINHOLE). Coordinates of the model are those of ``matrix``, not COLMAP's half-pixel ones.
    """

    width: int
    height: int
    matrix: Array  # (3, 3)
    model: str = "PINHOLE"
    distortion: tuple[float, ...] = ()


@dataclass(frozen=True)
class View:
    """One posed image of a scene."""

    image_path: Path
    camera: Camera
    cam_from_world: Array  # (4, 4)
    name: str = ""  # relative name inside the data set, '/' separated
    scene: str = ""
    mask_path: Path | None = None
    point_ids: npt.NDArray[np.int64] | None = None  # sorted ids of the 3D points seen, where an SfM model gives them
    depth_range: tuple[float, float] | None = None  # near and far end of what it sees, in the world's unit, where known


@dataclass(frozen=True)
class Pair:
    """Two posed images that see the same place."""

    view0: View
    view1: View
    overlap: float = float("nan")  # share of common content in [0, 1], where known
    has_baseline: bool = True  # False: taken from one place, there are no epipolar lines


@dataclass(frozen=True)
class PairBatch:
    """What training sees: normalised images of a batch of pairs, their cameras and relative poses.

    ``has_baseline`` is False where both images were taken from one place: there is no epipolar line then, and the pose
    alone sends each pixel to one pixel. ``map1_from_map0`` (B, H, W, 2) gives, on rendered pairs only, the true position in image 1 of every
    pixel of image 0 (NaN where unseen); losses never read it.
    """

    image0: Annotated[Tensor, "batch 3 height width"]
    image1: Annotated[Tensor, "batch 3 height width"]
    intrinsics0: Annotated[Tensor, "batch 3 3"]
    intrinsics1: Annotated[Tensor, "batch 3 3"]
    cam1_from_cam0: Annotated[Tensor, "batch 4 4"]
    has_baseline: Annotated[Tensor, "batch"]
    map1_from_map0: Annotated[Tensor, "batch height width 2"] | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescriptionMaps:
    """What a description network gives: the descriptor map before L2 normalisation, and an early map for the detector.

    ``coarse`` is for the coarse-to-fine search only.
    """

    descriptors: Annotated[Tensor, "batch dim map_height map_width"]
    stem: Annotated[Tensor, "batch channels map_height map_width"]
    coarse: Annotated[Tensor, "batch dim coarse_height coarse_width"] | None = None


@dataclass(frozen=True)
class DenseFeatures:
    """Dense output of a model: descriptor map before L2 normalisation, and full-resolution score map in [0, inf)."""

    descriptors: Annotated[Tensor, "batch dim map_height map_width"]
    scores: Annotated[Tensor, "batch 1 height width"]


@dataclass(frozen=True)
class Features:
    """Keypoints of one image and what is known at them. Rows belong together, best score first."""

    keypoints: Annotated[Tensor, "num_keypoints 2"]  # float32 xy
    scores: Annotated[Tensor, "num_keypoints"]  # float32
    descriptors: Annotated[Tensor, "num_keypoints dim"]  # float32, unit length
    image_size: tuple[int, int]  # width, height

    def __len__(self) -> int:
        return int(self.keypoints.shape[0])


@dataclass(frozen=True)
class Matches:
    """Pairs of keypoint indices and the cosine similarity of each pair, best first."""

    indices: Annotated[Tensor, "num_matches 2"]  # int64: row in features 0, row in features 1
    scores: Annotated[Tensor, "num_matches"]  # float32

    def __len__(self) -> int:
        return int(self.indices.shape[0])


class TwoViewConfiguration(Enum):
    """What kind of geometry relates two images."""

    CALIBRATED = "calibrated"
    UNCALIBRATED = "uncalibrated"
    PLANAR = "planar"
    DEGENERATE = "degenerate"


@dataclass(frozen=True)
class TwoViewGeometry:
    """Verified matches of two images and the geometry that they support."""

    configuration: TwoViewConfiguration
    inliers: npt.NDArray[np.int64]  # (K, 2) keypoint indices
    fundamental: Array | None = None  # (3, 3)
    cam1_from_cam0: Array | None = None  # (4, 4), translation of unit length
    provenance: dict[str, str] = field(default_factory=dict)
