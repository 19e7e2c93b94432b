"""The documents name files that exist, links that lead somewhere, and verbs that the command line has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from posfeat.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE_NAME = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|txt|toml))`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
COMMAND = re.compile(r"^\s*(?:\$ )?posfeat ([a-z]+)", re.MULTILINE)


def test_paper_map_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    missing = [
        name for name in FILE_NAME.findall(text) if not any((r / name).exists() for r in (ROOT, ROOT / "posfeat"))
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target.strip()).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_exist(document: Path) -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    named = set(COMMAND.findall(document.read_text(encoding="utf-8")))
    assert named - known == set()
