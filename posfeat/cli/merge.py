"""``posfeat merge``: the shards that workers wrote into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.progress import progress_bar

EXAMPLES = """\b
Examples:
  posfeat merge features/ -o features.h5
  posfeat merge s3://bucket/matches -o matches.h5
"""


def merge(
    shards: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder of shards, a path or an address, that --ray wrote.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file (HDF5, hloc's layout); it is gone on with.")],
) -> None:
    """Copy a folder of shards, as workers of Ray write them, into one file of features or matches."""
    from posfeat.pipeline.merge import merge_shards
    from posfeat.scale.storage import open_shard_folder

    with progress_bar("merging") as progress:
        report = merge_shards(open_shard_folder(shards), output, progress)
    print(f"shards: {report.num_shards}, copied: {report.num_copied}, there already: {report.num_known}")
    print(f"file: {output}")
