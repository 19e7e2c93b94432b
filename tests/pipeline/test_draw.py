"""The picture of matches: its size, where lines end, and what is drawn when there is too much or nothing to draw."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.pipeline.draw import GAP_PX, MOST_LINES, UNVERIFIED, VERIFIED, _spread, draw_matches

NOTHING = np.zeros((0, 2), dtype=np.float32)
GREY = np.full((400, 500, 3), 128, dtype=np.uint8)


def test_photos_stand_side_by_side() -> None:
    picture = draw_matches(GREY, GREY[:, :300], NOTHING, NOTHING, np.zeros(0, dtype=bool))
    assert picture.shape == (400, 500 + GAP_PX + 300, 3)
    assert (picture[:, 500 : 500 + GAP_PX] == 255).all()


def test_a_caption_is_a_strip_below() -> None:
    picture = draw_matches(GREY, GREY, NOTHING, NOTHING, np.zeros(0, dtype=bool), "2 matches")
    assert picture.shape[0] > 400
    assert (picture[400:] < 100).any()


@pytest.mark.parametrize(("kind", "colour"), [(True, VERIFIED), (False, UNVERIFIED)])
def test_dots_stand_where_the_keypoints_are(kind: bool, colour: tuple[int, int, int]) -> None:
    xy0, xy1 = np.float32([[100, 50]]), np.float32([[30, 200]])
    picture = draw_matches(GREY, GREY, xy0, xy1, np.array([kind]))
    assert tuple(picture[50, 100]) == colour
    assert tuple(picture[200, 500 + GAP_PX + 30]) == colour


def test_positions_follow_when_small_photos_are_enlarged() -> None:
    small = GREY[:90, :120]
    picture = draw_matches(small, small, np.float32([[10, 20]]), np.float32([[10, 20]]), np.array([True]))
    assert picture.shape[0] == 360
    assert tuple(picture[82, 42]) == VERIFIED  # (20 + 0.5) * 4 - 0.5 and (10 + 0.5) * 4 - 0.5


def test_lines_are_spread_over_the_picture() -> None:
    rng = np.random.default_rng(0)
    crowd = rng.uniform(0, 50, (5000, 2))
    others = rng.uniform(0, 500, (200, 2))
    chosen = _spread(np.concatenate([crowd, others]).astype(np.float32), MOST_LINES)
    assert chosen.sum() == MOST_LINES
    assert chosen[5000:].sum() > MOST_LINES / 2


def test_spread_takes_all_of_few() -> None:
    assert _spread(np.zeros((3, 2), dtype=np.float32), 5).all()
    assert _spread(NOTHING, 5).shape == (0,)
