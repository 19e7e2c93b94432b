"""An HDF5 file with entries of one kind, or a folder of shards that is read as one: what both kinds of stores share.

One process writes a file, and what it has committed survives the end of that process at any moment (see journaled_file).
A store remembers the settings it was made with, and refuses to go on with others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import h5py

from posfeat.pipeline.journaled_file import JournaledFile, needs_recovery
from posfeat.pipeline.shards import LocalFolder, ShardedFile, Shards, open_shards
from posfeat.types import StoreError

Mode = Literal["r", "a"]


class Hdf5Store:
    """An HDF5 file of one kind; open it with ``with``, or close it."""

    kind: str
    marker: str  # the dataset that makes a group an entry

    def __init__(
        self, path: str | os.PathLike[str] | Shards, mode: Mode = "r", settings: Mapping[str, Any] | None = None
    ) -> None:
        self._journaled: JournaledFile | None = None
        self._file: Any
        if isinstance(path, Shards) or Path(path).is_dir():
            self._file = self._open_shards(path, mode)
            self.path = Path(self._file.shards.folder.name)
            return
        self.path = Path(path)
        if mode == "a" and not self.path.exists():
            _create(self.path, self.kind, settings or {})
        if not self.path.is_file():
            raise StoreError(f"there is no {self.kind} file {self.path}; check the name")
        try:
            if mode == "a" or needs_recovery(self.path):
                self._journaled = JournaledFile(self.path)
            self._file = h5py.File(self._journaled or self.path, "r+" if mode == "a" else "r")
        except OSError as error:
            self._close_journaled()
            raise not_open(self.path, error) from None
        if mode == "a" and settings is not None:
            try:
                check_settings(str(self.path), self.settings, settings)
            except StoreError:
                self.close()
                raise

    def _open_shards(self, place: str | os.PathLike[str] | Shards, mode: Mode) -> ShardedFile:
        shards = place if isinstance(place, Shards) else open_shards(LocalFolder(Path(place)))
        if shards.kind != self.kind:
            raise StoreError(f"{shards.folder.name} holds a {shards.kind} store, not a {self.kind} store")
        if mode == "a":
            name = shards.folder.name
            raise StoreError(
                f"{name} is a folder of shards, which only work with --ray adds to; name another output file"
            )
        return ShardedFile(shards)

    def __enter__(self: Self_) -> Self_:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file. Everything that was written is committed by now; what HDF5 adds here is not needed."""
        if self._file:
            self._file.close()
        self._close_journaled()

    @property
    def settings(self) -> dict[str, Any]:
        """What the store was made with; empty for files of other tools."""
        return dict(json.loads(self._file.attrs.get("settings", "{}")))

    def entries(self) -> list[str]:
        """The names of all groups that hold an entry."""
        if isinstance(self._file, ShardedFile):
            return list(self._file.shards.shard_of)
        return list(entries_of(self._file, self.marker))

    def add_from(self, shard: ShardedFile, entries: Sequence[str]) -> int:
        """Copy entries as they are, those that are not here yet; how many."""
        wanted = [entry for entry in entries if not self._has(entry)]
        with self._transaction():
            for entry in wanted:
                self._file.copy(shard[entry], self._file, name=entry)
        return len(wanted)

    def __len__(self) -> int:
        return len(self.entries())

    def _has(self, group: str) -> bool:
        if isinstance(self._file, ShardedFile):
            return group in self._file.shards.shard_of
        return f"{group}/{self.marker}" in self._file

    def _group(self, group: str, what: str) -> h5py.Group:
        if not self._has(group):
            raise StoreError(f"{self.path} holds nothing for {what}; run that step for it first")
        return self._file[group]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What happens inside is kept as a whole, or not at all and the store is closed."""
        if self._journaled is None:
            raise StoreError(f"{self.path} is open for reading only")
        try:
            yield
            self._file.flush()
            self._journaled.commit()
        except BaseException as error:
            with suppress(OSError, RuntimeError):  # HDF5 cannot put down what it could not write
                self._file.close()
            self._close_journaled()
            if isinstance(error, OSError):
                raise StoreError(f"cannot write to {self.path}: {error.strerror or error}; is the disk full?") from None
            raise

    def _new_group(self, name: str) -> h5py.Group:
        if name in self._file:
            del self._file[name]
        return self._file.create_group(name)

    def _close_journaled(self) -> None:
        if self._journaled:
            self._journaled.close()
            self._journaled = None


Self_ = TypeVar("Self_", bound=Hdf5Store)


def _create(path: Path, kind: str, settings: Mapping[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(part, "w") as file:
            file.attrs["kind"] = kind
            file.attrs["settings"] = json.dumps(settings)
            file.attrs["pixel_convention"] = "(x, y); the centre of the top-left pixel is (0, 0)"
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot create {path}: {error.strerror or error}; choose another place") from None


def check_settings(store: str, settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with a store that was made with other settings."""
    known = _flat(settings)
    for key, value in _flat(json.loads(json.dumps(wanted))).items():
        if key in known and known[key] != value:
            raise StoreError(
                f"{store} was made with {key}={known[key]!r}, not {value!r}; "
                "use the same settings, or another output file"
            )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their full names, such as extraction.selection.nms_size."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def entries_of(group: h5py.Group, marker: str, prefix: str = "") -> Iterator[str]:
    """The names of all groups below that hold the dataset that makes a group an entry."""
    for key, child in group.items():
        if isinstance(child, h5py.Group):
            if marker in child:
                yield prefix + key
            else:
                yield from entries_of(child, marker, f"{prefix}{key}/")


def not_open(path: Path, error: OSError) -> StoreError:
    """Why a file cannot be opened, in one line."""
    if isinstance(error, (PermissionError, FileNotFoundError)):
        return StoreError(f"cannot open {path}: {error.strerror}; check the name and its permissions")
    if "lock" in str(error):
        return StoreError(f"{path} is being written by another process; wait until it is done")
    return StoreError(f"{path} is no feature or match file (HDF5), or is damaged; check the name, or write it again")
