"""Reconstructions that were started on the page: each a process of its own, a few at a time, watched and stopped from here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from posfeat.page.limits import Limits, RefusedError, busy, not_found
from posfeat.page.methods import Methods
from posfeat.page.reconstruction_job import JobRequest
from posfeat.page.roots import Roots
from posfeat.pipeline.extract import list_images

State = Literal["waiting", "running", "done", "failed", "cancelled"]
STEPS = ("extract", "pairs", "match", "verify", "map", "export", "report")
MOST_LINES = 100  # of a job that are kept
MOST_REMEMBERED = 50
GRACE_SECONDS = 5.0  # between asking a process to end and ending it


@dataclass
class Job:
    """A reconstruction and how far it is. Changed under the lock of Reconstructions only."""

    number: str
    photos: str
    method: str
    request: JobRequest
    state: State = "waiting"
    step: str = ""
    done: int = 0
    total: int = 0
    lines: list[str] = field(default_factory=list)
    error: str = ""
    summary: dict[str, Any] | None = None
    scene: str | None = None  # reference of the model, once it is there
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    process: subprocess.Popen[str] | None = None


class Reconstructions:
    """Starts, watches and stops jobs."""

    def __init__(self, roots: Roots, methods: Methods, output: Path, limits: Limits) -> None:
        self._roots, self._methods, self._output, self._limits = roots, methods, output, limits
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(limits.reconstructions)
        self._closed = False
        if output.is_dir():
            roots.add(output)

    def start(self, photos: str, method: str, max_keypoints: int, pairs: str, share_camera: str) -> dict[str, Any]:
        """Begin, or go on with, the reconstruction of a folder."""
        folder = self._roots.resolve(photos)
        if not folder.is_dir():
            raise not_found("that is no folder of photos")
        self._roots.require(folder / name for name in list_images(folder))
        method = self._methods.check(method)
        weights = self._methods.source(method) or ""
        output = self._output / folder_name(photos, method, str(max_keypoints), pairs, share_camera)
        request = JobRequest(str(folder), str(output), weights, max_keypoints, pairs, share_camera)  # type: ignore[arg-type]
        with self._lock:
            unfinished = [job for job in self._jobs.values() if job.state in ("waiting", "running")]
            if any(job.request.output == request.output for job in unfinished):
                raise RefusedError(422, "this reconstruction is under way already")
            if len(unfinished) >= self._limits.reconstructions + self._limits.waiting_reconstructions:
                raise busy(30)
            self._make(output)
            number = f"{len(self._jobs) + 1}-{os.urandom(4).hex()}"
            job = self._jobs[number] = Job(number, photos, method, request)
            self._forget_old()
        threading.Thread(target=self._run, args=(job,), name=f"reconstruction {number}", daemon=True).start()
        return self.job(number)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, the latest first."""
        with self._lock:
            return [self._json(job) for job in reversed(self._jobs.values())]

    def job(self, number: str) -> dict[str, Any]:
        """One job."""
        with self._lock:
            return self._json(self._find(number))

    def cancel(self, number: str) -> dict[str, Any]:
        """Stop a job; what is finished stays, so that starting it again goes on there."""
        with self._lock:
            job = self._find(number)
            if job.state in ("waiting", "running"):
                job.state = "cancelled"
                job.seconds = time.time() - job.started
            process = job.process
        if process is not None:
            end(process)
        return self.job(number)

    def close(self) -> None:
        """Stop everything."""
        self._closed = True
        with self._lock:
            numbers = list(self._jobs)
        for number in numbers:
            self.cancel(number)

    def _make(self, output: Path) -> None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(
                422,
                f"cannot write to the folder of reconstructions: {error.strerror}; start posfeat serve with -o FOLDER",
            ) from None
        self._roots.add(self._output)

    def _find(self, number: str) -> Job:
        if number not in self._jobs:
            raise not_found("there is no such reconstruction")
        return self._jobs[number]

    def _forget_old(self) -> None:
        finished = [number for number, job in self._jobs.items() if job.state not in ("waiting", "running")]
        for number in finished[: max(0, len(self._jobs) - MOST_REMEMBERED)]:
            del self._jobs[number]

    def _run(self, job: Job) -> None:
        with self._turns:
            with self._lock:
                if job.state != "waiting" or self._closed:
                    return
                job.process, job.state, job.started = start_process(job.request), "running", time.time()
                process = job.process
            assert process.stdout is not None
            with process, process.stdout as lines:
                for line in lines:
                    self._hear(job, line)
            with self._lock:
                self._conclude(job, process.returncode)

    def _hear(self, job: Job, line: str) -> None:
        """Take in a line of the process."""
        try:
            told = json.loads(line)
        except ValueError:
            return  # a library's own words
        if not isinstance(told, dict):
            return
        with self._lock:
            if "step" in told:
                job.step, job.done, job.total = told["step"], told["done"], told["total"]
            elif "line" in told:
                job.lines = [*job.lines, self._roots.hidden(told["line"])][-MOST_LINES:]
            elif "error" in told:
                job.error = self._roots.hidden(told["error"])
            elif "summary" in told:
                job.summary = told["summary"]

    def _conclude(self, job: Job, code: int) -> None:
        job.seconds = time.time() - job.started
        job.process = None
        if job.state == "cancelled":
            return
        job.state = "done" if code == 0 and job.summary is not None else "failed"
        if job.state == "done":
            job.scene = self._roots.reference(Path(job.request.output) / "sparse" / "0")
        elif not job.error:
            job.error = f"the process ended with code {code}; its last words are in the server's log"

    def _json(self, job: Job) -> dict[str, Any]:
        hidden = {"request", "process", "number"}
        shown = {key: value for key, value in vars(job).items() if key not in hidden}
        seconds = time.time() - job.started if job.state == "running" else job.seconds
        settings = {k: v for k, v in asdict(job.request).items() if k in ("max_keypoints", "pairs", "share_camera")}
        return {"job": job.number, **shown, "lines": list(job.lines), "seconds": round(seconds, 1), **settings}


def start_process(request: JobRequest) -> subprocess.Popen[str]:
    """A process, and whatever it starts, in a group of its own."""
    command = [sys.executable, "-m", "posfeat.page.reconstruction_job", json.dumps(asdict(request))]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
    )


def end(process: subprocess.Popen[str], grace_seconds: float = GRACE_SECONDS) -> None:
    """End a process and its group, first politely."""
    signal_group: Callable[[int], None] = (
        (lambda number: os.killpg(process.pid, number)) if hasattr(os, "killpg") else process.send_signal
    )
    try:
        signal_group(signal.SIGTERM)
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            signal_group(getattr(signal, "SIGKILL", signal.SIGTERM))
    except (ProcessLookupError, PermissionError):  # it has ended by itself
        pass


def folder_name(*parts: str) -> str:
    """A name for what is made of these, the same each time, so that starting again goes on."""
    return re.sub(r"[^\w.-]+", "-", "-".join(parts), flags=re.ASCII).strip("-.")[:150]
