"""``posfeat triangulate``: a map of points from photos whose poses are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
    FeaturesOption,
    KeypointsOption,
    Kind,
    Precision,
    PrecisionOption,
    SetOption,
    WeightsOption,
    load_extractor,
)
from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import NeighboursOption, PairListOption, SeedOption, print_models

if TYPE_CHECKING:
    from posfeat.pipeline.triangulate import TriangulationReport

EXAMPLES = """\b
Examples:
  posfeat triangulate scene/ -o map/
  posfeat triangulate old_model/ --photos photos/ -o map/ --features rootsift
  posfeat triangulate scene/ features.h5 matches.h5 -o map/
"""
_TITLES = {"extract": "extracting", "pairs": "choosing pairs", "match": "matching", "triangulate": "triangulating"}

PosedArgument = Annotated[
    Path, typer.Argument(metavar="POSED", help="Posed photos: a COLMAP model, transforms.json, cameras.txt ...")
]
FeaturesArgument = Annotated[
    Path | None, typer.Argument(metavar="FEATURES", help="Their feature file, if there is one.")
]
MatchesArgument = Annotated[Path | None, typer.Argument(metavar="MATCHES", help="Their match file, if there is one.")]
OutputOption = Annotated[
    Path, typer.Option("-o", "--output", help="Folder for the map: sparse/0, and features.h5 if made.")
]
PhotosOption = Annotated[Path | None, typer.Option("--photos", help="The photos, if they lie apart.")]
MaxErrorOption = Annotated[
    float, typer.Option("--max-error", min=0.1, help="Matches are at most so many px from their epipolar lines.")
]
TwoViewPointsOption = Annotated[bool, typer.Option("--two-view-points", help="Keep points that two photos only see.")]
RefineCamerasOption = Annotated[
    bool, typer.Option("--refine-cameras", help="Adjust focal lengths and distortion; poses stay.")
]


def triangulate(
    posed: PosedArgument,
    features: FeaturesArgument = None,
    matches: MatchesArgument = None,
    output: OutputOption = Path("map"),
    photos: PhotosOption = None,
    neighbours: NeighboursOption = 20,
    pair_list: PairListOption = None,
    max_error: MaxErrorOption = 4.0,
    two_view_points: TwoViewPointsOption = False,
    refine_cameras: RefineCamerasOption = False,
    seed: SeedOption = 0,
    max_keypoints: KeypointsOption = 4096,
    kind: FeaturesOption = Kind.posfeat,
    overrides: SetOption = None,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
) -> None:
    """Compute the 3D points of photos whose poses are known, to localize others in."""
    from posfeat.interop.colmap_triangulation import TriangulationOptions
    from posfeat.pipeline.triangulate import triangulate as run
    from posfeat.pipeline.triangulate_photos import triangulate_photos
    from posfeat.types import OptionsError

    options = TriangulationOptions(
        max_epipolar_error_px=max_error,
        max_reprojection_error_px=max_error,
        two_view_points=two_view_points,
        refine_intrinsics=refine_cameras,
        seed=seed,
    )
    if features is not None and matches is not None:
        with progress_bar("triangulating") as progress:
            _tell(
                run(posed, features, matches, output / "sparse" / "0", options, image_folder=photos, progress=progress),
                output,
            )
        return
    if features is not None:
        raise OptionsError("give a feature file and a match file, or neither to have both made")
    extractor = load_extractor(kind, weights, device, max_keypoints, precision, overrides)
    made = triangulate_photos(
        extractor,
        posed,
        output,
        image_folder=photos,
        neighbours=neighbours,
        pair_list=pair_list,
        options=options,
        progress_bar=lambda step: progress_bar(_TITLES[step]),
        on_failure=print_failure,
    )
    _tell(made.report, output)
    if made.failures:
        raise typer.Exit(PARTLY)


def _tell(report: TriangulationReport, output: Path) -> None:
    print_models((report.model,), report.model.num_images + len(report.without_pose))
    print(f"matches that agree with the poses: {report.num_inliers} of {report.num_matches}")
    for line in report.doubts:
        print(f"doubt: {line}")
    print(f"model: {output / 'sparse' / '0'}")
