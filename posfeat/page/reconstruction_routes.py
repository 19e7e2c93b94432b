"""Start, watch and stop reconstructions of folders in the roots."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from posfeat.page.analysis import MOST_KEYPOINTS
from posfeat.page.api_types import Asked
from posfeat.page.reconstructions import State
from posfeat.page.services import Services

JobNumber = Annotated[str, InPath(pattern=r"^[0-9a-f-]{1,40}$", description="as it was answered when it was started")]


class ReconstructionAsked(Asked):
    """A folder of photos in the roots, and how it is reconstructed."""

    photos: str = Field(min_length=1, max_length=1024)
    method: str = Field("", max_length=100, description="one of those of /api/status; empty: the first of them")
    max_keypoints: int = Field(4096, ge=64, le=4 * MOST_KEYPOINTS)
    pairs: Literal["auto", "exhaustive", "sequential", "retrieval"] = "auto"
    share_camera: Literal["auto", "single", "folder", "image"] = "auto"


class JobAnswer(BaseModel):
    """A reconstruction: its state, the step it is at, and at the end its model (``scene``) and what came of it."""

    job: str
    photos: str
    method: str
    state: State
    step: str
    done: int
    total: int
    lines: list[str]
    error: str
    summary: dict[str, Any] | None
    scene: str | None
    started: float
    seconds: float
    max_keypoints: int
    pairs: str
    share_camera: str


class ReconstructionRoutes:
    """Functions that answer requests about reconstructions."""

    def __init__(self, services: Services) -> None:
        self._all = services

    def router(self) -> APIRouter:
        """Where each function is found."""
        router = APIRouter(tags=["reconstructions"])
        path = "/api/reconstructions"
        router.add_api_route(path, self.start, methods=["POST"], response_model=JobAnswer)
        router.add_api_route(path, self.list_jobs, response_model=list[JobAnswer])
        router.add_api_route(f"{path}/{{job}}", self.job, response_model=JobAnswer)
        router.add_api_route(f"{path}/{{job}}", self.cancel, methods=["DELETE"], response_model=JobAnswer)
        return router

    async def start(self, asked: ReconstructionAsked, request: Request) -> JSONResponse:
        """Start a reconstruction, or go on with one that was stopped."""
        start = functools.partial(
            self._all.reconstructions.start,
            *(asked.photos, asked.method, asked.max_keypoints, asked.pairs, asked.share_camera),
        )
        return JSONResponse(await self._all.reading.run(start, request.is_disconnected))

    async def list_jobs(self) -> JSONResponse:
        """All reconstructions since the server was started."""
        return JSONResponse(self._all.reconstructions.jobs())

    async def job(self, job: JobNumber) -> JSONResponse:
        """How far a reconstruction is."""
        return JSONResponse(self._all.reconstructions.job(job))

    async def cancel(self, job: JobNumber, request: Request) -> JSONResponse:
        """Stop a reconstruction."""
        cancel = lambda: self._all.reconstructions.cancel(job)  # noqa: E731
        return JSONResponse(await self._all.reading.run(cancel, request.is_disconnected))
