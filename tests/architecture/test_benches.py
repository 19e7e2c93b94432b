"""The table of speed and memory: every bench of it gives rows, and what is slower than the stored ratios shows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

table = pytest.importorskip("all", reason="benches are part of the checkout")
FOLDER = Path(table.__file__).parent


def row(ratio: float, name: str = "extract", target: float | None = 1.0) -> table.Row:
    return table.Row(name, "a peer", ratio * 10, 10, "ms", target)


@pytest.mark.parametrize("bench", table.BENCHES)
def test_every_bench_gives_rows(bench: str) -> None:
    parts = ast.parse((FOLDER / f"{bench}.py").read_text(encoding="utf-8")).body
    assert any(isinstance(part, ast.FunctionDef) and part.name == "rows" for part in parts)


def test_a_ratio_that_is_a_fifth_worse_shows() -> None:
    known = {row(0.5).key: 0.5}
    assert "SLOWER" not in table.line(row(0.59), known)
    assert "SLOWER" in table.line(row(0.61), known)
    assert table.complaints([row(0.59)], known, complete=True) == []
    assert table.complaints([row(0.61)], known, complete=True) == ["extract / a peer: 0.61, was 0.50"]


def test_rows_without_a_past_and_a_past_without_rows() -> None:
    assert table.complaints([row(9.0)], {}, complete=True) == []
    assert table.complaints([], {"extract / a peer": 0.5}, complete=True) == ["extract / a peer: left out"]
    assert table.complaints([], {"extract / a peer": 0.5}, complete=False) == []


def test_targets_are_judged() -> None:
    assert "1.00 met" in table.line(row(1.0), {})
    assert "1.00 MISSED" in table.line(row(1.01), {})
    assert "met" not in table.line(row(0.1, target=None), {}).lower()
