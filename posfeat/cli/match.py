"""``posfeat match``: two photos at once, or all pairs of a folder into a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
from posfeat.cli.ray_options import RayCpusOption, RayOption, cluster_options, require_path

if TYPE_CHECKING:
    from posfeat.matching import MatchOptions
    from posfeat.pipeline.extract import Extractor
    from posfeat.pipeline.match import MatchingReport
    from posfeat.pipeline.two_view import MatchedPhotos

EXAMPLES = """\b
Examples:
  posfeat match a.jpg b.jpg
  posfeat match a.jpg b.jpg -o matches.png
  posfeat match a.jpg b.jpg --json > matches.json
  posfeat match photos/ -o matches.h5
  posfeat match features.h5 --pairs pairs.txt --ratio 0.9 -o matches.h5
  posfeat match features/ --pairs pairs.txt -o matches/ --ray auto
"""
FILE, SHARDS = "matches.h5", "matches"  # what is written unless somebody says otherwise


def match(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...", help="Two photos; or one folder of photos; or a feature file or its shards."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="A picture of two photos' matches; or the file of matches, with --ray a folder of such files.",
        ),
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
    ray: RayOption = None,
    ray_cpus: RayCpusOption = 1,
) -> None:
    """Match two photos, or many pairs. Features of a folder are written beside the file of matches."""
    from posfeat.matching import MatchOptions
    from posfeat.types import OptionsError

    matching = MatchOptions(ratio=ratio, min_similarity=min_similarity)

    def extractor() -> Extractor:
        return load_extractor(Kind.posfeat, weights, device, max_keypoints, precision, overrides, engine)

    if ray is not None and len(inputs) == 1 and not as_json:
        _match_on_ray(inputs[0], output or SHARDS, pairs, matching, ray, ray_cpus)
        return
    for place in (*inputs, output or FILE):
        require_path(place)
    paths = [Path(place) for place in inputs]
    if len(paths) == 2 and not any(path.is_dir() for path in paths) and pairs is None and ray is None:
        _match_two(extractor, paths, matching, None if output is None else Path(output), as_json)
    elif len(paths) == 1 and not as_json and not _is_photo(paths[0]):
        _match_many(extractor, paths[0], Path(output or FILE), pairs, matching)
    else:
        raise OptionsError(
            "give two photos; or one folder or feature file, which --pairs and --ray go with and --json does not"
        )


def _match_two(
    extractor: Callable[[], Extractor], photos: list[Path], matching: MatchOptions, picture: Path | None, as_json: bool
) -> None:
    from posfeat.data.images import require_picture_name
    from posfeat.pipeline.two_view import match_photos, write_match_picture

    if picture is not None:
        require_picture_name(picture)
    matched = match_photos(extractor(), photos[0], photos[1], matching)
    if picture is not None:
        write_match_picture(picture, matched)
    if as_json:
        print(json.dumps(_as_rows(matched)))
        return
    print(f"keypoints: {len(matched.features0)} and {len(matched.features1)}")
    print(f"matches: {len(matched.matches)}, of which {int(matched.verified.sum())} fit one epipolar geometry")
    if picture is not None:
        print(f"picture: {picture}")


def _match_many(
    extractor: Callable[[], Extractor], source: Path, output: Path, pairs_file: Path | None, matching: MatchOptions
) -> None:
    """Match the pairs of a feature file, or of a folder of photos."""
    from posfeat.pipeline.feature_store import FeatureStore
    from posfeat.pipeline.match import all_pairs, match_pairs, read_pairs

    features, failures = source, 0
    if _holds_photos(source):
        features = output.with_suffix(".features.h5")
        failures = extract_with_progress(extractor(), source, features)
    with FeatureStore(features) as store:
        names = store.names()
    pairs = all_pairs(names) if pairs_file is None else read_pairs(pairs_file, names)
    with progress_bar("matching") as progress:
        report = match_pairs(features, pairs, output, matching, progress=progress, on_failure=print_failure)
    _tell_of_pairs(report, str(output), failures)


def _is_photo(path: Path) -> bool:
    from posfeat.data.images import IMAGE_SUFFIXES

    return path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir()


def _holds_photos(path: Path) -> bool:
    from posfeat.pipeline.shards import is_shard_folder

    return path.is_dir() and not is_shard_folder(path)


def _match_on_ray(
    place: str, output: str, pairs_file: Path | None, matching: MatchOptions, ray: str, cpus: int
) -> None:
    """Match the pairs of a store by workers of a Ray cluster. Lists of pairs are read twice, and never held."""
    from itertools import combinations

    from posfeat.pipeline.match import iterate_pairs
    from posfeat.scale.match import match_on_ray, names_in, open_features

    cluster, features = cluster_options(ray, cpus, 0.0), open_features(place)
    names = names_in(features)
    pairs: Iterator[tuple[str, str]] = combinations(names, 2)
    count = len(names) * (len(names) - 1) // 2
    if pairs_file is not None:
        pairs, count = iterate_pairs(pairs_file, names), sum(1 for _ in iterate_pairs(pairs_file, names))
    with progress_bar("matching on Ray") as progress:
        report = match_on_ray(
            features, pairs, count, output, cluster, matching, progress=progress, on_failure=print_failure
        )
    _tell_of_pairs(report, output, 0)


def _tell_of_pairs(report: MatchingReport, output: str, failures_before: int) -> None:
    print(f"matched pairs: {report.num_matched}, there already: {report.num_known}, failed: {len(report.failures)}")
    print(f"matches: {output}")
    if report.failures or failures_before:
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
