"""``posfeat localize``: where photos were taken, in a map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.model_choice import Device, DeviceOption, WeightsOption, load_model
from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.types import Camera

EXAMPLES = """\b
Examples:
  posfeat localize scene/ new_photos/ -o poses.txt
  posfeat localize map/ night_queries_with_intrinsics.txt --images photos/ -o poses.txt
  posfeat localize map/ new_photos/ -o poses.txt --details details.jsonl --retrieved 40
"""


MapArgument = Annotated[
    Path, typer.Argument(metavar="MAP", help="What posfeat reconstruct or triangulate made; it is only read.")
]
QueriesArgument = Annotated[
    Path, typer.Argument(metavar="QUERIES", help="A folder of photos, or a list of names with or without intrinsics.")
]
OutputOption = Annotated[
    Path, typer.Option("-o", "--output", help="List of poses: name qw qx qy qz tx ty tz, world to camera.")
]
ImagesOption = Annotated[
    Path | None, typer.Option("--images", help="Where a list's photos are; by default the list's own folder.")
]
MapFeaturesOption = Annotated[
    Path | None, typer.Option("--map-features", help="The map's feature file, if it lies elsewhere.")
]
QueryFeaturesOption = Annotated[
    Path | None, typer.Option("--query-features", help="A feature file of the queries, instead of the photos.")
]
DetailsOption = Annotated[
    Path | None, typer.Option("--details", help="A line of JSON for each photo: camera, matches, certainty.")
]
FullNamesOption = Annotated[
    bool, typer.Option("--full-names", help="Write names with their folders, not the file's name alone.")
]
RetrievedOption = Annotated[
    int, typer.Option("--retrieved", min=1, help="So many images of the map are matched with each photo.")
]
MaxErrorOption = Annotated[
    float | None,
    typer.Option("--max-error", min=0.1, help="Matches are at most so many px off; default 1 % of the longer side."),
]
MinInliersOption = Annotated[int, typer.Option("--min-inliers", min=4, help="Fewer matches that agree are no pose.")]


def localize(
    map_folder: MapArgument,
    queries: QueriesArgument,
    output: OutputOption = Path("poses.txt"),
    images: ImagesOption = None,
    map_features: MapFeaturesOption = None,
    query_features: QueryFeaturesOption = None,
    details: DetailsOption = None,
    full_names: FullNamesOption = False,
    retrieved: RetrievedOption = 20,
    max_error: MaxErrorOption = None,
    min_inliers: MinInliersOption = 12,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
) -> None:
    """Find where photos were taken, in a map of posed photos and points."""
    from posfeat.interop.absolute_pose import AbsolutePoseOptions
    from posfeat.pipeline.localize import LocalizationOptions, Localizer
    from posfeat.pipeline.localize_photos import localize_photos

    pose = AbsolutePoseOptions(max_error_px=max_error, min_inliers=min_inliers)
    options = LocalizationOptions(retrieved=retrieved, pose=pose)
    names, folder = _queries(queries, images)
    with Localizer(map_folder, features=map_features, options=options) as localizer:
        if query_features is None and localizer.needs_network:
            localizer.network = load_model(weights, device)
        with progress_bar("localizing") as progress:
            report = localize_photos(
                localizer,
                names,
                folder,
                output,
                query_features=query_features,
                details=details,
                full_names=full_names,
                progress=progress,
                on_failure=print_failure,
            )
    print(f"localized: {report.num_localized} of {report.num_photos} photos, done before: {report.num_known}")
    print(f"poses: {output}")
    if report.failures:
        raise typer.Exit(PARTLY)


def _queries(queries: Path, images: Path | None) -> tuple[dict[str, Camera | None], Path]:
    """The photos' names and known cameras, and the folder that they lie in."""
    from posfeat.interop.visual_localization import read_queries
    from posfeat.pipeline.extract import list_images
    from posfeat.types import DataError

    if not queries.is_dir():
        return read_queries(queries), images or queries.parent
    names = list_images(queries)
    if not names:
        raise DataError(f"there are no photos in {queries}; check the name of the folder")
    return dict.fromkeys(names), queries
