"""Chosen pairs as a text file, so that what was checked once can be trained on many times.

A line is ``scene<TAB>name0<TAB>name1<TAB>overlap<TAB>baseline`` where baseline is yes or no; lines that start with # are comments.
"""

from __future__ import annotations

import os
from pathlib import Path

from posfeat.types import DataError, Pair, View

_HEADER = "# scene\tname0\tname1\toverlap\tbaseline\n"
_BASELINE = {"yes": True, "no": False}


def write_pair_list(path: Path, pairs: list[Pair]) -> None:
    """Write the file in one go: a run that is stopped leaves the old one."""
    lines = [
        "\t".join(
            (
                pair.view0.scene,
                pair.view0.name,
                pair.view1.name,
                f"{pair.overlap:.3f}",
                "yes" if pair.has_baseline else "no",
            )
        )
        for pair in pairs
    ]
    part = path.with_name(path.name + ".part")
    part.write_text(_HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(part, path)


def read_pair_list(path: Path, views: list[View]) -> list[Pair]:
    """The listed pairs of the given views; DataError where a line is damaged or names a view that is not among them."""
    known = {(view.scene, view.name): view for view in views}
    pairs = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list of pairs {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            scene, name0, name1, overlap, baseline = line.split("\t")
            view0, view1 = known[scene, name0], known[scene, name1]
            pairs.append(Pair(view0, view1, overlap=float(overlap), has_baseline=_BASELINE[baseline]))
        except KeyError as error:
            raise DataError(f"{path} line {number}: {error.args[0]} is not in this data") from error
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is not scene, two names, overlap and yes or no, set apart by tabs"
            ) from error
    return pairs
