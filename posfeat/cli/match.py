"""``posfeat match``: two photos at once, or all pairs of a folder into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
    KeypointsOption,
    Precision,
    PrecisionOption,
    WeightsOption,
    extraction_options,
    load_model,
)

if TYPE_CHECKING:
    from posfeat.pipeline.two_view import MatchedPhotos

EXAMPLES = """\b
Examples:
  posfeat match a.jpg b.jpg
  posfeat match a.jpg b.jpg -o matches.png
  posfeat match a.jpg b.jpg --json > matches.json
  posfeat match photos/ -o matches.h5
  posfeat match features.h5 --pairs pairs.txt --ratio 0.9 -o matches.h5
"""


def match(
    inputs: Annotated[
        list[Path], typer.Argument(metavar="INPUT...", help="Two photos; or one folder of photos; or a feature file.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A picture of two photos' matches; or the file of matches.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="A file with two names on each line; without it, all pairs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print two photos' matches as JSON.")] = False,
    max_keypoints: KeypointsOption = 4096,
    ratio: Annotated[
        float | None, typer.Option("--ratio", min=0, max=1, help="Largest distance ratio of best to second best.")
    ] = None,
    min_similarity: Annotated[
        float | None, typer.Option("--min-similarity", min=-1, max=1, help="Smallest cosine of two descriptors.")
    ] = None,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
) -> None:
    """Match two photos, or many pairs of photos."""
    from posfeat.matching import MatchOptions
    from posfeat.pipeline.two_view import match_photos, write_match_picture
    from posfeat.types import OptionsError

    matching = MatchOptions(ratio=ratio, min_similarity=min_similarity)
    if len(inputs) == 1:
        raise OptionsError("x")
    if len(inputs) != 2 or any(path.is_dir() for path in inputs):
        raise OptionsError("give two photos, or one folder of photos, or one feature file")
    model = load_model(weights, device)
    matched = match_photos(model, *inputs, extraction_options(max_keypoints, precision), matching)
    if output is not None:
        write_match_picture(output, matched)
    if as_json:
        print(json.dumps(as_rows(matched)))
    else:
        summarise(matched, output)


def as_rows(matched: MatchedPhotos) -> dict[str, Any]:
    """Two photos' matches for other programs: rows x0, y0, x1, y1, similarity, and which of them are verified."""
    xy0, xy1 = matched.positions()
    rows = [
        [*map(float, start), *map(float, end), score]
        for start, end, score in zip(xy0, xy1, matched.matches.scores.tolist(), strict=True)
    ]
    photos = zip((matched.path0, matched.path1), (matched.features0, matched.features1), strict=True)
    return {
        "images": [
            {"path": str(path), "size": list(features.image_size), "keypoints": len(features)}
            for path, features in photos
        ],
        "matches": rows,
        "verified": matched.verified.tolist(),
    }


def summarise(matched: MatchedPhotos, picture: Path | None) -> None:
    """What a person wants to know, in three lines."""
    print(f"keypoints: {len(matched.features0)} and {len(matched.features1)}")
    print(f"matches: {len(matched.matches)}, of which {int(matched.verified.sum())} fit one epipolar geometry")
    if picture is not None:
        print(f"picture: {picture}")
