"""Files and functions stay small, and nothing unfinished or of somebody's own machine stands in them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
# Written so that these patterns do not find themselves.
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|NotImplemented[E]rror|place[h]older|du[m]my|for n[o]w)\b")
MACHINE_PATH = re.compile(r"(^|[^a-zA-Z0-9.])/(w[o]rk|f[a]rm|r[o]ot|h[o]me|Us[e]rs|tmp)/[a-zA-Z]|[A-Z]:\\Us[e]rs")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".cff", ".sh", ".html", ".js", ".css", ""}


def committed_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and path.suffix in TEXT]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in committed_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip()[:100]}")
    return found


def test_files_are_short() -> None:
    sources = (ROOT / "posfeat").rglob("*.py")
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in sources}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    long = []
    for path in (ROOT / "posfeat").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(ROOT).as_posix()}:{node.lineno} {node.name}: {length} lines")
    assert long == []


def test_nothing_unfinished() -> None:
    assert [line for line in lines_with(UNFINISHED) if line.startswith("posfeat/")] == []


def test_no_path_of_a_machine() -> None:
    assert lines_with(MACHINE_PATH) == []
