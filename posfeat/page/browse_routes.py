"""What lies in the roots: folders and photos to choose from, and training runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field

from posfeat.data.colmap import is_colmap_model
from posfeat.data.images import IMAGE_SUFFIXES
from posfeat.page import run_files
from posfeat.page.api_types import Asked, Row2
from posfeat.page.limits import not_found
from posfeat.page.roots import Roots, subfolders
from posfeat.page.services import Services

MOST_NAMES = 2000
PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {}, "image/png": {}}, "description": "a picture"}
}


class FolderQuery(Asked):
    """A folder in the roots; empty for the roots themselves."""

    path: str = Field("", max_length=1024)


class RunQuery(Asked):
    """A training run."""

    path: str = Field(min_length=1, max_length=1024)


class PictureQuery(RunQuery):
    """A validation picture of a run."""

    name: str = Field(pattern=r"^[\w.-]{1,100}$", description="file name, as /api/run lists it")


class FolderAnswer(BaseModel):
    """Names in a folder, at most 2000 of each kind; paths are path/name."""

    path: str
    folders: list[str]
    photos: list[str]
    is_model: bool
    is_run: bool


class RunSummary(BaseModel):
    """How far a run is."""

    path: str
    step: int
    updated: float
    validation: dict[str, float]


class RunAnswer(BaseModel):
    """Curves as rows of (step, value), pictures as rows of (step, file name), and what the run was asked."""

    path: str
    updated: float
    curves: dict[str, dict[str, list[Row2]]]
    pictures: dict[str, list[Annotated[list[int | str], Field(min_length=2, max_length=2)]]]
    texts: dict[str, str]


class BrowseRoutes:
    """Functions that answer requests about the roots."""

    def __init__(self, services: Services) -> None:
        self._all = services

    def router(self) -> APIRouter:
        """Where each function is found."""
        router = APIRouter(tags=["folders and training runs"])
        router.add_api_route("/api/folder", self.folder, response_model=FolderAnswer)
        router.add_api_route("/api/runs", self.runs, response_model=list[RunSummary])
        router.add_api_route("/api/run", self.run, response_model=RunAnswer)
        router.add_api_route("/api/run/picture", self.picture, response_class=Response, responses=PICTURE)
        return router

    async def folder(self, request: Request, query: Annotated[FolderQuery, Query()]) -> JSONResponse:
        """What a folder holds."""
        if not query.path:
            answer = {"path": "", "folders": self._all.roots.names(), "photos": [], "is_model": False, "is_run": False}
            return JSONResponse(answer)
        path = self._folder(query.path)
        return JSONResponse(
            await self._all.reading.run(lambda: listing(query.path, path, self._all.roots), request.is_disconnected)
        )

    async def runs(self, request: Request) -> JSONResponse:
        """All training runs below the roots, the latest first."""

        def job() -> list[dict[str, Any]]:
            runs = self._all.roots.find(
                lambda path: run_files.is_run(path) and self._all.roots.holds(path / run_files.LOG)
            )
            found = [{"path": name} | run_files.summary(path) for name, path in runs]
            return sorted(found, key=lambda run: -run["updated"])

        return JSONResponse(await self._all.reading.run(job, request.is_disconnected))

    async def run(self, request: Request, query: Annotated[RunQuery, Query()]) -> JSONResponse:
        """A run's curves, pictures and options."""
        path = self._run(query.path)

        def job() -> dict[str, Any]:
            return {
                "path": query.path,
                "updated": (path / run_files.LOG).stat().st_mtime,
                "curves": run_files.curves(path),
                "pictures": run_files.pictures(path),
                "texts": run_files.texts(path),
            }

        return JSONResponse(await self._all.reading.run(job, request.is_disconnected))

    async def picture(self, query: Annotated[PictureQuery, Query()]) -> Response:
        """A validation picture."""
        path = self._run(query.path) / run_files.PICTURES / query.name
        listed = {name for rows in run_files.pictures(path.parents[1]).values() for _, name in rows}
        if query.name not in listed or path.is_symlink():
            raise not_found(f"the run has no picture {query.name}")
        kind = "image/png" if path.suffix == ".png" else "image/jpeg"
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "private, max-age=600"})

    def _folder(self, reference: str) -> Path:
        path = self._all.roots.resolve(reference)
        if not path.is_dir():
            raise not_found("that is no folder")
        return path

    def _run(self, reference: str) -> Path:
        path = self._folder(reference)
        if not run_files.is_run(path):
            raise not_found("that folder holds no training run: it has no metrics.jsonl")
        self._all.roots.require(path / name for name in (*run_files.FILES, run_files.PICTURES))
        return path


def listing(reference: str, folder: Path, roots: Roots) -> dict[str, Any]:
    """Names of what a folder holds, without photos that are links to elsewhere."""
    with os.scandir(folder) as entries:
        there = [entry for entry in entries if not entry.name.startswith(".")]
    photos = [
        entry.name
        for entry in there
        if Path(entry.name).suffix.lower() in IMAGE_SUFFIXES
        and (not entry.is_symlink() or roots.reference(Path(entry.path)) is not None)
    ]
    return {
        "path": reference,
        "folders": sorted(subfolders(folder))[:MOST_NAMES],
        "photos": sorted(photos)[:MOST_NAMES],
        "is_model": is_colmap_model(folder),
        "is_run": run_files.is_run(folder),
    }
