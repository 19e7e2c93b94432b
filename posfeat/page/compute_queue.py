"""Jobs wait in line for one thread each queue; when the line is full, further ones are told to come back.

One network serves all clients: more threads would only make each of them slower.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from posfeat.page.limits import RefusedError, busy

Result = TypeVar("Result")


class ComputeQueue:
    """A bounded line of jobs before one thread."""

    def __init__(self, name: str, most_waiting: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._turn: asyncio.Lock | None = None  # made in the loop that it belongs to
        self._most_waiting = most_waiting
        self._seconds = 1.0  # of a job, lately
        self.unfinished = 0

    async def run(self, job: Callable[[], Result], gone: Callable[[], Awaitable[bool]] | None = None) -> Result:
        """The job's result, when its turn has come. A job whose client is gone by then is not begun."""
        if self.unfinished > self._most_waiting:
            raise busy(self._seconds * self.unfinished)
        if self._turn is None:
            self._turn = asyncio.Lock()
        self.unfinished += 1
        try:
            async with self._turn:
                if gone is not None and await gone():
                    raise RefusedError(503, "the client went away")
                start = time.monotonic()
                # shielded: a thread cannot be stopped, and the next job must not start beside it
                work = asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(job))
                try:
                    return await asyncio.shield(work)
                except asyncio.CancelledError:
                    await asyncio.wait([work])
                    raise
                finally:
                    self._seconds = 0.7 * self._seconds + 0.3 * (time.monotonic() - start)
        finally:
            self.unfinished -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
