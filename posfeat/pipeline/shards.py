"""A store in many files: a folder of shards, each written in one piece by whoever did that part of the work.

    shards.json     what kind of store it is, and the settings it was made with
    <name>.h5       a shard: a feature or match file like any other
    <name>.json     what the shard holds and which photos or pairs failed; written last, so it says that the shard is whole

A shard is named by the content of its task. Work that is done twice, by a worker that was thought to be lost, writes the
same shard twice. Several shards may hold the same entry: they hold the same of it, and the first by name is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import h5py

from posfeat.data.images import shown
from posfeat.types import StoreError

HEADER = "shards.json"
FILES_OPEN_AT_ONCE = 16
MANIFESTS_AT_ONCE = 256


class ShardFolder(Protocol):
    """Where shards lie, on whatever storage."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def files(self) -> list[str]:
        """The names of all files in it; none where there is no such folder."""
        ...

    def read(self, names: Sequence[str]) -> list[bytes]:
        """The contents of files."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file in one piece, in place of any that is there."""
        ...

    def open(self, name: str) -> Path | BinaryIO:
        """A file to read parts of."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        ...


@dataclass(frozen=True)
class LocalFolder:
    """A folder that is a path here (and for all workers, where there are several machines)."""

    path: Path

    @property
    def name(self) -> str:
        return shown(self.path)

    def files(self) -> list[str]:
        return sorted(os.listdir(self.path)) if self.path.is_dir() else []

    def read(self, names: Sequence[str]) -> list[bytes]:
        return [(self.path / name).read_bytes() for name in names]

    def write(self, name: str, content: bytes) -> None:
        part = self.path / f"{name}.{uuid.uuid4().hex}.part"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path / name)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StoreError(f"cannot write to {self.name}: {error.strerror or error}; is the disk full?") from None

    def open(self, name: str) -> Path | BinaryIO:
        return self.path / name

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()


@dataclass(frozen=True)
class Manifest:
    """What stands beside a shard."""

    entries: tuple[str, ...]  # HDF5 groups
    failures: tuple[str, ...] = ()  # a line for each photo or pair of the task that could not be used
    num_without_mask: int = 0


@dataclass(frozen=True)
class Shards:
    """A folder of shards to read from, and which shard holds what."""

    folder: ShardFolder
    kind: str
    settings: Mapping[str, Any]
    shard_of: Mapping[str, str] = field(repr=False)  # entry -> name of a shard

    def only(self, entries: Iterable[str]) -> Shards:
        """The same with a small index: what one task needs of a large store."""
        index = {entry: self.shard_of[entry] for entry in entries if entry in self.shard_of}
        return Shards(self.folder, self.kind, self.settings, index)


def is_shard_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder of shards."""
    return (Path(path) / HEADER).is_file()


def shard_name(kind: str, settings: Mapping[str, Any], task: Sequence[str]) -> str:
    """A name that says what a shard holds: the same task with the same settings has the same."""
    text = "\n".join((kind, json.dumps(settings, sort_keys=True), *task))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def open_shards(folder: ShardFolder) -> Shards:
    """Index a folder of shards. Its files are read a part at a time; only the index stays in memory."""
    header = read_header(folder)
    if header is None:
        raise StoreError(f"there is no store of shards in {folder.name}; check the name")
    shard_of: dict[str, str] = {}
    for name, manifest in read_manifests(folder, finished_shards(folder)):
        for entry in manifest.entries:
            shard_of.setdefault(entry, name)
    return Shards(folder, header["kind"], header["settings"], shard_of)


def read_header(folder: ShardFolder) -> dict[str, Any] | None:
    """Kind and settings of a store of shards, or None where there is none yet."""
    if HEADER not in folder.files():
        return None
    try:
        header = dict(json.loads(folder.read([HEADER])[0]))
        return {"kind": str(header["kind"]), "settings": dict(header["settings"])}
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{folder.name}/{HEADER} is damaged; remove the folder and make it again") from None


def write_header(folder: ShardFolder, kind: str, settings: Mapping[str, Any]) -> None:
    """Begin a store of shards."""
    folder.write(HEADER, json.dumps({"kind": kind, "settings": settings}, indent=1).encode())


def finished_shards(folder: ShardFolder) -> list[str]:
    """The names of all shards that are whole, in alphabetical order."""
    files = set(folder.files())
    return sorted(
        stem for stem in (f.removesuffix(".json") for f in files if f.endswith(".json")) if f"{stem}.h5" in files
    )


def read_manifests(folder: ShardFolder, shards: Sequence[str]) -> Iterator[tuple[str, Manifest]]:
    """Shards and their manifests; one that was cut off counts as missing."""
    for start in range(0, len(shards), MANIFESTS_AT_ONCE):
        part = shards[start : start + MANIFESTS_AT_ONCE]
        for name, content in zip(part, folder.read([f"{name}.json" for name in part]), strict=True):
            try:
                known = json.loads(content)
                manifest = Manifest(tuple(known["entries"]), tuple(known["failures"]), int(known["num_without_mask"]))
            except (ValueError, KeyError, TypeError):
                continue
            yield name, manifest


def write_shard(folder: ShardFolder, name: str, shard: Path, manifest: Manifest) -> None:
    """Put a finished file among the shards."""
    folder.write(f"{name}.h5", shard.read_bytes())
    known = {**vars(manifest), "entries": list(manifest.entries), "failures": list(manifest.failures)}
    folder.write(f"{name}.json", json.dumps(known).encode())


class ShardedFile:
    """What stands where an open HDF5 file stands, for a store that is read as one."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.attrs = {"kind": shards.kind, "settings": json.dumps(shards.settings)}
        self._open: OrderedDict[str, h5py.File] = OrderedDict()

    def __getitem__(self, entry: str) -> h5py.Group:
        return self._file(self.shards.shard_of[entry])[entry]

    def close(self) -> None:
        """Release all files."""
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, name: str) -> h5py.File:
        """An open shard; those that were not used for the longest time are closed."""
        if name not in self._open:
            try:
                self._open[name] = h5py.File(self.shards.folder.open(f"{name}.h5"), "r")
            except OSError:
                where = f"{self.shards.folder.name}/{name}"
                raise StoreError(
                    f"{where}.h5 is missing or damaged; remove {name}.json and do that work again"
                ) from None
            if len(self._open) > FILES_OPEN_AT_ONCE:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]
