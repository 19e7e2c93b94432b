"""``posfeat map``: cameras and points from verified matches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import (
    DeterministicOption,
    FixCamerasOption,
    Mapper,
    MapperOption,
    SeedOption,
    mapping_options,
    print_models,
)

EXAMPLES = """\b
Examples:
  posfeat map database.db photos/ -o sparse/
  posfeat map database.db photos/ -o sparse/ --mapper global
"""


def map_(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="A COLMAP database of verified matches.")],
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="The photos, for the points' colours.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the models 0, 1 ...")] = Path("sparse"),
    mapper: MapperOption = Mapper.incremental,
    fix_cameras: FixCamerasOption = False,
    seed: SeedOption = 0,
    deterministic: DeterministicOption = False,
) -> None:
    """Compute cameras and 3D points from a database of verified matches."""
    from posfeat.pipeline.map import map_scene

    options = mapping_options(mapper, fix_cameras, seed, deterministic)
    with progress_bar("mapping") as progress:
        report = map_scene(database, photos, output, options, progress=progress)
    print_models(report.models, report.num_photos)
    print(f"{'there already' if report.was_there else 'written'}: {output}")
