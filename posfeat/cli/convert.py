"""``posfeat convert``: feature and match files into other programs' formats, and back."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.progress import progress_bar

EXAMPLES = """\b
Examples:
  posfeat convert features.h5 -o aachen/images --to aachen --ending .posfeat
  posfeat convert features.h5 --matches matches.h5 -o text/ --to colmap-text
  posfeat convert text/ --images photos/ -o features.h5 --matches matches.h5 --from colmap-text
"""


class Format(str, Enum):
    """Formats that files can be converted to and from."""

    colmap_text = "colmap-text"
    eth = "eth"
    imc = "imc"
    d2net = "d2net"
    aachen = "aachen"


def convert(
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A feature file; or, with --from, a folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder; or, with --from, the feature file.")],
    to: Annotated[Format | None, typer.Option("--to", help="The format to write.")] = None,
    from_: Annotated[Format | None, typer.Option("--from", help="The format to read.")] = None,
    matches: Annotated[
        Path | None, typer.Option("--matches", help="Match file: to read as well, or, with --from, to write as well.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", help="With --from: the photos, which tell names and sizes.")
    ] = None,
    ending: Annotated[
        str | None, typer.Option("--ending", help="d2net, aachen: what follows an image's name in its file's.")
    ] = None,
) -> None:
    """Convert features and matches to another program's format, or from it."""
    from posfeat.pipeline.convert import export_stores, import_folder, open_folder
    from posfeat.pipeline.extract import list_images
    from posfeat.types import DataError, OptionsError

    with progress_bar("converting") as progress:
        if to is not None and from_ is None:
            report = export_stores(source, matches, open_folder(to.value, output, ending), progress, print_failure)
        elif from_ is not None and to is None and images is not None:
            if not source.is_dir():
                raise DataError(f"there is no folder {source}; check the name")
            folder = open_folder(from_.value, source, ending, list_images(images))
            report = import_folder(folder, images, output, matches, progress, print_failure)
        else:
            raise OptionsError("give --to FORMAT, or --from FORMAT and --images FOLDER")
    print(f"converted images: {report.num_images}, pairs: {report.num_pairs}, failed: {report.num_failures}")
    print(f"{'folder' if to else 'features'}: {output}")
    if report.num_failures:
        raise typer.Exit(PARTLY)
