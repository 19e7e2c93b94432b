"""Two photos' features under the settings that a client chose: matches, geometry, candidates, and files of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posfeat.data.images import RGB, encode_image
from posfeat.matching import MatchOptions, match
from posfeat.page.analysis import first
from posfeat.page.api_types import MatchSettings
from posfeat.pipeline.draw import draw_matches
from posfeat.pipeline.two_view import EstimatedGeometry, estimate_geometry, matched_positions
from posfeat.types import Features, Matches

CANDIDATES = 5
CSV_HEADER = ("x0", "y0", "x1", "y1", "score", "verified")


@dataclass(frozen=True)
class MatchedPair:
    """The keypoints that were used, their matches and what geometry says of them."""

    features0: Features
    features1: Features
    matches: Matches
    geometry: EstimatedGeometry

    def positions(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Positions (M, 2) of the matched keypoints in photo 0 and in photo 1."""
        return matched_positions(self.features0, self.features1, self.matches)


def match_pair(features0: Features, features1: Features, settings: MatchSettings) -> MatchedPair:
    """Match as many of the keypoints as the settings allow."""
    features0, features1 = (first(f, settings.max_keypoints, settings.min_score) for f in (features0, features1))
    options = MatchOptions(
        ratio=None if settings.ratio == 1 else settings.ratio,
        min_similarity=None if settings.min_similarity == -1 else settings.min_similarity,
    )
    matches = match(features0, features1, options)
    positions = matched_positions(features0, features1, matches)
    return MatchedPair(
        features0, features1, matches, estimate_geometry(*positions, settings.geometry, settings.threshold_px)
    )


def as_rows(pair: MatchedPair) -> list[list[float]]:
    """Rows x0, y0, x1, y1, score, best first."""
    xy0, xy1 = pair.positions()
    scores = pair.matches.scores.numpy()[:, None]
    return rounded(np.concatenate([xy0, xy1, scores], axis=1), 4)


def as_indices(pair: MatchedPair) -> list[list[float]]:
    """Rows: number of the keypoint in photo 0, in photo 1, score."""
    indices, scores = pair.matches.indices.tolist(), rounded(pair.matches.scores.numpy(), 4)
    return [[i, j, score] for (i, j), score in zip(indices, scores, strict=True)]


def geometry_json(geometry: EstimatedGeometry) -> dict[str, Any]:
    """The geometry for a client."""
    matrix = None if geometry.matrix is None else geometry.matrix.tolist()
    return {"kind": geometry.kind, "matrix": matrix, "num_inliers": int(geometry.inliers.sum())}


def verified_json(geometry: EstimatedGeometry) -> list[bool]:
    """For each match whether the geometry bears it out."""
    return [bool(value) for value in geometry.inliers]


def candidates(features0: Features, features1: Features, keypoint: int, count: int = CANDIDATES) -> list[list[float]]:
    """The keypoints of photo 1 that are most like one of photo 0: rows of number, x, y, similarity."""
    similarity = features1.descriptors @ features0.descriptors[keypoint]
    best = similarity.topk(min(count, len(similarity)))
    xy = rounded(features1.keypoints[best.indices].numpy(), 3)
    return [[i, *at, round(s, 4)] for i, at, s in zip(best.indices.tolist(), xy, best.values.tolist(), strict=True)]


def rounded(values: npt.NDArray[np.float32], decimals: int) -> Any:
    """Nested lists of short numbers."""
    return np.round(values.astype(np.float64), decimals).tolist()


def export_json(pair: MatchedPair, names: Sequence[str]) -> bytes:
    """Matches for other programs, as ``posfeat match --json`` prints them."""
    photos = zip(names, (pair.features0, pair.features1), strict=True)
    value = {
        "images": [{"path": name, "size": list(f.image_size), "keypoints": len(f)} for name, f in photos],
        "matches": as_rows(pair),
        "verified": verified_json(pair.geometry),
        "geometry": geometry_json(pair.geometry),
    }
    return json.dumps(value).encode()


def export_csv(pair: MatchedPair) -> bytes:
    """A line for each match."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_HEADER)
    rows = zip(as_rows(pair), pair.geometry.inliers.tolist(), strict=True)
    writer.writerows([*row, int(verified)] for row, verified in rows)
    return text.getvalue().encode()


def export_picture(pair: MatchedPair, image0: RGB, image1: RGB) -> bytes:
    """Both photos with their matches as a PNG."""
    agreeing = f"{int(pair.geometry.inliers.sum())} of them fit one "
    caption = f"{len(pair.matches)} matches, {agreeing}" + (
        "homography (green)" if pair.geometry.kind == "homography" else "epipolar geometry (green)"
    )
    picture = draw_matches(image0, image1, *pair.positions(), pair.geometry.inliers, caption)
    return encode_image(picture, ".png")
