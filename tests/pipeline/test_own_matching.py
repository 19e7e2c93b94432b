"""How features are matched into models unless somebody says otherwise: which matches the shipped weights leave out."""

from __future__ import annotations

import pytest

from posfeat.demo.sample_photos import motorcycle_pair
from posfeat.demo.truth import stereo_errors_px
from posfeat.matching import MatchOptions, match, own_matching
from posfeat.networks.checkpoint import load, weights_digest
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import ModelOptions, build_model
from posfeat.pipeline.extract import NetworkExtractor, RootSiftExtractor
from posfeat.pipeline.two_view import matched_positions


def test_the_shipped_weights_leave_out_wrong_matches_and_hardly_any_right_one() -> None:
    """The limit belongs to the exact weights: new ones need their own, found as docs/decisions/0005 says."""
    pytest.importorskip("skimage")
    from skimage.data import astronaut

    model, pair = load(device="cpu"), motorcycle_pair()
    extractor = NetworkExtractor(model, ExtractionOptions())
    assert extractor.own_matching.min_similarity is not None
    left, right, other = (model.extract(photo, max_keypoints=2048) for photo in (pair.left, pair.right, astronaut()))

    def num_right(options: MatchOptions) -> int:
        positions = matched_positions(left, right, match(left, right, options))
        return int((stereo_errors_px(pair, *positions) < 2).sum())

    assert num_right(extractor.own_matching) > 0.93 * num_right(MatchOptions())
    assert len(match(left, other, extractor.own_matching)) < 0.15 * len(match(left, other))


def test_nothing_is_known_of_other_weights() -> None:
    model = build_model(ModelOptions())
    assert NetworkExtractor(model, ExtractionOptions()).own_matching == MatchOptions()
    assert own_matching(weights_digest(model)) == own_matching("") == MatchOptions()
    assert RootSiftExtractor(100).own_matching == MatchOptions(ratio=0.8)
