"""COLMAP's verification, mapping and triangulation: from a database of matches to models, with few options of our own."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posfeat.interop.colmap import Model, largest_first, load_pycolmap
from posfeat.options import check_options, described
from posfeat.types import ReconstructionError

Mapper = Literal["incremental", "global"]
_PAIRS_AT_ONCE = 64
_KEYPOINTS_AT_HAND = 2 * _PAIRS_AT_ONCE  # images; those of the pairs at work fit in any case


@dataclass(frozen=True)
class VerificationOptions:
    """Which matches of a pair count as verified."""

    max_error_px: float = described(4.0, "largest distance from the epipolar line", low=0)
    min_inliers: int = described(15, "a pair with fewer verified matches is not used", low=5)
    max_trials: int = described(10_000, "the most trials of RANSAC for a pair", low=1)
    seed: int = described(0, "seed of RANSAC; -1 takes another each time", low=-1)
    threads: int = described(-1, "threads; -1 takes all", low=-1)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class MappingOptions:
    """How cameras and points are computed from verified matches."""

    mapper: Mapper = described("incremental", "incremental (one image after another) or global (all at once, faster)")
    refine_focal_length: bool = described(True, "adjust focal lengths")
    refine_principal_point: bool = described(False, "adjust principal points; many images of one camera are needed")
    refine_distortion: bool = described(True, "adjust lens distortion")
    min_matches: int = described(15, "a pair needs so many verified matches to be used", low=5)
    min_model_size: int = described(3, "smaller models beside the first one are thrown away", low=2)
    min_triangulation_angle_deg: float = described(1.5, "rays to a point meet at least at this angle", low=0, high=90)
    seed: int = described(0, "seed of all random choices; -1 takes another each time", low=-1)
    threads: int = described(-1, "threads; -1 takes all, 1 gives the same model each time", low=-1)

    def __post_init__(self) -> None:
        check_options(self)


def verify_database(database: Path, options: VerificationOptions) -> None:
    """Estimate the geometry of every matched pair of a database that has none yet; the same whatever else is there.

    COLMAP's own loop does all pairs again each time, those that were refused in the meantime too.
    """
    pycolmap = load_pycolmap()
    two_view = pycolmap.TwoViewGeometryOptions()
    two_view.min_num_inliers = options.min_inliers
    two_view.ransac.max_error = options.max_error_px
    two_view.ransac.max_num_trials = options.max_trials
    two_view.ransac.min_num_trials = min(two_view.ransac.min_num_trials, options.max_trials)
    two_view.ransac.random_seed = options.seed
    _run(database, lambda: _verify(database, two_view, options.threads))


def _verify(path: Path, two_view: Any, threads: int) -> None:
    pycolmap = load_pycolmap()
    database = pycolmap.Database.open(path)
    try:
        pair_ids, _ = database.read_num_matches()
        pairs = [pycolmap.pair_id_to_image_pair(pair_id) for pair_id in pair_ids]
        todo = sorted(pair for pair in pairs if not database.exists_two_view_geometry(*pair))
        images = {image.image_id: image for image in database.read_all_images()}

        @lru_cache(_KEYPOINTS_AT_HAND)
        def view(image_id: int) -> tuple[Any, Any]:
            xy = np.asarray(database.read_keypoints(image_id), dtype=np.float64)[:, :2]
            return database.read_camera(images[image_id].camera_id), xy

        def estimate(pair: tuple[int, int], matches: Any) -> Any:
            return pycolmap.estimate_two_view_geometry(*view(pair[0]), *view(pair[1]), matches, two_view)

        with ThreadPoolExecutor(threads if threads > 0 else os.cpu_count()) as pool:
            for start in range(0, len(todo), _PAIRS_AT_ONCE):
                some = todo[start : start + _PAIRS_AT_ONCE]
                for image_id in {image_id for pair in some for image_id in pair}:
                    view(image_id)  # SQLite is for this thread only
                found = list(pool.map(estimate, some, [database.read_matches(*pair) for pair in some]))
                with pycolmap.DatabaseTransaction(database):
                    for pair, geometry in zip(some, found, strict=True):
                        database.write_two_view_geometry(*pair, geometry)
    finally:
        database.close()


def map_database(
    database: Path,
    images: Path,
    output: Path,
    options: MappingOptions,
    on_image: Callable[[], None] | None = None,
) -> list[Model]:
    """The models that a database's verified matches give, largest first; none is a result too.

    ``output`` is a folder for COLMAP's own files; ``on_image`` is called when an image joins a model (incremental only).
    """
    pycolmap = load_pycolmap()
    output.mkdir(parents=True, exist_ok=True)
    if options.mapper == "global":
        return largest_first(
            _run(database, lambda: pycolmap.global_mapping(database, images, output, _global_options(options)))
        )
    heard = on_image or (lambda: None)

    def initial() -> None:  # an initial pair is two images
        heard()
        heard()

    return largest_first(
        _run(
            database,
            lambda: pycolmap.incremental_mapping(
                database,
                images,
                output,
                incremental_options(options),
                initial_image_pair_callback=initial,
                next_image_callback=heard,
            ),
        )
    )


def incremental_options(options: MappingOptions) -> Any:
    """pycolmap's options of incremental mapping and of triangulation."""
    made = load_pycolmap().IncrementalPipelineOptions()
    made.min_num_matches = options.min_matches
    made.min_model_size = options.min_model_size
    made.num_threads = options.threads
    made.random_seed = options.seed
    made.extract_colors = False
    made.structure_less_registration_fallback = False  # takes minutes for every photo that does not belong to the model
    made.ba_refine_focal_length = options.refine_focal_length
    made.ba_refine_principal_point = options.refine_principal_point
    made.ba_refine_extra_params = options.refine_distortion
    made.mapper.abs_pose_refine_focal_length = options.refine_focal_length
    made.mapper.abs_pose_refine_extra_params = options.refine_distortion
    made.mapper.filter_min_tri_angle = options.min_triangulation_angle_deg
    made.triangulation.min_angle = options.min_triangulation_angle_deg
    return made


def _global_options(options: MappingOptions) -> Any:
    made = load_pycolmap().GlobalPipelineOptions()
    made.min_num_matches = options.min_matches
    made.min_model_size = options.min_model_size
    made.num_threads = options.threads
    made.random_seed = options.seed
    adjustment = made.mapper.bundle_adjustment
    adjustment.refine_focal_length = options.refine_focal_length
    adjustment.refine_principal_point = options.refine_principal_point
    adjustment.refine_extra_params = options.refine_distortion
    return made


def _run(database: Path, work: Callable[[], Any]) -> Any:
    """What COLMAP says when something fails, as one line."""
    if not database.is_file():
        raise ReconstructionError(f"there is no database {database}; verify matches first")
    try:
        return work()
    except (ValueError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ReconstructionError(f"COLMAP stopped on {database}: {reason}") from None
