"""Photos with known poses -> a map of points: extract, choose pairs, match, triangulate. Each step goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from posfeat.data.colmap import is_colmap_model
from posfeat.data.posed import find_scenes
from posfeat.interop.colmap import load_pycolmap
from posfeat.interop.colmap_triangulation import TriangulationOptions
from posfeat.matching import MatchOptions
from posfeat.pipeline.extract import Extractor, extract_folder, list_images
from posfeat.pipeline.known_cameras import known_views
from posfeat.pipeline.match import match_pairs, read_pairs
from posfeat.pipeline.select_pairs import Method, PairSelectionOptions, select_pairs
from posfeat.pipeline.triangulate import TriangulationReport, triangulate
from posfeat.types import DataError, OptionsError

Progress = Callable[[int, int], None]
ProgressBars = Callable[[str], AbstractContextManager[Progress | None]]


@dataclass(frozen=True)
class MapOfPosedPhotos:
    """The map in numbers, and lines on what could not be used on the way."""

    report: TriangulationReport
    failures: tuple[str, ...]


def _silent(title: str) -> AbstractContextManager[None]:
    return nullcontext()


def triangulate_photos(
    extractor: Extractor,
    posed: Path,
    output: Path,
    *,
    image_folder: Path | None = None,
    neighbours: int = 20,
    pair_list: Path | None = None,
    matching: MatchOptions | None = None,
    options: TriangulationOptions | None = None,
    progress_bar: ProgressBars = _silent,
    on_failure: Callable[[str], None] | None = None,
) -> MapOfPosedPhotos:
    """Make a map of ``posed`` in ``output``: features.h5, pairs.txt, matches.h5, and the model in sparse/0.

    Pairs are those of ``pair_list``, or photos that share points of the posed model, where it has any, else near ones.
    """
    load_pycolmap()  # what is missing is better said now than after an hour
    photos = image_folder or photos_of(posed)
    views = known_views(posed, set(list_images(photos)))
    by_points = any(view.point_ids is not None for view in views.values())
    method: Method = "list" if pair_list else "covisibility" if by_points else "poses"
    pairs = PairSelectionOptions(method=method, neighbours=neighbours)
    features, listed, matches = (output / name for name in ("features.h5", "pairs.txt", "matches.h5"))
    with progress_bar("extract") as progress:
        extracted = extract_folder(extractor, photos, features, progress=progress, on_failure=on_failure)
    with progress_bar("pairs") as progress:
        select_pairs(features, listed, pairs, images=set(views), cameras=posed, pair_list=pair_list, progress=progress)
    with progress_bar("match") as progress:
        chosen = read_pairs(listed, set(views))
        wanted = matching or extractor.own_matching
        matched = match_pairs(features, chosen, matches, wanted, progress=progress, on_failure=on_failure)
    with progress_bar("triangulate") as progress:
        report = triangulate(
            posed, features, matches, output / "sparse" / "0", options, image_folder=photos, progress=progress
        )
    return MapOfPosedPhotos(report, (*extracted.failures, *matched.failures))


def photos_of(posed: Path) -> Path:
    """The folder that the photos of one posed scene lie in."""
    if is_colmap_model(posed):
        raise OptionsError(f"{posed} is a model without its photos; name their folder with --photos")
    scenes = find_scenes(posed)
    if len(scenes) > 1:
        raise DataError(f"{posed} holds {len(scenes)} scenes, {scenes[0].name} and others; name one of them")
    return scenes[0].images
