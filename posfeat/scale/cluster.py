"""Tasks on Ray: a bounded number under way, lost workers' tasks done again, deadly ones narrowed down to one item.

Nothing large passes through the driver: tasks name their inputs and outputs, and workers read and write these.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from posfeat.options import check_options, described
from posfeat.types import MissingExtraError, OptionsError, PosfeatError

RETRIES = 2  # of a task whose worker is lost, before the task itself is suspected
TASKS_FOR_A_WORKER = 2  # one at work, one coming
LOCAL_OBJECT_STORE_BYTES = 256 * 2**20  # weights are all that lies there

Item = TypeVar("Item")
Result = TypeVar("Result")
ItemIn = TypeVar("ItemIn", contravariant=True)
ResultOut = TypeVar("ResultOut", covariant=True)


@dataclass(frozen=True)
class ClusterOptions:
    """Which Ray, and what each worker is given."""

    address: str = described("local", "local, auto, or a cluster's address such as 10.0.0.1:6379")
    cpus: int = described(1, "processor cores, and torch's threads, of each worker", low=1)
    gpus: float = described(0.0, "graphics processors of each worker; 0.5 lets two share one", low=0)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def default_device(self) -> str | None:
        """Where networks run unless somebody says otherwise; None: the fastest device that a worker has."""
        return None if self.gpus else "cpu"


class Work(Protocol[ItemIn, ResultOut]):
    """A step that runs in workers."""

    def begin(self) -> Callable[[Sequence[ItemIn]], ResultOut]:
        """Load what is heavy, once in each worker; what comes back does one task after another."""
        ...


@dataclass(frozen=True)
class Done(Generic[Item, Result]):
    """What became of a task; without a result, it was one item and its worker ended each time."""

    items: Sequence[Item]
    result: Result | None


@contextmanager
def connected(options: ClusterOptions) -> Iterator[Any]:
    """Ray, started or joined, and left afterwards unless it was there before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f"--ray needs Ray ({error}); pip install 'posfeat[scale]'") from None
    if ray.is_initialized():
        yield ray
        return
    local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": LOCAL_OBJECT_STORE_BYTES}
    try:
        ray.init(
            address=options.address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **(local if options.address == "local" else {}),
        )
    except (ConnectionError, OSError, ValueError, RuntimeError) as error:
        raise OptionsError(f"no Ray cluster at {options.address}: {' '.join(str(error).split())[:200]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def run_tasks(
    ray: Any, options: ClusterOptions, work: Work[Item, Result], tasks: Iterable[Sequence[Item]]
) -> Iterator[Done[Item, Result]]:
    """Do all tasks, in whatever order they end. Tasks are drawn as workers become free."""
    handle = [ray.put(work)]  # in a list, so that workers fetch it once and not for each task
    remote = ray.remote(_perform).options(
        num_cpus=options.cpus, num_gpus=options.gpus, max_retries=RETRIES, retry_exceptions=False
    )
    _warn_if_too_small(ray, options)
    coming, again = iter(tasks), deque[Sequence[Item]]()
    running: dict[Any, Sequence[Item]] = {}
    while True:
        room = _tasks_at_once(ray, options) - len(running)
        while room > 0 and (task := again.popleft() if again else next(coming, None)) is not None:
            running[remote.remote(handle, task, options.cpus)] = task
            room -= 1
        if not running:
            return
        for reference in ray.wait(list(running))[0]:
            task = running.pop(reference)
            try:
                yield Done(task, ray.get(reference))
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, PosfeatError) else error) from None
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
                if len(task) == 1:
                    yield Done(task, None)
                else:
                    again += [task[: len(task) // 2], task[len(task) // 2 :]]


def _perform(handle: list[Any], task: Sequence[Any], threads: int) -> Any:
    """In a worker: do a task, by a step that was begun before or is begun now."""
    key = handle[0].hex()
    if key not in _BEGUN:
        import ray
        import torch

        torch.set_num_threads(threads)
        _BEGUN.clear()  # another job's
        _BEGUN[key] = ray.get(handle[0]).begin()
    return _BEGUN[key](task)


_BEGUN: dict[str, Callable[[Sequence[Any]], Any]] = {}


def _workers(ray: Any, options: ClusterOptions) -> int:
    have = ray.cluster_resources()
    by_gpu = [int(have.get("GPU", 0) / options.gpus)] if options.gpus else []
    return min([int(have.get("CPU", 0) / options.cpus), *by_gpu])


def _tasks_at_once(ray: Any, options: ClusterOptions) -> int:
    """Two for each worker that there could be now: tasks that wait are what makes a cluster grow."""
    return TASKS_FOR_A_WORKER * (1 + _workers(ray, options))


def _warn_if_too_small(ray: Any, options: ClusterOptions) -> None:
    if _workers(ray, options) == 0:
        wanted = f"{options.cpus} CPUs" + (f" and {options.gpus:g} GPUs" if options.gpus else "")
        warnings.warn(f"no machine of the Ray cluster has {wanted}; waiting until one joins", stacklevel=3)
