"""Results as one JSON file and one self-contained page: tables, pictures, and where every number came from."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posfeat.benchmarks.provenance import Provenance

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .8rem 0; }
th, td { padding: .25rem .55rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
thead th { border-bottom: 2px solid #888; } tr.rule td { border-top: 2px solid #888; }
.scroll { overflow-x: auto; }
figure { display: inline-block; margin: .4rem .6rem .4rem 0; vertical-align: top; max-width: 100%; }
figure img { max-width: 100%; height: auto; } figcaption { font-size: .85rem; color: #555; }
"""


@dataclass(frozen=True)
class Table:
    """Cells as text; ``rules`` are the rows above which a line is drawn."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    rules: Sequence[int] = ()


@dataclass(frozen=True)
class Picture:
    """An encoded picture (svg, jpg or png) and what it shows."""

    kind: str
    data: bytes
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = field(default_factory=tuple)


def write_report(folder: Path, title: str, results: Any, provenance: Provenance, sections: Sequence[Section]) -> None:
    """Write ``results.json`` and ``report.html``, each all or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(dataclasses.asdict(results)), indent=1, allow_nan=False)
    write_text(folder / "results.json", text + "\n")
    write_text(folder / "report.html", page(title, [*sections, _origin(provenance)]))


def write_markdown(path: Path, title: str, provenance: Provenance, sections: Sequence[Section]) -> None:
    """The same page in Markdown, its pictures in files beside it: for where text is kept, such as a repository's docs."""
    parts = [f"# {title}"]
    for section in [*sections, _origin(provenance)]:
        parts += [f"## {section.title}", section.text, *map(_markdown_table, section.tables)]
        for number, picture in enumerate(section.pictures):
            name = "".join(filter(str.isalnum, section.title.lower())) + (f"_{number}" if number else "")
            file = path.with_name(f"{name}.{picture.kind}")
            file.write_bytes(picture.data)
            parts.append(f"![{picture.caption or section.title}]({file.name})")
    write_text(path, "\n\n".join(filter(None, parts)) + "\n")


def page(title: str, sections: Sequence[Section]) -> str:
    """An HTML page that needs no other file."""
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *map(_section, sections)])
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{html.escape(section.text)}</p>")
    parts += [_table(table) for table in section.tables]
    parts += [_picture(picture) for picture in section.pictures]
    return "\n".join(parts)


def _table(table: Table) -> str:
    worded = [_is_text([row[column] for row in table.rows]) for column in range(len(table.header))]
    head = "".join(_cell("th", cell, text) for cell, text in zip(table.header, worded, strict=True))
    rows = []
    for index, row in enumerate(table.rows):
        rule = ' class="rule"' if index in table.rules else ""
        cells = "".join(_cell("td", cell, text) for cell, text in zip(row, worded, strict=True))
        rows.append(f"<tr{rule}>{cells}</tr>")
    inside = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'


def _markdown_table(table: Table) -> str:
    worded = [_is_text([row[column] for row in table.rows]) for column in range(len(table.header))]
    marks = [":---" if text or column == 0 else "---:" for column, text in enumerate(worded)]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in (table.header, marks, *table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _is_text(column: Sequence[str]) -> bool:
    """Whether a column holds words, which stand at the left."""
    return any(cell[:1].isalpha() for cell in column)


def _cell(tag: str, content: str, text: bool) -> str:
    kind = ' class="text"' if text else ""
    return f"<{tag}{kind}>{html.escape(content)}</{tag}>"


def _picture(picture: Picture) -> str:
    mime = {"svg": "image/svg+xml", "jpg": "image/jpeg", "png": "image/png"}[picture.kind]
    source = f"data:{mime};base64,{base64.b64encode(picture.data).decode()}"
    caption = html.escape(picture.caption)
    return f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'


def _origin(provenance: Provenance) -> Section:
    rows = [[name, _one_line(value)] for name, value in dataclasses.asdict(provenance).items()]
    return Section("Where these numbers come from", tables=[Table(["", ""], rows)])


def _one_line(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _plain(value: Any) -> Any:
    """JSON knows no infinity: what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: Path, text: str) -> None:
    """Replace a file in one piece."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
