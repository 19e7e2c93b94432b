"""What the formats of one file for each image share: names, files written as a whole, and complaints that name the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from posfeat.data.images import shown
from posfeat.types import DataError, Features, Matches, StoreError


class FeatureFolder(Protocol):
    """A folder in another program's format; names are images' paths with '/', matches are optional in some formats."""

    @property
    def folder(self) -> Path: ...

    @property
    def holds_matches(self) -> bool: ...

    def write(self, name: str, features: Features) -> None: ...

    def names(self) -> list[str]: ...

    def read(self, name: str, image_size: tuple[int, int]) -> Features: ...

    def write_matches(self, name0: str, name1: str, matches: Matches) -> None: ...

    def pairs(self) -> list[tuple[str, str]]: ...

    def read_matches(self, name0: str, name1: str) -> Matches: ...

    def close(self) -> None: ...


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file, folders above it included, all or nothing."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            write(file)
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot write {shown(path)}: {error.strerror or error}; choose another place") from None


def names_below(folder: Path, ending: str) -> list[str]:
    """The images that have a file NAME + ending below a folder, in alphabetical order."""
    paths = (path for path in folder.rglob(f"*{ending}") if path.is_file())
    return sorted(path.relative_to(folder).as_posix().removesuffix(ending) for path in paths)


def file_of(folder: Path, name: str, ending: str) -> Path:
    """The file of an image; a name that leads out of the folder is refused."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise DataError(f"image name {name!r} leads out of the folder {shown(folder)}; rename the image")
    return folder / f"{path}{ending}"


def not_readable(path: Path, wanted: str, error: Exception) -> DataError:
    """The complaint about a file that is missing or not what it should be."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return DataError(f"{shown(path)} cannot be read as {wanted}: {reason}; write it again")


def has_no_matches(program: str) -> DataError:
    """The complaint about a format that holds features only."""
    return DataError(f"{program} has no format for matches; leave out --matches")
