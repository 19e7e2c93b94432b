"""Photos and shards on any storage that fsspec or PyArrow knows: S3 and what speaks its language, HDFS, archives, the web.

A place is a path or an address such as s3://bucket/photos or zip://photos::s3://bucket/photos.zip. What lies on a path
is used where it is. From elsewhere the photos of one task at a time are fetched, many at once where the storage allows.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from posfeat.data.images import IMAGE_SUFFIXES, shown
from posfeat.pipeline.extract import list_images
from posfeat.pipeline.shards import LocalFolder, ShardFolder
from posfeat.types import DataError, MissingExtraError, PosfeatError, StoreError

FILES_AT_ONCE = 16
TRIES = 3
FIRST_WAIT_S = 0.5
BLOCK_BYTES = 2**19  # fetched of a shard at a time; HDF5 reads a few hundred bytes here and a photo's features there
BLOCKS_AT_HAND = 8


class PhotoFolder(Protocol):
    """Where photos lie."""

    def list(self, excluded: Path | None, on_failure: Callable[[str], None]) -> list[str]:
        """All photos by their paths below it with '/', in alphabetical order."""
        ...

    def fetch(self, names: Sequence[str], into: Path) -> FetchedPhotos:
        """Have these photos on a path of this machine; they may be written below ``into``."""
        ...


@dataclass(frozen=True)
class FetchedPhotos:
    """Photos that are at hand now."""

    folder: Path
    names: list[str]
    failures: list[str]  # a line for each that could not be fetched
    address: str  # where they come from, for messages


@dataclass(frozen=True)
class LocalPhotos:
    """Photos on a path that all machines have."""

    path: Path

    def list(self, excluded: Path | None, on_failure: Callable[[str], None]) -> list[str]:
        return list_images(self.path, excluded, on_failure)

    def fetch(self, names: Sequence[str], into: Path) -> FetchedPhotos:
        return FetchedPhotos(self.path, list(names), [], str(self.path))


@dataclass(frozen=True)
class RemotePhotos:
    """Photos behind an address."""

    address: str

    def list(self, excluded: Path | None, on_failure: Callable[[str], None]) -> list[str]:
        files, root = _open(self.address)
        with _one_line(f"list {self.address}", DataError):
            if not files.isdir(root):
                raise DataError(f"there is no image folder {self.address}; check the address")
            paths = files.find(root)
        names = (path.removeprefix(root).lstrip("/") for path in paths)
        return sorted(name for name in names if _is_photo(name))

    def fetch(self, names: Sequence[str], into: Path) -> FetchedPhotos:
        files, root = _open(self.address)
        got, failures = [], []
        for start in range(0, len(names), FILES_AT_ONCE):
            part = names[start : start + FILES_AT_ONCE]
            for name, content in zip(part, _contents(files, [_join(root, name) for name in part]), strict=True):
                if isinstance(content, Exception):
                    where = shown(_join(self.address, name))
                    failures.append(f"cannot read {where}: {_reason(content)}; start again later")
                    continue
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(content)
                got.append(name)
        return FetchedPhotos(into, got, failures, self.address)


@dataclass(frozen=True)
class RemoteFolder:
    """A folder of shards behind an address."""

    address: str

    @property
    def name(self) -> str:
        return self.address

    def files(self) -> list[str]:
        files, root = _open(self.address)
        with _one_line(f"list {self.address}", StoreError):
            files.invalidate_cache()
            return (
                sorted(PurePosixPath(path).name for path in files.ls(root, detail=False)) if files.isdir(root) else []
            )

    def read(self, names: Sequence[str]) -> list[bytes]:
        files, root = _open(self.address)
        contents = _contents(files, [_join(root, name) for name in names])
        for name, content in zip(names, contents, strict=True):
            if isinstance(content, Exception):
                raise StoreError(f"cannot read {_join(self.address, name)}: {_reason(content)}")
        return contents

    def write(self, name: str, content: bytes) -> None:
        files, root = _open(self.address)
        with _one_line(f"write to {self.address}", StoreError):
            files.makedirs(root, exist_ok=True)
            files.pipe_file(_join(root, name), content)

    def open(self, name: str) -> Path | BinaryIO:
        files, root = _open(self.address)
        opened: BinaryIO = files.open(
            _join(root, name),
            "rb",
            block_size=BLOCK_BYTES,
            cache_type="blockcache",
            cache_options={"maxblocks": BLOCKS_AT_HAND},
        )
        return opened

    def has(self, name: str) -> bool:
        files, root = _open(self.address)
        with _one_line(f"look into {self.address}", StoreError):
            return bool(files.exists(_join(root, name)))


def open_photos(place: str) -> PhotoFolder:
    """The photos of a path or an address."""
    return RemotePhotos(place.rstrip("/")) if is_remote(place) else LocalPhotos(Path(_local(place)).absolute())


def open_shard_folder(place: str) -> ShardFolder:
    """A folder of shards on a path or an address."""
    return RemoteFolder(place.rstrip("/")) if is_remote(place) else LocalFolder(Path(_local(place)).absolute())


def is_remote(place: str) -> bool:
    """Whether a place is an address, and not a path."""
    return "://" in place and not place.startswith("file://")


def _local(place: str) -> str:
    return place.removeprefix("file://")


def _open(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"{address} needs fsspec; pip install 'posfeat[scale]'") from None
    try:
        files, root = fsspec.url_to_fs(address)
    except ImportError as error:
        files, root = _open_by_arrow(address, _reason(error))
    except (ValueError, OSError) as error:
        raise DataError(f"cannot open {address}: {_reason(error)}; check the address") from None
    return files, str(root).rstrip("/")


@functools.lru_cache(maxsize=16)
def _open_by_arrow(address: str, missing: str) -> tuple[Any, str]:
    """The same by PyArrow, which has S3 and others built in, where fsspec's own package for these is ``missing``."""
    try:
        from fsspec.implementations.arrow import ArrowFSWrapper
        from pyarrow.fs import FileSystem

        files, root = FileSystem.from_uri(address)
    except (ImportError, ValueError):
        raise MissingExtraError(f"{address} needs another package: {missing}") from None
    except OSError as error:
        raise DataError(f"cannot open {address}: {_reason(error)}; check the address") from None
    return ArrowFSWrapper(files), root


def _contents(files: Any, paths: Sequence[str]) -> list[Any]:
    """Bytes, or the exception that says why there are none; several at once where the storage is made for it."""
    from fsspec.implementations.arrow import ArrowFSWrapper

    many = files.async_impl or isinstance(files, ArrowFSWrapper)
    with ThreadPoolExecutor(FILES_AT_ONCE if many else 1) as pool:
        return list(pool.map(functools.partial(_content, files), paths))


def _content(files: Any, path: str) -> Any:
    """What is missing is missing; after other failures it is tried again."""
    for attempt in range(TRIES):
        try:
            return files.cat_file(path)
        except FileNotFoundError as error:
            return error
        except Exception as error:  # what a storage library raises is not a closed list
            if attempt == TRIES - 1:
                return error
            time.sleep(FIRST_WAIT_S * 2**attempt)


@contextmanager
def _one_line(what: str, kind: type[DataError] | type[StoreError]) -> Iterator[None]:
    """Turn whatever a storage library raises into one line."""
    try:
        yield
    except PosfeatError:
        raise
    except Exception as error:
        raise kind(f"cannot {what}: {_reason(error)}; check the address and the credentials") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_photo(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in path.parts)


def _join(root: str, name: str) -> str:
    if "::" in root:  # the name belongs to the first of chained addresses
        first, rest = root.split("::", 1)
        return f"{first.rstrip('/')}/{name}::{rest}"
    return f"{root}/{name}" if root else name
