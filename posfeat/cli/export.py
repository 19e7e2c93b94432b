"""``posfeat export``: a model in other programs' formats."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.progress import progress_bar


class Format(str, Enum):
    """What a model is written as."""

    ply = "ply"
    nerfstudio = "nerfstudio"
    undistorted = "undistorted"
    text = "text"


EXAMPLES = """\b
Examples:
  posfeat export sparse/0 photos/ -o scene/
  posfeat export sparse/0 photos/ -o scene/ --format undistorted
"""
DEFAULT_FORMATS = [Format.ply, Format.nerfstudio, Format.undistorted]
FormatsOption = Annotated[
    list[Format],
    typer.Option("--format", help="What to write (again for more): undistorted is for Gaussian splatting."),
]


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a COLMAP model.")],
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="Its photos.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what is written.")] = Path("."),
    formats: FormatsOption = DEFAULT_FORMATS,
) -> None:
    """Write a model as PLY, transforms.json, undistorted photos with their cameras, or text."""
    from posfeat.pipeline.export import export_model

    with progress_bar("exporting") as progress:
        report = export_model(
            model, photos, output, [wanted.value for wanted in formats], progress=progress, on_failure=print_failure
        )
    for path in report.written:
        print(f"written: {path}")
    if report.failures:
        raise typer.Exit(PARTLY)
