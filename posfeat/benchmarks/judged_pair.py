"""How far the matches of two photos are from a truth that somebody knows: a homography, or both cameras."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from posfeat.benchmarks.hpatches import read_homography
from posfeat.benchmarks.metrics import transfer_errors
from posfeat.benchmarks.pose_pairs import read_views
from posfeat.benchmarks.relative_pose import straight_pixels
from posfeat.geometry.epipolar import fundamental_from_cameras, symmetric_epipolar_distance
from posfeat.geometry.pose import relative_pose
from posfeat.types import DataError, Pair, View


def posed_pair(scene: Path, name0: str, name1: str) -> Pair:
    """Two photos of a posed scene by their names in it, or by the ends of these."""
    views = read_views(scene)
    return Pair(_named(views, name0, scene), _named(views, name1, scene))


def errors_by_homography(
    path: Path, xy0: Annotated[Tensor, "matches 2"], xy1: Annotated[Tensor, "matches 2"]
) -> Annotated[Tensor, "matches"]:
    """Distance in image 1 from where the file's homography sends each match's first point."""
    return transfer_errors(torch.from_numpy(read_homography(path)), xy0, xy1)


def errors_by_poses(
    pair: Pair, xy0: Annotated[Tensor, "matches 2"], xy1: Annotated[Tensor, "matches 2"]
) -> Annotated[Tensor, "matches"]:
    """The larger distance of a match's two points from each other's epipolar line, lens distortion taken out."""
    matrix0, matrix1 = (torch.from_numpy(view.camera.matrix) for view in (pair.view0, pair.view1))
    pose0, pose1 = (torch.from_numpy(view.cam_from_world) for view in (pair.view0, pair.view1))
    fundamental = fundamental_from_cameras(matrix0, matrix1, relative_pose(pose0, pose1))
    straight = straight_pixels(pair.view0.camera, xy0), straight_pixels(pair.view1.camera, xy1)
    return torch.maximum(*symmetric_epipolar_distance(fundamental, *straight)).nan_to_num(torch.inf)


def _named(views: list[View], name: str, scene: Path) -> View:
    found = [view for view in views if view.name == name] or [view for view in views if view.name.endswith(f"/{name}")]
    if len(found) != 1:
        raise DataError(
            f"{scene} has {len(found)} posed photos named {name}; it has {views[0].name} and {len(views) - 1} more"
        )
    return found[0]
