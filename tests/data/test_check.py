"""Whether poses are right is told rightly: on rendered photos with exact cameras, and with cameras spoilt on purpose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.data.check import CheckOptions, PairCheck, check_pairs, check_scene, judge_pair, usable_pairs, wrong_views
from posfeat.data.check_pictures import contact_sheet, draw_check
from posfeat.data.check_run import CheckSettings, read_check_settings, run_check
from posfeat.data.images import read_image, write_image
from posfeat.data.pair_list import read_pair_list
from posfeat.data.pairs import PairOptions
from posfeat.data.posed import read_posed
from posfeat.data.random_views import PosedCamera
from posfeat.data.relief_scene import render
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.types import Array, OptionsError, Pair, View
from tests.data.rendered_scene import HEIGHT, WIDTH, arc_cameras, relief_scene, write_rendered_scene

PAIRS, CHECK = PairOptions(), CheckOptions()


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[View]:
    return write_rendered_scene(tmp_path_factory.mktemp("data") / "relief")


def turned(view: View, degrees: float) -> View:
    """The view with a pose that is off by a turn about the vertical axis."""
    turn = np.eye(4)
    turn[:3, :3] = rotation_from_axis_angle(torch.tensor([0.0, np.radians(degrees), 0.0])).numpy()
    return replace(view, cam_from_world=turn @ view.cam_from_world)


def test_right_poses_are_confirmed(views: list[View]) -> None:
    done: list[tuple[int, int]] = []
    result = check_scene(views, PAIRS, CHECK, progress=lambda a, b: done.append((a, b)))
    assert {check.verdict for check in result.checks} == {"confirmed"}
    assert result.wrong_views == []
    assert len(result.pairs) >= 10
    assert all(pair.has_baseline for pair in result.pairs)
    assert max(check.agreeing_error_px for check in result.checks) < 0.3
    assert done[-1][0] == done[-1][1]
    for view in result.views:
        assert view.depth_range is not None
        assert 0.8 < view.depth_range[0] < view.depth_range[1] < 1.4, "the relief is about one unit away"


def test_a_wrong_pose_is_found_and_its_pairs_left_out(views: list[View]) -> None:
    spoilt = [turned(view, 8) if number == 2 else view for number, view in enumerate(views)]
    result = check_scene(spoilt, PAIRS, CHECK)
    assert result.wrong_views == [views[2].name]
    used = {view.name for pair in result.pairs for view in (pair.view0, pair.view1)}
    assert used == {view.name for number, view in enumerate(views) if number != 2}
    assert usable_pairs(spoilt, PAIRS, CHECK) == result.pairs


def test_swapped_axes_refute_everything(views: list[View]) -> None:
    """OpenGL's axes read as OpenCV's: the commonest mistake."""
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    checks = check_pairs(
        [
            Pair(*(replace(view, cam_from_world=flip @ view.cam_from_world) for view in views[at : at + 2]))
            for at in (0, 3)
        ],
        CHECK,
    )
    assert [check.verdict for check in checks] == ["refuted", "refuted"]


def test_inverted_poses_refute_everything(views: list[View]) -> None:
    inverted = [replace(view, cam_from_world=np.linalg.inv(view.cam_from_world)) for view in views]
    checks = check_pairs([Pair(inverted[0], inverted[2]), Pair(inverted[1], inverted[4])], CHECK)
    assert [check.verdict for check in checks] == ["refuted", "refuted"]


def test_photos_of_something_else_tell_nothing(views: list[View], tmp_path: Path) -> None:
    noise = np.random.default_rng(5).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    write_image(tmp_path / "other.png", np.kron(noise, np.ones((8, 8, 1), np.uint8)))
    other = replace(views[1], image_path=tmp_path / "other.png", name="other")
    (check,) = check_pairs([Pair(views[0], other)], CHECK)
    assert check.verdict == "unsupported"


def test_photos_from_one_place_have_no_baseline(views: list[View], tmp_path: Path) -> None:
    """A camera that only turned, and poses that claim it moved: the matches show no parallax."""
    camera = arc_cameras(6)[2]
    turn = np.eye(4)
    turn[:3, :3] = rotation_from_axis_angle(torch.tensor([0.02, np.radians(6), 0.0])).numpy()
    write_image(
        tmp_path / "turned.png",
        render(relief_scene(), PosedCamera(camera.intrinsics, turn @ camera.cam_from_world), HEIGHT, WIDTH),
    )
    second = replace(
        views[2], image_path=tmp_path / "turned.png", name="turned", cam_from_world=turn @ camera.cam_from_world
    )
    moved = replace(second, cam_from_world=second.cam_from_world + np.eye(4)[:, 3:] @ [[0, 0, 0, 1e-4]])
    result = check_scene([views[2], moved], PAIRS, CHECK, listed=[Pair(views[2], moved)])
    assert [check.verdict for check in result.checks] == ["confirmed"]
    assert result.checks[0].parallax_px < 1
    assert result.pairs == []
    options = replace(PAIRS, rotation_only=True)
    (pair,) = check_scene([views[2], moved], options, CHECK, listed=[Pair(views[2], moved)]).pairs
    assert not pair.has_baseline


def exact_matches(view0: View, view1: View, count: int = 60) -> tuple[Array, Array]:
    """Projections of the same points."""
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(-0.2, 0.2, (count, 2)), rng.uniform(-0.1, 0.1, count), np.ones(count)])
    seen = [points @ view.cam_from_world[:3].T @ view.camera.matrix.T for view in (view0, view1)]
    return seen[0][:, :2] / seen[0][:, 2:], seen[1][:, :2] / seen[1][:, 2:]


def test_exact_matches_are_judged_exactly(views: list[View]) -> None:
    pair = Pair(views[1], views[4])
    xy0, xy1 = exact_matches(*(pair.view0, pair.view1))
    check = judge_pair(pair, xy0, xy1, CHECK)
    assert check.verdict == "confirmed"
    assert check.num_agreeing == check.num_matches == check.num_consistent == 60
    assert check.median_error_px < 1e-6
    depth = np.column_stack([np.zeros((2, 2)), np.zeros(2), np.ones(2)]) @ views[1].cam_from_world[2]
    assert check.depth_range0 is not None
    assert check.depth_range0[0] < depth[0] < check.depth_range0[1]


def test_the_worst_view_is_blamed_first(views: list[View]) -> None:
    """One wrong view refutes pairs of three right ones; two of these still have a confirmed pair each."""

    def check(first: int, second: int, verdict: str) -> PairCheck:
        pair = Pair(views[first], views[second])
        judged = judge_pair(pair, np.zeros((0, 2)), np.zeros((0, 2)), CHECK)
        return replace(judged, verdict=verdict)  # type: ignore[arg-type]

    bad = [check(0, other, "refuted") for other in (1, 2, 3)]
    good = [check(a, b, "confirmed") for a, b in ((1, 2), (2, 3), (1, 3))]
    assert wrong_views([*bad, *good]) == [views[0].name]
    assert wrong_views(good) == []
    assert wrong_views(bad[:2]) == [], "two pairs are too few to blame anybody"


def test_lines_on_the_contact_sheet_run_through_their_points(views: list[View]) -> None:
    """Each ring is crossed by a line of its colour where poses are right, and by few where they are wrong."""
    right, wrong = (
        check_pairs([Pair(views[1], view)], replace(CHECK, min_contradicting=8))[0]
        for view in (views[3], turned(views[3], 6))
    )
    assert (right.verdict, wrong.verdict) == ("confirmed", "refuted")
    assert [crossed_rings(right) > 6, crossed_rings(wrong) < 4] == [True, True]
    sheet = contact_sheet([right, wrong])
    assert sheet is not None
    assert sheet.shape[1] >= draw_check(right).shape[1]
    assert contact_sheet([replace(right, verdict="unsupported")]) is None


def crossed_rings(check: PairCheck) -> int:
    """How many of the nine rings in the second photo have a dot of their own colour at their centre."""
    from posfeat.data import check_pictures as module

    tile = draw_check(check).astype(int)
    header, shown_width = module._HEADER, tile.shape[1] // 2
    crossed = 0
    for number, row in enumerate(module._spread_rows(check)):
        x, y = (check.xy1[row] + 0.5) * [shown_width / WIDTH, (tile.shape[0] - header) / HEIGHT] - 0.5
        column, line = round(float(x)) + shown_width, round(float(y)) + header
        near = tile[line - 2 : line + 3, column - 2 : column + 3].reshape(-1, 3)
        crossed += bool((np.abs(near - module._COLOURS[number]).max(axis=1) < 60).any())
    return crossed


def test_the_whole_check_writes_what_it_found(views: list[View], tmp_path: Path) -> None:
    root = tmp_path / "spoilt"
    write_rendered_scene(root)
    spoilt = [turned(view, 9) if number == 4 else view for number, view in enumerate(read_posed(root))]
    write_cameras_txt(root / "cameras.txt", spoilt)
    (root / "photos" / "0.png").unlink()
    write_image(root / "photos" / "1.png", read_image(root / "photos" / "1.png")[:100])
    (report,) = run_check(root, tmp_path / "out", CheckSettings())
    assert (report.num_views, report.num_missing) == (5, 1)
    assert report.wrong_views == ["photos/4.png"]
    text = "\n".join(report.warnings)
    assert "1 pictures are missing" in text
    assert "photos/1.png is 320x100, its camera 320x240" in text
    written = json.loads((tmp_path / "out" / "check.json").read_text())
    assert written["scenes"][0]["wrong_views"] == ["photos/4.png"]
    assert written["scenes"][0]["num_usable_pairs"] == report.num_usable_pairs == 3
    assert sum(written["scenes"][0]["histograms"]["overlap"]["counts"]) == 3
    assert read_image(tmp_path / "out" / "spoilt.png").shape[2] == 3
    pairs = read_pair_list(tmp_path / "out" / "pairs.txt", read_posed(root))
    assert {(p.view0.name, p.view1.name) for p in pairs} == {
        (f"photos/{a}.png", f"photos/{b}.png") for a, b in ((2, 3), (2, 5), (3, 5))
    }
    without = run_check(root, tmp_path / "poses", CheckSettings(), matching=False)
    assert without[0].verdicts == {}
    assert not (tmp_path / "poses" / "spoilt.png").exists()


def test_a_misspelt_option_is_named() -> None:
    assert read_check_settings(["check.ratio=0.7"]).check.ratio == 0.7
    with pytest.raises(OptionsError, match=r"did you mean pairs\.min_overlap"):
        read_check_settings(["pairs.min_overlp=0.3"])
