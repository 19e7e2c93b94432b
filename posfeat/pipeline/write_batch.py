"""Results gathered for about a second and then written in one go, since each commit waits for the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class WriteBatch(Generic[T]):
    """Use with ``with``: whatever ends the block, what was added before is written.

    With ``behind`` a thread of its own writes, one batch while the next is gathered; inside the block nobody else may
    use what it writes to.
    """

    def __init__(
        self, write: Callable[[list[T]], None], seconds: float = 1.0, items: int = 64, *, behind: bool = False
    ) -> None:
        self._write, self._seconds, self._items = write, seconds, items
        self._writer = ThreadPoolExecutor(1, "write") if behind else None
        self._under_way: Future[None] | None = None
        self._waiting: list[T] = []
        self._written_at = time.monotonic()

    def __enter__(self) -> WriteBatch[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._write_now()
            self._wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()

    def add(self, item: T) -> None:
        """Add a result."""
        self._waiting.append(item)

    def write_if_due(self) -> bool:
        """Write if it is time to; whether everything added so far is written, or being written."""
        if time.monotonic() - self._written_at > self._seconds or len(self._waiting) >= self._items:
            self._write_now()
        return not self._waiting

    def _write_now(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._wait()
        if waiting and self._writer is not None:
            self._under_way = self._writer.submit(self._write, waiting)
        elif waiting:
            self._write(waiting)
        self._written_at = time.monotonic()

    def _wait(self) -> None:
        """Until the last batch is written; what went wrong with it is raised here."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()
