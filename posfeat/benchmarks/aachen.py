"""Aachen's pipeline on pycolmap: triangulate the reference model anew from a method's features, then place the queries in it.

As in the local feature challenge, intrinsics stay fixed throughout, every given pair is verified by COLMAP, database poses are those
of the reference model, and a query is placed by RANSAC (12 px) from its verified matches with keypoints that have a 3D point.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from posfeat.benchmarks.aachen_data import AachenData
from posfeat.benchmarks.camera_files import numbered_lines
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.work_files import Progress, WorkFiles, extract_and_match
from posfeat.data.poses import pose_from_quaternion
from posfeat.geometry.pose import camera_centre, quaternion_from_rotation, relative_pose, rotation_angle_deg
from posfeat.interop.absolute_pose import AbsolutePoseOptions, estimate_absolute_pose
from posfeat.interop.colmap import Model, model_of_views, observations, registered_images, write_model
from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_mapping import VerificationOptions
from posfeat.interop.colmap_triangulation import TriangulationOptions, triangulate_database
from posfeat.matching import MatchOptions
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import Array, Camera, DataError

KEYPOINTS = 16_384
PAPER_THRESHOLDS = ((0.5, 2.0), (1.0, 5.0), (5.0, 10.0))  # metres, degrees
_POSE = AbsolutePoseOptions(max_error_px=12.0)

Threshold = tuple[float, float]
Poses = dict[str, Array]


@dataclass(frozen=True)
class QueryScore:
    """One query: how it was placed and, where the truth is known, how far off."""

    name: str
    matches: int  # of keypoints with 3D points, right or wrong
    inliers: int  # 0: not placed
    position_error: float | None = None  # in the model's unit, metres
    rotation_error_deg: float | None = None


@dataclass(frozen=True)
class LocalizedQueries:
    """A method's poses of the queries, and the model that they were found in."""

    poses: Poses
    queries: list[QueryScore]
    points: int
    mean_track_length: float
    seconds: float
    model: Path
    files: WorkFiles


def localize_queries(
    data: AachenData, source: FeatureSource, matching: MatchOptions, work: Path, progress: Progress | None = None
) -> LocalizedQueries:
    """Features of all images, matches of the given pairs, the model's points, the queries' poses."""
    begun = time.perf_counter()
    cameras = {name: view.camera for name, view in data.views.items()} | data.queries
    files = extract_and_match(source, data.images, data.names, data.pairs, matching, work, cameras, progress)
    verification = VerificationOptions()
    verify_pairs(
        files.features,
        files.matches,
        data.images,
        files.database,
        verification,
        known_cameras=cameras,
        progress=progress,
    )
    model = _triangulated(data, files)
    write_model(model, files.models / "0")
    points = {int(number): point.xyz for number, point in model.points3D.items()}
    landmarks = {str(image.name): _landmarks_of(image) for image in registered_images(model)}
    poses, queries = {}, []
    with ColmapDatabase(files.database) as database:
        partners = _partners(database, data.queries, landmarks)
        for done, (name, camera) in enumerate(data.queries.items(), start=1):
            pose, score = _place(database, name, camera, partners.get(name, ()), landmarks, points)
            queries.append(score)
            if pose is not None:
                poses[name] = pose
            if progress is not None:
                progress(done, len(data.queries))
    track = float(model.compute_mean_track_length()) if points else 0.0
    seconds = files.add_seconds(time.perf_counter() - begun)
    return LocalizedQueries(poses, queries, len(points), track, seconds, files.models / "0", files)


def result_lines(poses: Mapping[str, Array]) -> str:
    """The file to upload: image name without folders, quaternion (scalar first), translation, world to camera."""
    lines = []
    for name, pose in sorted(poses.items()):
        quaternion = quaternion_from_rotation(torch.from_numpy(pose[:3, :3])).tolist()
        numbers = " ".join(f"{value:.17g}" for value in (*quaternion, *pose[:3, 3].tolist()))
        lines.append(f"{name.rsplit('/', 1)[-1]} {numbers}\n")
    return "".join(lines)


def read_poses(path: Path) -> Poses:
    """Poses in the layout of the file to upload, by image names without folders."""
    poses = {}
    for number, (name, *numbers) in numbered_lines(path):
        try:
            poses[name.rsplit("/", 1)[-1]] = pose_from_quaternion([float(value) for value in numbers])
        except ValueError as error:
            raise DataError(f"{path}:{number}: not an image's name and seven numbers of a pose ({error})") from error
    return poses


def with_errors(queries: Sequence[QueryScore], poses: Poses, true: Poses) -> list[QueryScore]:
    """The scores with how far from the truth each pose is; infinitely far for queries that were not placed."""
    judged = []
    for query in queries:
        key = query.name.rsplit("/", 1)[-1]
        if key not in true:
            raise DataError(
                f"the ground truth has no pose of the query {query.name}; is it of the same version and part?"
            )
        position, rotation = float("inf"), float("inf")
        if query.name in poses:
            estimated, known = torch.from_numpy(poses[query.name]), torch.from_numpy(true[key])
            position = float((camera_centre(estimated) - camera_centre(known)).norm())
            rotation = float(rotation_angle_deg(relative_pose(known, estimated)[:3, :3]))
        judged.append(QueryScore(query.name, query.matches, query.inliers, position, rotation))
    return judged


def recalls(queries: Sequence[QueryScore], thresholds: Sequence[Threshold]) -> tuple[float, ...]:
    """Share of all queries whose position and rotation are both within each threshold."""
    errors = [(query.position_error, query.rotation_error_deg) for query in queries]
    known = [(position, rotation) for position, rotation in errors if position is not None and rotation is not None]
    return tuple(
        sum(position <= metres and rotation <= degrees for position, rotation in known) / max(len(known), 1)
        for metres, degrees in thresholds
    )


def _triangulated(data: AachenData, files: WorkFiles) -> Model:
    with ColmapDatabase(files.database) as database:
        image_ids, camera_ids = database.image_ids(), database.camera_ids()
    views = [view for name, view in sorted(data.views.items()) if name in image_ids]
    empty = model_of_views(views, camera_ids, image_ids)
    return triangulate_database(empty, files.database, data.images, TriangulationOptions())


def _landmarks_of(image: object) -> dict[int, int]:
    """The id of the 3D point of each keypoint that has one, by the keypoint's row."""
    _, points, rows = observations(image)
    return dict(zip(rows.tolist(), points.tolist(), strict=True))


def _partners(
    database: ColmapDatabase, queries: Mapping[str, Camera], landmarks: Mapping[str, dict[int, int]]
) -> dict[str, list[str]]:
    """The database images that each query has verified matches with."""
    partners: dict[str, list[str]] = {}
    for pair in database.pairs():
        for name, other in ((pair.name0, pair.name1), (pair.name1, pair.name0)):
            if pair.num_inliers and name in queries and other in landmarks:
                partners.setdefault(name, []).append(other)
    return partners


def _place(
    database: ColmapDatabase,
    name: str,
    camera: Camera,
    partners: Sequence[str],
    landmarks: Mapping[str, dict[int, int]],
    points: Mapping[int, Array],
) -> tuple[Array | None, QueryScore]:
    found: set[tuple[int, int]] = (
        set()
    )  # each match of a keypoint with a point counts once, however many images show it
    for partner in partners:
        of_partner = landmarks[partner]
        inliers = _verified(database, name, partner)
        found |= {(row, of_partner[other]) for row, other in inliers.tolist() if other in of_partner}
    if not found:
        return None, QueryScore(name, 0, 0)
    ordered = sorted(found)
    xy = database.keypoints(name)[[row for row, _ in ordered]]
    xyz = np.array([points[point] for _, point in ordered], dtype=np.float64)
    estimate = estimate_absolute_pose(xy, xyz, camera, "known", _POSE)
    if estimate is None:
        return None, QueryScore(name, len(ordered), 0)
    return estimate.cam_from_world, QueryScore(name, len(ordered), estimate.num_inliers)


def _verified(database: ColmapDatabase, name: str, partner: str) -> npt.NDArray[np.int64]:
    """Verified matches of a pair: rows of the first and of the second image's keypoints."""
    geometry = database.geometry(name, partner)
    return np.zeros((0, 2), dtype=np.int64) if geometry is None else geometry.inliers
