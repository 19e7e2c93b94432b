"""Values that may be thrown away: the ones used last stay, up to a number of bytes."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A cache that several threads share; values unused for ``seconds`` go, and the oldest ones when it is full."""

    def __init__(self, max_bytes: float, seconds: float = float("inf")) -> None:
        self._max_bytes, self._seconds = max_bytes, seconds
        self._entries: OrderedDict[Hashable, tuple[Value, int, float]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """The value, which now counts as the one used last."""
        with self._lock:
            self._forget_old()
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = (entry[0], entry[1], time.monotonic())
            return entry[0]

    def put(self, key: Hashable, value: Value, num_bytes: int) -> None:
        """Keep a value; one that is larger than the whole cache is kept alone, until the next comes."""
        with self._lock:
            self._drop(key)
            self._entries[key] = (value, num_bytes, time.monotonic())
            self._bytes += num_bytes
            self._forget_old()
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        """What the values take."""
        return self._bytes

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        self._bytes -= entry[1] if entry else 0

    def _forget_old(self) -> None:
        limit = time.monotonic() - self._seconds
        while self._entries and next(iter(self._entries.values()))[2] < limit:
            self._drop(next(iter(self._entries)))
