"""The bench of adaptation's gain: rows are kept, skipped and gone on with, and its table says what was reached."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benches import adapt_gain
from posfeat.data.posed import read_posed


def numbers(precision: float, auc: float) -> dict:
    return {
        "precision_3px": precision,
        "recall_3px": precision / 2,
        "auc": [0.0, auc, 0.0],
        "registered": 7,
        "photos": 9,
    }


def finished(scene="fox", look="plain", seed=0, after=0.6, mma=0.63) -> dict:
    row = {"scene": scene, "look": look, "seed": seed, "verdict": {"better": after > 0.5}}
    row |= {"before": numbers(0.5, 0.4), "after": numbers(after, 0.42)}
    return row | {"mma": {"before": 0.634, "after": mma}}


@pytest.fixture
def asked(tmp_path):
    """Arguments of the bench, as typed."""

    def arguments(*more: str):
        return adapt_gain.parsed([*more, "--rows", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "runs")])

    return arguments


@pytest.fixture
def ran(monkeypatch):
    """Names of the rows that are really run."""
    names: list[tuple[str, str, int]] = []

    def fake(scene, look, seed, arguments):
        names.append((scene.name, look, seed))
        return finished(scene.name, look, seed)

    monkeypatch.setattr(adapt_gain, "adapted_row", fake)
    return names


def test_finished_rows_are_not_done_again(asked, ran, capsys):
    adapt_gain.run(asked("a/fox", "--looks", "plain", "inverted", "--most", "1"))
    adapt_gain.run(asked("a/fox", "--looks", "plain", "inverted", "--seeds", "0", "1"))
    assert ran == [("fox", "plain", 0), ("fox", "plain", 1), ("fox", "inverted", 0), ("fox", "inverted", 1)]
    capsys.readouterr()
    adapt_gain.run(asked())
    assert capsys.readouterr().out.count("| fox | ") == 4 + 2
    assert len(ran) == 4


def test_rows_of_other_start_weights_do_not_count(asked, ran, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"start": "others", **finished()}) + "\n")
    adapt_gain.run(asked("a/fox"))
    assert ran == [("fox", "plain", 0)]


def test_a_line_that_was_cut_off_is_no_row(asked, ran, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"scene": "fox", "look": "pl')
    adapt_gain.run(asked("a/fox"))
    assert ran == [("fox", "plain", 0)]
    adapt_gain.run(asked("a/fox"))
    assert len(ran) == 1


def test_the_table_says_what_was_reached():
    rows = [finished(seed=seed, after=0.55 + 0.01 * seed) for seed in (0, 1)]
    rows += [finished("town", after=0.51), finished("lake", mma=0.62), {**finished("pool"), "error": "too few"}]
    table = adapt_gain.table(rows)
    assert "0.500 -> 0.560 (+12.0%)" in table
    assert "| fox | plain | 2 | +11.0% ± 1.0% | +2.0 ± 0.0 | -0.63% ± 0.00% | reached |" in table
    assert "| town | plain | 1 | +2.0% ± 0.0% | +2.0 ± 0.0 | -0.63% ± 0.00% | not reached |" in table
    assert "-2.21% ± 0.00% | not reached |" in table
    assert "| too few |" in table


def test_a_look_keeps_the_cameras(tmp_path, walk):
    copy = adapt_gain.scene_with_look(walk, "underwater", tmp_path)
    changed, as_they_were = read_posed(copy), read_posed(walk)
    assert [view.image_path.name for view in changed] == [view.image_path.name for view in as_they_were]
    assert all(np.allclose(a.cam_from_world, b.cam_from_world) for a, b in zip(changed, as_they_were, strict=True))


def test_noise_is_the_pictures_own():
    one, other = np.full((40, 60, 3), 90, np.uint8), np.full((40, 60, 3), 91, np.uint8)
    apart = adapt_gain.underwater(one).astype(int) - adapt_gain.underwater(other)
    assert apart.std() > 1
