"""Image sequences joined by homographies: HPatches and the Oxford affine sequences, read and checked.

Two layouts are known. HPatches' release has ``1.ppm .. 6.ppm`` and ``H_1_2 .. H_1_6`` in each folder, whose name starts
with ``i_`` (illumination) or ``v_`` (viewpoint). The Oxford sequences have ``img1.ppm .. img6.ppm`` and
``H1to2p .. H1to6p``. Images may be of any format; the homographies map pixels of image 1 with the centre of the
top-left pixel at (0, 0), as D2-Net's evaluation and everybody since has read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posfeat.benchmarks.published import read_table
from posfeat.types import Array, DataError

OXFORD_CHANGES = {
    "bark": "zoom+rotation",
    "bikes": "blur",
    "boat": "zoom+rotation",
    "graf": "viewpoint",
    "leuven": "light",
    "trees": "blur",
    "ubc": "compression",
    "wall": "viewpoint",
}
HOW_TO_GET = (
    "HPatches is the archive hpatches-sequences-release (about 1.3 GB, linked from the HPatches benchmark's page on "
    "GitHub): unpack it, so that ROOT holds i_ajuntament/1.ppm and i_ajuntament/H_1_2. The Oxford affine sequences are "
    "eight archives of the Visual Geometry Group's page: unpack each into a folder of its name, so that ROOT holds "
    "graf/img1.ppm and graf/H1to2p"
)
_HPATCHES_MAP = re.compile(r"H_1_(\d+)$")
_OXFORD_MAP = re.compile(r"H1to(\d+)p$")


@dataclass(frozen=True)
class HomographySequence:
    """Images of one plane or from one place; ``homographies[k]`` maps image 1 to ``targets[k]``."""

    name: str
    change: str  # what changes between the images: illumination, viewpoint, blur ...
    reference: Path
    targets: tuple[Path, ...]
    homographies: tuple[Array, ...]
    homography_files: tuple[Path, ...]

    @property
    def images(self) -> tuple[Path, ...]:
        """All images, the reference first."""
        return (self.reference, *self.targets)


def hpatches_names() -> tuple[frozenset[str], frozenset[str]]:
    """The 108 sequences that the paper evaluates, and the eight of the release that are left out for their size."""
    rows = read_table("hpatches_sequences")
    excluded = frozenset(row["sequence"] for row in rows if row["excluded"] == "yes")
    return frozenset(row["sequence"] for row in rows) - excluded, excluded


def read_sequences(root: Path) -> list[HomographySequence]:
    """Every sequence under ``root`` but the eight excluded ones, by name; DataError where there is none or one is bad."""
    sequences = [read_sequence(folder) for folder in _sequence_folders(root)]
    if not sequences:
        raise DataError(f"{root}: no image sequences here. {HOW_TO_GET}")
    return sequences


def read_sequence(folder: Path) -> HomographySequence:
    """One sequence of either layout."""
    maps = _maps_of(folder)
    image = "img{}" if any(_OXFORD_MAP.match(path.name) for path in maps.values()) else "{}"
    return HomographySequence(
        name=folder.name,
        change=_change_of(folder.name),
        reference=_find_image(folder, image.format(1)),
        targets=tuple(_find_image(folder, image.format(index)) for index in sorted(maps)),
        homographies=tuple(read_homography(maps[index]) for index in sorted(maps)),
        homography_files=tuple(maps[index] for index in sorted(maps)),
    )


def holds_sequences(root: Path) -> bool:
    """Whether any folder under ``root`` holds homographies."""
    return any(_maps_of(folder) for folder in root.iterdir() if folder.is_dir())


def check_sequences(root: Path) -> tuple[list[str], list[str]]:
    """What was found, and what is wrong, as sentences; nothing is wrong where the second list is empty."""
    sequences: list[HomographySequence] = []
    problems: list[str] = []
    for folder in _sequence_folders(root):
        try:
            sequences.append(read_sequence(folder))
        except DataError as error:
            problems.append(str(error))
    by_change: dict[str, int] = {}
    for sequence in sequences:
        by_change[sequence.change] = by_change.get(sequence.change, 0) + 1
    counts = ", ".join(f"{count} {change}" for change, count in sorted(by_change.items()))
    pairs = sum(len(sequence.targets) for sequence in sequences)
    found = [f"{len(sequences)} sequences ({counts}), {pairs} pairs"]
    names = {sequence.name for sequence in sequences}
    wanted, excluded = hpatches_names()
    if names & wanted and wanted - names:
        problems.append(
            f"{len(wanted - names)} of HPatches' 108 sequences are missing: {_shortened(sorted(wanted - names))}"
        )
    left_out = sorted(folder.name for folder in root.iterdir() if folder.name in excluded)
    if left_out:
        found.append(f"{len(left_out)} large sequences are left out, as in the paper: {', '.join(left_out)}")
    return found, problems


def _sequence_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. {HOW_TO_GET}")
    excluded = hpatches_names()[1]
    folders = (folder for folder in sorted(root.iterdir()) if folder.is_dir() and folder.name not in excluded)
    return [folder for folder in folders if _maps_of(folder)]


def _maps_of(folder: Path) -> dict[int, Path]:
    found = ((_HPATCHES_MAP.match(path.name) or _OXFORD_MAP.match(path.name), path) for path in folder.iterdir())
    return {int(match.group(1)): path for match, path in found if match}


def _change_of(name: str) -> str:
    if name in OXFORD_CHANGES:
        return OXFORD_CHANGES[name]
    return {"i_": "illumination", "v_": "viewpoint"}.get(name[:2], "other")


def _find_image(folder: Path, stem: str) -> Path:
    candidates = sorted(path for path in folder.glob(f"{stem}.*") if path.stem == stem and path.suffix != ".txt")
    if len(candidates) != 1:
        what = "is missing" if not candidates else f"exists {len(candidates)} times"
        raise DataError(f"{folder.name}: image {stem} {what}; a sequence needs every image that has a homography, once")
    return candidates[0]


def read_homography(path: Path) -> Array:
    """An invertible matrix of nine numbers."""
    try:
        matrix = np.array(path.read_text().split(), dtype=np.float64)
    except ValueError:
        matrix = np.empty(0)
    if matrix.size != 9 or not np.isfinite(matrix).all() or abs(np.linalg.det(matrix.reshape(3, 3))) < 1e-12:
        raise DataError(f"{path.parent.name}/{path.name}: not an invertible 3x3 matrix of nine numbers; get it again")
    return matrix.reshape(3, 3)


def _shortened(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
