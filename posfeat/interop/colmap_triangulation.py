"""Points from matches of images whose poses are known, through COLMAP's triangulation; poses and lenses stay as they are."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from posfeat.interop.colmap import Model, load_pycolmap
from posfeat.options import check_options, described
from posfeat.types import ReconstructionError


@dataclass(frozen=True)
class TriangulationOptions:
    """Which matches become points."""

    max_epipolar_error_px: float = described(4.0, "largest distance of a match from its epipolar lines", low=0)
    max_reprojection_error_px: float = described(
        4.0, "largest distance of a keypoint from its point's projection", low=0
    )
    min_angle_deg: float = described(1.5, "rays to a point meet at least at this angle", low=0, high=90)
    two_view_points: bool = described(False, "keep points that two images only see")
    refine_intrinsics: bool = described(False, "adjust the lenses to the points; poses stay fixed")
    seed: int = described(0, "seed of all random choices; -1 takes another each time", low=-1)
    threads: int = described(-1, "threads; -1 takes all", low=-1)

    def __post_init__(self) -> None:
        check_options(self)


def triangulate_database(model: Model, database: Path, images: Path, options: TriangulationOptions) -> Model:
    """The model with points from the database's verified matches; poses are those of ``model``."""
    pycolmap = load_pycolmap()
    made = pycolmap.IncrementalPipelineOptions()
    made.min_num_matches = 1
    made.num_threads = options.threads
    made.random_seed = options.seed
    made.extract_colors = False
    made.mapper.filter_max_reproj_error = options.max_reprojection_error_px
    made.mapper.filter_min_tri_angle = options.min_angle_deg
    made.triangulation.complete_max_reproj_error = options.max_reprojection_error_px
    made.triangulation.merge_max_reproj_error = options.max_reprojection_error_px
    made.triangulation.min_angle = options.min_angle_deg
    made.triangulation.ignore_two_view_tracks = not options.two_view_points
    with tempfile.TemporaryDirectory() as scratch:  # COLMAP writes its result there; ours is written elsewhere
        try:
            return pycolmap.triangulate_points(
                model,
                database,
                images,
                scratch,
                clear_points=True,
                options=made,
                refine_intrinsics=options.refine_intrinsics,
            )
        except (ValueError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())
            raise ReconstructionError(f"COLMAP could not triangulate {database}: {reason}") from None
