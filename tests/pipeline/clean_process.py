"""Processes to be killed. They come from a server that has no threads: a copy of the test's own process, where torch has
threads, would wait for ever for locks that these held."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any


def start(work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Run a function of a module in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    child = context.Process(target=work, args=arguments, daemon=True)
    child.start()
    return child
