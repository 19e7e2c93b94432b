"""Which pairs are usable: overlap, turning and baseline have the values that simple scenes must give, and limits hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.distortion import pinhole_camera
from posfeat.data.pair_list import read_pair_list, write_pair_list
from posfeat.data.pairs import PairOptions, choose_pairs, limit_pairs, pair_table
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.types import DataError, OptionsError, Pair, View

CAMERA = pinhole_camera(640, 480, (640.0, 640.0, 319.5, 239.5))  # sees as wide as it is far: a metre at a metre
WIDE_OPEN = PairOptions(min_overlap=0, min_covisible=0, max_rotation_deg=180, max_parallax_deg=180)


def view(
    x: float = 0.0,
    turn_deg: float = 0.0,
    axis: int = 1,
    depths: tuple[float, float] | None = (4.0, 4.0),
    points: list[int] | None = None,
    scene: str = "s",
) -> View:
    """A camera at (x, 0, 0), turned about one of its axes."""
    turn = np.zeros(3)
    turn[axis] = np.radians(turn_deg)
    pose = np.eye(4)
    pose[:3, :3] = rotation_from_axis_angle(torch.from_numpy(turn)).numpy()
    pose[:3, 3] = -pose[:3, :3] @ [x, 0, 0]
    ids = None if points is None else np.array(points, dtype=np.int64)
    name = f"{x}_{turn_deg}"
    return View(Path(f"{name}.jpg"), CAMERA, pose, name=name, scene=scene, point_ids=ids, depth_range=depths)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 10.0])
def test_overlap_before_a_wall(shift: float) -> None:
    """Before a wall 4 m away a camera sees 4 m of it; the shared part shrinks with the shift."""
    table = pair_table([view(), view(shift)])
    assert table.overlap[0] == pytest.approx(max(0.0, 1 - shift / 4), abs=1e-9)
    assert table.baseline[0] == pytest.approx(shift)
    assert table.near_parallax_deg[0] == pytest.approx(np.degrees(2 * np.arctan(shift / 8)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("turn_deg", [0.0, 20.0, 90.0, 175.0])
def test_turning(axis: int, turn_deg: float) -> None:
    table = pair_table([view(), view(1.0, turn_deg, axis)])
    assert table.rotation_deg[0] == pytest.approx(turn_deg, abs=1e-6)
    limit = replace(WIDE_OPEN, max_rotation_deg=80)
    assert len(choose_pairs([view(), view(1.0, turn_deg, axis)], limit)) == (turn_deg <= 80)


def test_cameras_back_to_back_share_nothing() -> None:
    assert pair_table([view(), view(0.5, 180)]).overlap[0] == 0


def test_common_points_count_where_there_are_some() -> None:
    views = [view(0, points=[1, 2, 3, 4]), view(0.1, points=[2, 3, 9]), view(0.2, points=[]), view(0.3)]
    table = pair_table(views)
    rows = {(int(a), int(b)): share for a, b, share in zip(table.index0, table.index1, table.covisible, strict=True)}
    assert rows[0, 1] == pytest.approx(2 / 4)
    assert np.isnan([rows[pair] for pair in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))]).all()
    (pair,) = choose_pairs(views[:2], PairOptions(min_covisible=0.4, min_parallax_deg=0.1))
    assert pair.overlap == pytest.approx(0.5)
    assert choose_pairs(views[:2], PairOptions(min_covisible=0.6, min_parallax_deg=0.1)) == []


def test_many_points_are_counted_in_parts() -> None:
    """Ids far apart and more of them than are held at a time."""
    rng = np.random.default_rng(0)
    ids = [np.sort(rng.choice(10**9, 30_000, replace=False)) for _ in range(2)]
    ids[1][:12_000] = ids[0][:12_000]
    views = [view(0, points=ids[0].tolist()), view(0.1, points=np.unique(ids[1]).tolist())]
    expected = len(np.intersect1d(*ids)) / 30_000
    assert pair_table(views).covisible[0] == pytest.approx(expected)


def test_without_baseline_there_is_no_epipolar_line() -> None:
    """Photos from one tripod are left out, or marked where they are asked for."""
    views = [view(), view(0.0, 5.0), view(0.001, 2.0)]
    assert choose_pairs(views, PairOptions()) == []
    marked = choose_pairs(views, PairOptions(rotation_only=True))
    assert [pair.has_baseline for pair in marked] == [False] * 3
    both = choose_pairs([*views, view(1.0)], PairOptions(rotation_only=True))
    assert Counter(pair.has_baseline for pair in both) == {False: 3, True: 3}


def test_too_wide_a_baseline_is_left_out_where_depth_is_known() -> None:
    options = PairOptions(min_overlap=0, max_parallax_deg=30)
    assert len(choose_pairs([view(), view(2.0)], options)) == 1
    assert choose_pairs([view(), view(2.5)], options) == []
    assert len(choose_pairs([view(depths=None), view(2.5, depths=None)], options)) == 1


def test_scenes_are_kept_apart_and_balanced() -> None:
    small = [view(0.1 * i, scene="a") for i in range(3)]
    large = [view(0.02 * i, scene="b") for i in range(40)]
    pairs = choose_pairs([*large, *small], replace(WIDE_OPEN, min_parallax_deg=0.1, max_imbalance=1.0))
    assert all(pair.view0.scene == pair.view1.scene for pair in pairs)
    counts = Counter(pair.view0.scene for pair in pairs)
    assert counts["a"] == 3
    assert 3 < counts["b"] < 780  # the median of 3 and about 780
    few = choose_pairs([*large, *small], replace(WIDE_OPEN, min_parallax_deg=0.1, max_pairs_per_scene=10))
    assert Counter(pair.view0.scene for pair in few) == {"a": 3, "b": 10}


def test_a_limit_leaves_easy_and_hard_pairs() -> None:
    views = [view(0.1 * i) for i in range(38)]
    options = replace(WIDE_OPEN, min_parallax_deg=0.1, max_pairs_per_scene=50)
    overlaps = [pair.overlap for pair in choose_pairs(views, options)]
    assert len(overlaps) == 50
    # an overlap is a number of eighths, as rays are cast through the middles of 8 columns
    counts = Counter(round(8 * overlap) for overlap in overlaps)
    assert sorted(counts) == list(range(1, 9))
    assert min(counts.values()) >= 5
    assert [p.overlap for p in choose_pairs(views, options)] == overlaps, "the seed decides"
    assert [p.overlap for p in choose_pairs(views, replace(options, seed=1))] != overlaps


def test_pairs_that_somebody_else_chose() -> None:
    pairs = [Pair(view(), view(1.0, turn)) for turn in (10.0, 79.0, 81.0, 170.0)]
    assert limit_pairs(pairs, PairOptions()) == pairs[:2]
    assert len(limit_pairs(pairs, PairOptions(max_pairs_per_scene=1))) == 1
    assert limit_pairs([], PairOptions()) == []


@pytest.mark.parametrize("depths", [(4.0, 4.0), None])  # known, or guessed from how far apart the cameras stand
def test_listed_pairs_from_one_place_are_found(depths: tuple[float, float] | None) -> None:
    place, turned, aside, far = (view(*at, depths=depths) for at in ((0.0, 0.0), (1e-4, 20.0), (1.0, 0.0), (2.0, 0.0)))
    pairs = [Pair(place, turned), Pair(place, aside), Pair(turned, aside), Pair(aside, far)]
    assert limit_pairs(pairs, PairOptions()) == pairs[1:]
    marked = limit_pairs(pairs, PairOptions(rotation_only=True))
    assert [pair.has_baseline for pair in marked] == [False, True, True, True]


@pytest.mark.parametrize("views", [[], [view()]])
def test_too_few_views(views: list[View]) -> None:
    assert choose_pairs(views, PairOptions()) == []
    assert len(pair_table(views).overlap) == 0


def test_a_limit_that_cannot_be() -> None:
    with pytest.raises(OptionsError, match="min_overlap"):
        PairOptions(min_overlap=2)


def test_a_list_of_pairs_comes_back(tmp_path: Path) -> None:
    views = [view(0.5 * i, scene=f"a scene/{i // 3}") for i in range(6)]
    pairs = [
        Pair(views[0], views[2], overlap=0.25),
        Pair(views[4], views[3], overlap=0.5, has_baseline=False),
        Pair(views[0], views[1]),
    ]
    write_pair_list(tmp_path / "pairs.txt", pairs)
    read = read_pair_list(tmp_path / "pairs.txt", views)
    assert [(p.view0, p.view1, p.has_baseline) for p in read] == [(p.view0, p.view1, p.has_baseline) for p in pairs]
    assert [p.overlap for p in read[:2]] == [0.25, 0.5]
    assert np.isnan(read[2].overlap)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.txt"]
    with pytest.raises(DataError, match=r"line 3: \('a scene/1', '2\.0_0\.0'\) is not in this data"):
        read_pair_list(tmp_path / "pairs.txt", views[:3])
    (tmp_path / "pairs.txt").write_text("a b c\n")
    with pytest.raises(DataError, match="line 1 is not scene, two names"):
        read_pair_list(tmp_path / "pairs.txt", views)
