"""Training runs as pages show them: the numbers, pictures and options that stand in a run's folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOG, TEXTS, PICTURES = "metrics.jsonl", ("config.yaml", "provenance.json"), "pictures"
FILES = (LOG, *TEXTS)
MOST_POINTS = 1500  # of a curve; more cannot be told apart on a screen
MOST_TEXT = 2**16
MOST_LOG_BYTES = 2**26
_TAIL_BYTES = 2**14
_PICTURE = re.compile(r"(\d{1,12})_([\w.-]{1,80})\.(?:jpg|png)")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run."""
    return (folder / LOG).is_file()


def summary(folder: Path) -> dict[str, Any]:
    """How far a run is, from the end of its log."""
    log = folder / LOG
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = list(_parsed(file.read().decode("utf-8", "replace").splitlines()))
    last = {line["kind"]: line for line in lines}
    validation = last.get("validation", {})
    return {
        "step": max((line["step"] for line in lines), default=0),
        "updated": log.stat().st_mtime,
        "validation": dict(numbers(validation)),
    }


def curves(folder: Path) -> dict[str, dict[str, list[list[float]]]]:
    """Every number of the log as rows of step and value: kind -> name -> rows."""
    found: dict[str, dict[str, list[list[float]]]] = {"training": {}, "validation": {}}
    with (folder / LOG).open("rb") as file:
        text = file.read(MOST_LOG_BYTES).decode("utf-8", "replace")
    for line in _parsed(text.splitlines()):
        kind = found.setdefault(line["kind"], {})
        for name, value in numbers(line):
            kind.setdefault(name, []).append([line["step"], value])
    return {kind: {name: thinned(rows) for name, rows in names.items()} for kind, names in found.items()}


def pictures(folder: Path) -> dict[str, list[list[Any]]]:
    """Validation pictures: name -> rows of step and file name, in the order of steps."""
    found: dict[str, list[list[Any]]] = {}
    if (folder / PICTURES).is_dir():
        for path in (folder / PICTURES).iterdir():
            parts = _PICTURE.fullmatch(path.name)
            if parts:
                found.setdefault(parts[2], []).append([int(parts[1]), path.name])
    return {name: sorted(rows) for name, rows in sorted(found.items())}


def texts(folder: Path) -> dict[str, str]:
    """What the run was asked and where it ran."""
    found = {}
    for name in TEXTS:
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                found[name] = file.read(MOST_TEXT).decode("utf-8", "replace")
    return found


def numbers(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a line of the log that are measurements."""
    for name, value in line.items():
        measured = isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("step", "time")
        if measured and math.isfinite(value):
            yield name, value


def thinned(rows: list[list[float]]) -> list[list[float]]:
    """Rows at even distances, the last one always."""
    step = math.ceil(len(rows) / MOST_POINTS)
    return rows if step <= 1 else rows[::-1][::step][::-1]


def _parsed(lines: list[str]) -> Iterator[dict[str, Any]]:
    """The whole lines; the run may be writing the last one just now."""
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int) and isinstance(line.get("kind"), str):
            yield line
