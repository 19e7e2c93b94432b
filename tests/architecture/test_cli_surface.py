"""The verbs and options that people type. ``cli_surface.txt`` holds them: a change there is a change for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from posfeat.cli import app

SNAPSHOT = Path(__file__).with_name("cli_surface.txt")
LONGEST_HELP = 160


def verbs(command: Any, name: str = "posfeat") -> Iterator[tuple[str, Any]]:
    """Every verb with its full name."""
    children = getattr(command, "commands", {})
    for child_name, child in children.items():
        yield from verbs(child, f"{name} {child_name}")
    if not children:
        yield name, command


def surface() -> list[str]:
    lines = []
    for name, command in verbs(typer.main.get_command(app)):
        options = sorted("/".join([*param.opts, *param.secondary_opts]) for param in command.params)
        lines.append(f"{name}: {', '.join(options)}")
    return sorted(lines)


VERBS = dict(verbs(typer.main.get_command(app)))


def test_surface() -> None:
    known = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    now = surface()
    assert now == known, "write the new surface to cli_surface.txt if the change is meant:\n" + "\n".join(now)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_explains_itself(name: str) -> None:
    command = VERBS[name]
    assert command.help, f"{name} has no docstring"
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    silent = [param.name for param in shown if not getattr(param, "help", None) and param.name != "help"]
    assert silent == [], f"{name}: options without help"


@pytest.mark.parametrize("name", [name for name in VERBS if name.count(" ") == 1])
def test_every_verb_has_examples(name: str) -> None:
    assert f"{name} " in (VERBS[name].epilog or ""), f"{name} --help shows no example"
