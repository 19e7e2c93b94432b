"""A file whose changes happen all or not at all, however the process ends: what keeps an HDF5 file alive.

HDF5 leaves a file unreadable when the process dies between two of its writes. Here it writes through this object:

- Bytes beyond the committed end go straight to the file. Nothing refers to them yet, so half of them do no harm.
- Bytes that replace committed ones wait in memory.
- Where the disk is full, bytes wait in memory too, and the commit fails: HDF5 may end the process when a write of its
  own fails, and writes even when it is closed.
- A commit first writes the waiting bytes, with a checksum, to a journal beside the file, then into the file, then
  removes the journal. A journal found on opening is applied again if it is whole (the process died while the file was
  being changed) and thrown away if not (it died before).
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

from posfeat.types import StoreError

_MAGIC = b"posfeat journal 1\n"
_ENTRY = struct.Struct("<QQ")  # offset, length
_CHECKSUM = struct.Struct("<I")


class JournaledFile(io.RawIOBase):
    """A binary file, open for reading and writing, that changes only in ``commit``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            lock_for_writing(self._descriptor, path)
            recover(path)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._waiting: list[tuple[int, bytes]] = []
        self._failure: OSError | None = None  # of a write; from then on all bytes wait
        self._committed_end = self._end()
        self._position = 0

    def commit(self) -> None:
        """Make everything written so far permanent, as one change."""
        if self._failure is not None:
            raise self._failure
        os.fsync(self._descriptor)
        if self._waiting:
            _write_journal(_journal_path(self._path), self._waiting)
            _apply(self._descriptor, self._waiting)
            _journal_path(self._path).unlink()
        self._waiting.clear()
        self._committed_end = self._end()

    def close(self) -> None:
        """Close without a commit."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end()}[whence]
        self._position = base + offset
        return self._position

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        # committed bytes stay: a file longer than what HDF5 uses of it is a good file
        os.ftruncate(self._descriptor, max(size, self._committed_end))
        return size

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        start, length = self._position, len(view)
        os.lseek(self._descriptor, start, os.SEEK_SET)
        data = bytearray(os.read(self._descriptor, length))
        data.extend(bytes(max(min(length, self._end() - start) - len(data), 0)))
        for offset, content in self._waiting:
            first, last = max(offset, start), min(offset + len(content), start + len(data))
            if first < last:
                data[first - start : last - start] = content[first - offset : last - offset]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        content, start = bytes(data), self._position
        inside = min(max(self._committed_end - start, 0), len(content))
        if inside:
            self._waiting.append((start, content[:inside]))
        if inside < len(content):
            self._write_new(start + inside, content[inside:])
        self._position += len(content)
        return len(content)

    def _write_new(self, offset: int, content: bytes) -> None:
        if self._failure is None:
            try:
                _write_at(self._descriptor, offset, content)
                return
            except OSError as error:
                self._failure = error
        self._waiting.append((offset, content))

    def _end(self) -> int:
        size = os.fstat(self._descriptor).st_size
        if self._failure is None:
            return size
        return max(size, *(offset + len(content) for offset, content in self._waiting))


def needs_recovery(path: Path) -> bool:
    """Whether a process died, or is at work, between a journal and the file."""
    return _journal_path(path).exists()


def recover(path: Path) -> None:
    """Bring a file to the state of its last whole commit. The caller holds the lock."""
    journal = _journal_path(path)
    if not journal.exists():
        return
    entries = _read_journal(journal)
    if entries is not None:
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            _apply(descriptor, entries)
        finally:
            os.close(descriptor)
    journal.unlink()


def lock_for_writing(descriptor: int, path: Path) -> None:
    """Be the only writer (and keep HDF5 readers out, which take the same lock). Released when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows: nothing there to lock with in a way that HDF5 understands
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StoreError(f"{path} is being written by another process; wait until it is done") from None


def _journal_path(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _write_at(descriptor: int, offset: int, content: bytes) -> None:
    os.lseek(descriptor, offset, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _apply(descriptor: int, entries: list[tuple[int, bytes]]) -> None:
    for offset, content in entries:
        _write_at(descriptor, offset, content)
    os.fsync(descriptor)


def _write_journal(journal: Path, entries: list[tuple[int, bytes]]) -> None:
    body = b"".join(_ENTRY.pack(offset, len(content)) + content for offset, content in entries)
    descriptor = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)
    try:
        _write_at(descriptor, 0, _MAGIC + body + _CHECKSUM.pack(zlib.crc32(body)))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_journal(journal: Path) -> list[tuple[int, bytes]] | None:
    """The entries, or None where the journal was not written to its end."""
    data = journal.read_bytes()
    body = data[len(_MAGIC) : -_CHECKSUM.size]
    if not data.startswith(_MAGIC) or data[-_CHECKSUM.size :] != _CHECKSUM.pack(zlib.crc32(body)):
        return None
    entries, position = [], 0
    while position < len(body):
        offset, length = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        entries.append((offset, body[position : position + length]))
        position += length
    return entries
