"""The whole demo: a real pair and a rendered gallery, matched and reconstructed, judged by exact truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posfeat.data.images import read_image, write_image
from posfeat.data.random_views import PosedCamera
from posfeat.demo.gallery import gallery_cameras, gallery_scene, render_gallery
from posfeat.demo.rebuilt import Rebuilt, rebuild
from posfeat.demo.sample_photos import motorcycle_pair
from posfeat.demo.truth import rendered_errors_px, stereo_errors_px
from posfeat.matching import MatchOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.pipeline.draw import draw_matches
from posfeat.pipeline.extract import NetworkExtractor, extract_folder
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.two_view import match_photos, matched_positions
from posfeat.types import Array, Array32, DataError, View

Progress = Callable[[int, int], None]
ProgressBars = Callable[[str], AbstractContextManager[Progress]]

Positions = tuple[Array32, Array32]
Flags = npt.NDArray[np.bool_]

RIGHT_PX = 3.0  # a match this close to the truth is right
STEREO_RIGHT_PX = 2.0
DRAWN_PAIRS = ((5, 8), (2, 11))  # views that are close together, and far apart


@dataclass(frozen=True)
class RealPair:
    """How the real pair was matched."""

    num_keypoints: tuple[int, int]
    num_matches: int
    num_verified: int  # on one epipolar geometry, found from the matches alone
    errors_px: Array  # of all matches against the measured disparity; NaN where that is unknown
    picture: Path

    @property
    def right_share(self) -> float:
        """Share of the matches within STEREO_RIGHT_PX of the truth, of those whose truth is known."""
        return _share(self.errors_px[np.isfinite(self.errors_px)] <= STEREO_RIGHT_PX)


@dataclass(frozen=True)
class GalleryPair:
    """How two views of the gallery were matched."""

    view0: int
    view1: int
    angle_deg: float  # between the directions in which the middle of the gallery is seen
    errors_px: Array  # of all matches

    @property
    def num_right(self) -> int:
        """Matches within RIGHT_PX of the truth."""
        return int((self.errors_px <= RIGHT_PX).sum())


@dataclass(frozen=True)
class Gallery:
    """How the rendered gallery went."""

    views: list[View]
    cameras: list[PosedCamera]
    num_keypoints: int  # of all views together
    pairs: list[GalleryPair]
    pictures: tuple[tuple[GalleryPair, Path], ...]  # of the matches of some of the pairs

    @property
    def num_matches(self) -> int:
        """Of all pairs together."""
        return sum(len(pair.errors_px) for pair in self.pairs)

    @property
    def right_share(self) -> float:
        """Share of all matches of all pairs that are right."""
        return _share(np.concatenate([pair.errors_px for pair in self.pairs]) <= RIGHT_PX)


@dataclass(frozen=True)
class DemoResults:
    """All that the page tells."""

    real: RealPair
    gallery: Gallery
    rebuilt: Rebuilt | str  # or why the gallery could not be reconstructed
    seconds: dict[str, float] = field(default_factory=dict)  # of each step


def run_demo(model: PoSFeat, folder: Path, extraction: ExtractionOptions, progress_bar: ProgressBars) -> DemoResults:
    """Do everything, leaving pictures, photos, features and matches in ``folder``; what was there before is replaced."""
    seconds: dict[str, float] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with _timed(seconds, "two real photos"):
        real = _match_real_pair(model, folder, extraction)
    place = folder / "gallery"
    with _timed(seconds, "rendering 16 views"):
        views = render_gallery(place)
    features, matches = place / "features.h5", place / "matches.h5"
    _remove_stores(features, matches)
    with _timed(seconds, "features of 16 views"), progress_bar("extracting") as progress:
        report = extract_folder(model, place / "photos", features, extraction, progress=progress)
    if report.failures:
        raise DataError(f"the demo's own photos could not be used: {report.failures[0]}")
    with _timed(seconds, "matching 120 pairs"), progress_bar("matching") as progress:
        match_pairs(features, all_pairs([view.name for view in views]), matches, MatchOptions(), progress=progress)
    with _timed(seconds, "comparing with the truth"):
        gallery = _judge_gallery(folder, views, features, matches)
    with _timed(seconds, "reconstructing the gallery"), progress_bar("reconstructing") as progress:
        rebuilt = rebuild(NetworkExtractor(model, extraction), place, views, progress)
    return DemoResults(real, gallery, rebuilt, seconds)


def _match_real_pair(model: PoSFeat, folder: Path, extraction: ExtractionOptions) -> RealPair:
    pair = motorcycle_pair()
    matched = match_photos(NetworkExtractor(model, extraction), pair.left, pair.right, MatchOptions())
    errors = stereo_errors_px(pair, *matched.positions())
    picture = folder / "real_pair.jpg"
    known = np.isfinite(errors)
    _draw(picture, (pair.left, pair.right), matched.positions(), known, errors <= STEREO_RIGHT_PX)
    return RealPair(
        num_keypoints=(len(matched.features0), len(matched.features1)),
        num_matches=len(matched.matches),
        num_verified=int(matched.verified.sum()),
        errors_px=errors,
        picture=picture,
    )


def _judge_gallery(folder: Path, views: list[View], features_path: Path, matches_path: Path) -> Gallery:
    """Compare every match of every pair with the exact truth, and draw some of the pairs."""
    scene, cameras = gallery_scene(), gallery_cameras()
    pairs, pictures = [], []
    with FeatureStore(features_path) as features, MatchStore(matches_path) as matches:
        found = [features.read(view.name) for view in views]
        for first, second in combinations(range(len(views)), 2):
            view0, view1 = views[first], views[second]
            xy = matched_positions(found[first], found[second], matches.read(view0.name, view1.name))
            errors = rendered_errors_px(scene, cameras[first], cameras[second], *xy)
            pair = GalleryPair(first, second, _angle_deg(cameras[first], cameras[second]), errors)
            pairs.append(pair)
            if (first, second) in DRAWN_PAIRS:
                path = folder / f"gallery_{first + 1:02d}_{second + 1:02d}.jpg"
                _draw(path, (view0.image_path, view1.image_path), xy, np.isfinite(errors), errors <= RIGHT_PX)
                pictures.append((pair, path))
    pictures.sort(key=lambda drawn: drawn[0].angle_deg)
    return Gallery(views, cameras, sum(map(len, found)), pairs, tuple(pictures))


def _draw(path: Path, photos: tuple[Path, Path], xy: Positions, shown: Flags, right: Flags) -> None:
    image0, image1 = (read_image(photo) for photo in photos)
    write_image(path, draw_matches(image0, image1, xy[0][shown], xy[1][shown], right[shown]))


def _angle_deg(camera0: PosedCamera, camera1: PosedCamera) -> float:
    """Between the directions from the middle of the wall to two cameras."""
    cosine = camera0.centre @ camera1.centre / (np.linalg.norm(camera0.centre) * np.linalg.norm(camera1.centre))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def _share(right: Flags) -> float:
    return float(right.mean()) if len(right) else 0.0


def _remove_stores(*paths: Path) -> None:
    """Whatever other weights left there: a store goes on with its own settings only."""
    for path in paths:
        for file in (path, path.with_name(path.name + ".journal")):
            file.unlink(missing_ok=True)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
