"""COLMAP through pycolmap: cameras, poses, pixels and models, between its conventions and ours. The only file that imports pycolmap.

COLMAP puts the centre of the top-left pixel at (0.5, 0.5). Half a pixel is added to whatever goes there by ``to_colmap_pixels``
and ``to_colmap_camera``, taken away from whatever comes back by ``from_colmap_pixels`` and ``from_colmap_camera``, and by nothing else.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from posfeat.data.colmap_files import require_whole
from posfeat.data.distortion import camera_from_colmap, num_focal_lengths, undistort_pixels
from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.types import Array, Camera, DataError, MissingExtraError, ReconstructionError, View

OLDEST_VERSION = 4  # the first with rigs and frames in databases and models as they are read and written here

Model = Any  # pycolmap.Reconstruction
_PLY_BYTES_A_POINT = 15  # three floats and three bytes


def load_pycolmap() -> Any:
    """The module pycolmap, kept quiet, or an error that names the extra to install."""
    # pycolmap's wheel carries its own zlib, libpng, libjpeg and sqlite. Unless Python's are loaded before it, the next
    # PNG that OpenCV or Pillow writes ends the process.
    import zlib  # noqa: F401

    import cv2  # noqa: F401

    try:
        import pycolmap
    except ImportError as error:
        raise MissingExtraError(f"pycolmap is not installed here ({error}); pip install 'posfeat[sfm]'") from None
    version = str(pycolmap.__version__)
    if int(version.partition(".")[0]) < OLDEST_VERSION:
        raise MissingExtraError(f"pycolmap {version} is too old; pip install 'pycolmap>={OLDEST_VERSION},<5'")
    # what it would say of errors comes as an exception, or is said by ours
    pycolmap.logging.minloglevel = int(pycolmap.logging.FATAL)
    return pycolmap


def to_colmap_pixels(xy: npt.ArrayLike) -> Array:
    """Positions (N, 2) as COLMAP counts them."""
    return np.asarray(xy, dtype=np.float64).reshape(-1, 2) + COLMAP_OFFSET_PX


def from_colmap_pixels(xy: npt.ArrayLike) -> Array:
    """Positions (N, 2) as we count them."""
    return np.asarray(xy, dtype=np.float64).reshape(-1, 2) - COLMAP_OFFSET_PX


def to_colmap_camera(camera: Camera, camera_id: int | None = None, focal_is_known: bool = False) -> Any:
    """A pycolmap.Camera; ``focal_is_known`` lets COLMAP trust the focal length when it verifies matches."""
    made = load_pycolmap().Camera(
        model=camera.model, width=camera.width, height=camera.height, params=colmap_params(camera)
    )
    made.has_prior_focal_length = focal_is_known
    if camera_id is not None:
        made.camera_id = camera_id
    return made


def from_colmap_camera(camera: Any) -> Camera:
    """Our Camera of a pycolmap.Camera."""
    return camera_from_colmap(str(camera.model_name), int(camera.width), int(camera.height), list(camera.params))


def colmap_params(camera: Camera) -> list[float]:
    """The camera's parameters in COLMAP's order."""
    fx, fy, cx, cy = (float(camera.matrix[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
    if num_focal_lengths(camera.model) == 1:
        if not np.isclose(fx, fy, rtol=1e-9):
            raise DataError(f"a {camera.model} camera has one focal length, not {fx} and {fy}; choose another model")
        focals = [fx]
    else:
        focals = [fx, fy]
    return [*focals, cx + COLMAP_OFFSET_PX, cy + COLMAP_OFFSET_PX, *camera.distortion]


def to_rigid(pose: Array) -> Any:
    """A pycolmap.Rigid3d of a pose (4, 4)."""
    return load_pycolmap().Rigid3d(np.ascontiguousarray(pose[:3], dtype=np.float64))


def from_rigid(rigid: Any) -> Array:
    """The pose (4, 4) of a pycolmap.Rigid3d."""
    return np.vstack([np.asarray(rigid.matrix(), dtype=np.float64), [0.0, 0.0, 0.0, 1.0]])


def cam_from_world(image: Any) -> Array:
    """The pose (4, 4) of a registered image of a model."""
    return from_rigid(image.cam_from_world())


def read_model(folder: Path) -> Model:
    """A model from its folder of cameras, images and points3D, binary or text."""
    pycolmap = load_pycolmap()
    if not folder.is_dir():
        raise DataError(f"there is no model folder {folder}; check the name")
    require_whole(folder)
    try:
        model = pycolmap.Reconstruction(folder)
        model.compute_num_observations()  # fails where a cut file lacks images that another one names
        return model
    except (ValueError, RuntimeError, OSError, LookupError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{folder} is not a COLMAP model, or is damaged: {reason}") from None


def write_model(model: Model, folder: Path, text: bool = False) -> None:
    """Write a model in COLMAP's binary (or text) files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReconstructionError(f"cannot write the model to {folder}: {error.strerror}") from None
    (model.write_text if text else model.write_binary)(folder)
    # a full disk cuts COLMAP's files off without a word
    try:
        whole = _counts(read_model(folder)) == _counts(model)
    except DataError:
        whole = False
    if not whole:
        raise ReconstructionError(f"the model in {folder} is cut off; is the disk full? make room, and write it again")


def _counts(model: Model) -> tuple[int, int, int]:
    return int(model.num_reg_images()), int(model.num_points3D()), int(model.compute_num_observations())


def registered_images(model: Model) -> list[Any]:
    """The images of a model that have a pose, in the order of their names."""
    return sorted((model.image(image_id) for image_id in model.reg_image_ids()), key=lambda image: str(image.name))


def views_of_model(model: Model, image_folder: Path) -> list[View]:
    """The registered images as Views, in the order of their names."""
    return [
        View(
            image_path=image_folder / image.name,
            camera=from_colmap_camera(image.camera),
            cam_from_world=cam_from_world(image),
            name=str(image.name),
        )
        for image in registered_images(model)
    ]


def model_of_views(views: Iterable[View], camera_ids: Mapping[str, int], image_ids: Mapping[str, int]) -> Model:
    """A model of posed images without points, for triangulation; ids, by the image's name, are those of a database."""
    pycolmap = load_pycolmap()
    model = pycolmap.Reconstruction()
    added: set[int] = set()
    for view in views:
        camera_id, image_id = camera_ids[view.name], image_ids[view.name]
        if camera_id not in added:
            model.add_camera_with_trivial_rig(to_colmap_camera(view.camera, camera_id, focal_is_known=True))
            added.add(camera_id)
        image = pycolmap.Image(name=view.name, camera_id=camera_id, image_id=image_id)
        model.add_image_with_trivial_frame(image, to_rigid(view.cam_from_world))
    return model


def point_rows(model: Model) -> tuple[npt.NDArray[np.int64], Array, npt.NDArray[np.uint8]]:
    """Ids (N), positions (N, 3) and colours (N, 3) of a model's points, in the order of their ids."""
    points = sorted(model.points3D.items())
    ids = np.array([number for number, _ in points], dtype=np.int64)
    positions = np.array([point.xyz for _, point in points], dtype=np.float64).reshape(-1, 3)
    colours = np.array([point.color for _, point in points], dtype=np.uint8).reshape(-1, 3)
    return ids, positions, colours


def observations(image: Any) -> tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What a model's image sees of its points: positions (N, 2), ids of the points (N), rows of the keypoints (N)."""
    rows = list(image.get_observation_point2D_idxs())
    seen = [image.points2D[row] for row in rows]
    positions = from_colmap_pixels([point.xy for point in seen])
    return positions, np.array([point.point3D_id for point in seen], np.int64), np.array(rows, dtype=np.int64)


def largest_first(models: Mapping[int, Model] | Sequence[Model]) -> list[Model]:
    """Models by the number of their registered images, then of their points, most first."""
    found = list(models.values()) if isinstance(models, Mapping) else list(models)
    return sorted(found, key=lambda model: (-model.num_reg_images(), -model.num_points3D()))


def exif_camera(path: Path) -> tuple[str | None, float | None]:
    """What a photo's EXIF says of its camera: a name for camera, lens and size, and the focal length in pixels."""
    try:
        photo = load_pycolmap().Bitmap.read(path, False)
    except (ValueError, RuntimeError, OSError):
        photo = None
    if photo is None:  # a format that COLMAP does not read
        return None, None
    model, focal = photo.exif_camera_model(), photo.exif_focal_length()
    return (str(model) if model else None), (float(focal) if focal else None)


def unknown_camera(model: str, width: int, height: int, focal_px: float) -> Camera:
    """A camera of which no more than a focal length is known: centred, without distortion."""
    made = load_pycolmap().Camera.create_from_model_name(0, model, focal_px, width, height)
    return from_colmap_camera(made)


def write_ply(model: Model, path: Path, rotation: Array | None = None) -> None:
    """Write a model's coloured points, turned if asked for."""
    if rotation is not None:
        pycolmap = load_pycolmap()
        model = copy.deepcopy(model)
        model.transform(pycolmap.Sim3d(1.0, pycolmap.Rotation3d(rotation), np.zeros(3)))
    part = path.with_name(path.name + ".part")
    try:
        model.export_PLY(part)
        if part.stat().st_size < _PLY_BYTES_A_POINT * model.num_points3D():  # COLMAP does not look
            raise ReconstructionError(f"{path} cannot be written whole; is the disk full? make room")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def with_cameras(model: Model, cameras: Mapping[int, Camera]) -> Model:
    """A copy of a model with other cameras (by their ids), its keypoints moved to where the new cameras see them.

    Images of other cameras are left out; keypoints that a new camera cannot see stay where they were.
    """
    changed, pycolmap = copy.deepcopy(model), load_pycolmap()
    for image in registered_images(changed):
        if image.camera_id not in cameras:
            changed.deregister_frame(image.frame_id)
            continue
        old, new = from_colmap_camera(model.camera(image.camera_id)), cameras[image.camera_id]
        xy = from_colmap_pixels([point.xy for point in image.points2D])
        moved = undistort_pixels(old, xy, new)
        moved = to_colmap_pixels(np.where(np.isfinite(moved), moved, xy))
        for point, position in zip(image.points2D, moved, strict=True):
            point.xy = position
    for camera_id, camera in cameras.items():
        target = changed.cameras[camera_id]
        target.model = pycolmap.CameraModelId(camera.model)
        target.width, target.height, target.params = camera.width, camera.height, colmap_params(camera)
    return changed
