"""Results gathered for about a second and then written in one go, since each commit waits for the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class WriteBatch(Generic[T]):
    """Use with ``with``: whatever ends the block, what was added before is written."""

    def __init__(self, write: Callable[[list[T]], None], seconds: float = 1.0, items: int = 64) -> None:
        self._write, self._seconds, self._items = write, seconds, items
        self._waiting: list[T] = []
        self._written_at = time.monotonic()

    def __enter__(self) -> WriteBatch[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write_now()

    def add(self, item: T) -> None:
        """Add a result."""
        self._waiting.append(item)

    def write_if_due(self) -> bool:
        """Write if it is time to; whether everything added so far is written."""
        if time.monotonic() - self._written_at > self._seconds or len(self._waiting) >= self._items:
            self._write_now()
        return not self._waiting

    def _write_now(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write(waiting)
        self._written_at = time.monotonic()
