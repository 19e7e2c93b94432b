"""Cameras that are known beforehand, by the names that a feature store has for the photos."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from posfeat.data.colmap import is_colmap_model, read_colmap
from posfeat.data.posed import read_posed
from posfeat.types import DataError, View


def known_views(path: Path, names: Collection[str]) -> dict[str, View]:
    """Posed photos of any layout that the package reads, those that are among ``names``.

    A COLMAP model may lie apart from its photos. Where a file names photos by a longer path (``images/a.jpg``), the
    part of it that is among ``names`` counts.
    """
    views = read_colmap(path, path) if is_colmap_model(path) else read_posed(path)
    found: dict[str, View] = {}
    for view in views:
        parts = view.name.split("/")
        name = next((tail for i in range(len(parts)) if (tail := "/".join(parts[i:])) in names), None)
        if name is not None:
            found[name] = replace(view, name=name)
    if not found:
        example = f", such as {views[0].name}" if views else ""
        raise DataError(
            f"{path} has cameras for {len(views)} photos{example}, but for none of these photos; check names"
        )
    return found
