"""``posfeat match``: two photos at once, or all pairs of a folder into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posfeat.cli.extract import PARTLY, extract_with_progress, print_failure
from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
    Engine,
    EngineOption,
    KeypointsOption,
    Kind,
    Precision,
    PrecisionOption,
    SetOption,
    WeightsOption,
    load_extractor,
)
from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.matching import MatchOptions
    from posfeat.pipeline.extract import Extractor
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
    overrides: SetOption = None,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
    engine: EngineOption = Engine.torch,
) -> None:
    """Match two photos, or many pairs of photos."""
    from posfeat.matching import MatchOptions
    from posfeat.pipeline.two_view import match_photos
    from posfeat.types import OptionsError

    matching = MatchOptions(ratio=ratio, min_similarity=min_similarity)

    def extractor() -> Extractor:
        return load_extractor(Kind.posfeat, weights, device, max_keypoints, precision, overrides, engine)

    if len(inputs) == 2 and not any(path.is_dir() for path in inputs) and pairs is None:
        path0, path1 = inputs
        _tell(match_photos(extractor(), path0, path1, matching), output, as_json)
    elif len(inputs) == 1 and not as_json:
        matches_path = output or Path("matches.h5")
        features_path, failures = inputs[0], 0
        if inputs[0].is_dir():
            features_path = matches_path.with_name("features.h5")
            failures = extract_with_progress(extractor(), inputs[0], features_path)
        _match_many(features_path, matches_path, pairs, matching, failures)
    else:
        raise OptionsError(
            "give two photos; or one folder or feature file, which --pairs goes with and --json does not"
        )


def _tell(matched: MatchedPhotos, picture: Path | None, as_json: bool) -> None:
    from posfeat.pipeline.two_view import write_match_picture

    if picture is not None:
        write_match_picture(picture, matched)
    if as_json:
        print(json.dumps(_as_rows(matched)))
        return
    print(f"keypoints: {len(matched.features0)} and {len(matched.features1)}")
    print(f"matches: {len(matched.matches)}, of which {int(matched.verified.sum())} fit one epipolar geometry")
    if picture is not None:
        print(f"picture: {picture}")


def _match_many(features: Path, output: Path, pairs_file: Path | None, matching: MatchOptions, failures: int) -> None:
    """Match the pairs of a feature file; ``failures`` counts what went wrong before."""
    from posfeat.pipeline.feature_store import FeatureStore
    from posfeat.pipeline.match import all_pairs, match_pairs, read_pairs

    with FeatureStore(features) as store:
        names = store.names()
    pairs = all_pairs(names) if pairs_file is None else read_pairs(pairs_file, names)
    with progress_bar("matching") as progress:
        report = match_pairs(features, pairs, output, matching, progress=progress, on_failure=print_failure)
    print(f"matched pairs: {report.num_matched}, there already: {report.num_known}, failed: {len(report.failures)}")
    print(f"matches: {output}")
    if report.failures or failures:
        raise typer.Exit(PARTLY)


def _as_rows(matched: MatchedPhotos) -> dict[str, Any]:
    """Two photos' matches for other programs: rows x0, y0, x1, y1, similarity, and which of them are verified."""
    xy0, xy1 = (xy.tolist() for xy in matched.positions())
    scores = matched.matches.scores.tolist()
    photos = ((matched.path0, matched.features0), (matched.path1, matched.features1))
    return {
        "images": [{"path": str(path), "size": f.image_size, "keypoints": len(f)} for path, f in photos],
        "matches": [[*p0, *p1, score] for p0, p1, score in zip(xy0, xy1, scores, strict=True)],
        "verified": matched.verified.tolist(),
    }
