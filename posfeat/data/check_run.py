"""``posfeat data check``: every scene under a path, one after the other, written to one folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from posfeat.data.check import CheckOptions, Progress
from posfeat.data.check_pictures import contact_sheet
from posfeat.data.check_report import SceneReport, plain, report_scene
from posfeat.data.images import write_image
from posfeat.data.pair_list import write_pair_list
from posfeat.data.pairs import PairOptions
from posfeat.data.posed import find_scenes
from posfeat.options import apply_overrides, nested, options_from_mapping, options_to_mapping

ProgressBar = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class CheckSettings:
    """Both groups of options of a check."""

    pairs: PairOptions = nested(PairOptions, "which pairs are usable")
    check: CheckOptions = nested(CheckOptions, "how poses are verified")


def read_check_settings(overrides: list[str]) -> CheckSettings:
    """The defaults with ``pairs.key=value`` and ``check.key=value`` put in; values are written as in JSON."""
    return options_from_mapping(CheckSettings, apply_overrides({}, overrides, _value))


def run_check(
    path: Path,
    output: Path,
    settings: CheckSettings,
    scenes: Path | None = None,
    matching: bool = True,
    progress: ProgressBar | None = None,
) -> list[SceneReport]:
    """Check all scenes; write check.json, pairs.txt (for training) and a contact sheet for each scene that was matched."""
    output.mkdir(parents=True, exist_ok=True)
    reports = []
    for scene in find_scenes(path, scenes):
        check = settings.check if matching else None
        if progress is None:
            reports.append(report_scene(scene, settings.pairs, check))
        else:
            with progress(scene.name) as step:
                reports.append(report_scene(scene, settings.pairs, check, step))
        sheet = contact_sheet(reports[-1].checks)
        if sheet is not None:
            write_image(output / f"{scene.name.replace('/', '_')}.png", sheet)
        _write(output, reports, settings)
    return reports


def _write(output: Path, reports: list[SceneReport], settings: CheckSettings) -> None:
    content = {"options": options_to_mapping(settings), "scenes": [plain(report) for report in reports]}
    part = output / "check.json.part"
    part.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    os.replace(part, output / "check.json")
    write_pair_list(output / "pairs.txt", [pair for report in reports for pair in report.pairs])


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
