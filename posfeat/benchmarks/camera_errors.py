"""How far reconstructed cameras are from known ones. A reconstruction has a frame and a scale of its own: both are laid over first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from posfeat.geometry.alignment import Similarity, align_points
from posfeat.geometry.pose import camera_centre, rotation_angle_deg
from posfeat.types import Array, ReconstructionError, View

FEWEST_CAMERAS = 3


@dataclass(frozen=True)
class CameraErrors:
    """Errors of the cameras that the reconstruction has, in the order of ``names``."""

    names: tuple[str, ...]
    num_true: int  # cameras that could have been found
    size: float  # of the scene: the largest distance between two true cameras
    centre_errors: Array  # (N,) in the truth's unit
    rotation_errors_deg: Array  # (N,)
    centres: Array  # (N, 3) reconstructed ones, in the truth's frame

    @property
    def mean_centre_percent(self) -> float:
        """The mean centre error in percent of the scene's size."""
        return 100 * float(self.centre_errors.mean()) / self.size

    @property
    def mean_rotation_deg(self) -> float:
        """The mean rotation error."""
        return float(self.rotation_errors_deg.mean())


def camera_errors(reconstructed: Sequence[View], true: Sequence[View]) -> CameraErrors:
    """Compare cameras by their names; ReconstructionError where too few are left to lay one frame over the other."""
    by_name = {view.name: view for view in reconstructed}
    common = [view for view in true if view.name in by_name]
    if len(common) < FEWEST_CAMERAS:
        raise ReconstructionError(
            f"{len(common)} of {len(true)} cameras were reconstructed; {FEWEST_CAMERAS} are needed to compare them"
        )
    found_poses, true_poses = _poses([by_name[view.name] for view in common]), _poses(common)
    found_centres, true_centres = camera_centre(found_poses), camera_centre(true_poses)
    similarity: Similarity = align_points(found_centres, true_centres)
    moved = similarity.moved(found_centres)
    turned = found_poses[:, :3, :3] @ similarity.rotation.T
    all_centres = camera_centre(_poses(true))
    return CameraErrors(
        names=tuple(view.name for view in common),
        num_true=len(true),
        size=float(torch.cdist(all_centres, all_centres).max()),
        centre_errors=(moved - true_centres).norm(dim=-1).numpy(),
        rotation_errors_deg=rotation_angle_deg(turned @ true_poses[:, :3, :3].transpose(-1, -2)).numpy(),
        centres=moved.numpy(),
    )


def _poses(views: Sequence[View]) -> torch.Tensor:
    return torch.from_numpy(np.stack([view.cam_from_world for view in views]).astype(np.float64))
