"""``posfeat verify``: which matches agree on a geometry, as a COLMAP database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import (
    CameraModelOption,
    CameraParamsOption,
    KnownCamerasOption,
    MaxErrorOption,
    SeedOption,
    Sharing,
    SharingOption,
    camera_options,
    verification_options,
)

EXAMPLES = """\b
Examples:
  posfeat verify features.h5 matches.h5 photos/ -o database.db
  posfeat verify features.h5 matches.h5 photos/ -o database.db --share-camera single
  posfeat verify features.h5 matches.h5 photos/ -o database.db --camera-model PINHOLE --camera-params 920,920,512,384
"""


def verify(
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="A feature file.")],
    matches: Annotated[Path, typer.Argument(metavar="MATCHES", help="A file of matches.")],
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="The photos, for their EXIF.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The COLMAP database.")] = Path("database.db"),
    cameras: KnownCamerasOption = None,
    camera_model: CameraModelOption = "SIMPLE_RADIAL",
    camera_params: CameraParamsOption = None,
    share_camera: SharingOption = Sharing.auto,
    max_error: MaxErrorOption = 4.0,
    seed: SeedOption = 0,
) -> None:
    """Keep the matches that agree on a geometry, in a COLMAP database."""
    from posfeat.pipeline.feature_store import FeatureStore
    from posfeat.pipeline.known_cameras import known_views
    from posfeat.pipeline.verify import verify_pairs

    options = camera_options(camera_model, camera_params, share_camera)
    with FeatureStore(features) as store:
        names = set(store.names())
    known = {name: view.camera for name, view in known_views(cameras, names).items()} if cameras else None
    with progress_bar("verifying") as progress:
        report = verify_pairs(
            features,
            matches,
            photos,
            output,
            verification_options(max_error, seed),
            options,
            known_cameras=known,
            progress=progress,
            on_failure=print_failure,
        )
    print(f"photos: {report.num_images}, cameras: {report.num_cameras}")
    print(f"verified pairs: {report.num_verified} of {report.num_pairs}, there already: {report.num_known}")
    print(f"database: {output}")
    if report.failures:
        raise typer.Exit(PARTLY)
