"""``posfeat pairs``: which photos are worth matching."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import (
    KnownCamerasOption,
    NeighboursOption,
    OverlapOption,
    PairListOption,
    PairMethod,
    PairMethodOption,
    pair_options,
)

EXAMPLES = """\b
Examples:
  posfeat pairs features.h5 -o pairs.txt
  posfeat pairs features.h5 -o pairs.txt --pairs sequential --overlap 15
  posfeat pairs features.h5 -o pairs.txt --pairs poses --cameras old_model/ --neighbours 30
  posfeat pairs s3://bucket/features -o pairs.txt
"""


def pairs(
    features: Annotated[
        str, typer.Argument(metavar="FEATURES", help="A feature file, or a folder of shards: a path or an address.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The list of pairs.")] = Path("pairs.txt"),
    method: PairMethodOption = PairMethod.auto,
    neighbours: NeighboursOption = 20,
    overlap: OverlapOption = 10,
    cameras: KnownCamerasOption = None,
    pair_list: PairListOption = None,
) -> None:
    """Choose the pairs of photos that are worth matching."""
    from posfeat.pipeline.select_pairs import select_pairs
    from posfeat.scale.match import open_features

    options, store = pair_options(method, neighbours, overlap, pair_list), open_features(features)
    with progress_bar("looking for similar photos") as progress:
        report = select_pairs(store, output, options, cameras=cameras, pair_list=pair_list, progress=progress)
    print(f"pairs: {report.num_pairs} of {report.num_images} photos ({report.method})")
    for name in report.without_features:
        print(f"without keypoints: {name}")
    print(f"written: {output}")
