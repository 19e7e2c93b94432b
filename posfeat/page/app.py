"""The application: pages, the interface behind them, and one line for whatever goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from posfeat import __version__
from posfeat.page.api_types import Problem
from posfeat.page.browse_routes import BrowseRoutes
from posfeat.page.guard import Access, Guard, refused
from posfeat.page.limits import RefusedError, not_found
from posfeat.page.match_routes import MatchRoutes
from posfeat.page.reconstruction_routes import ReconstructionRoutes
from posfeat.page.scene_routes import SceneRoutes
from posfeat.page.services import Services
from posfeat.types import PosfeatError

STATIC = Path(__file__).with_name("static")
VIEWER = Path(__file__).parents[1] / "pipeline" / "scene_viewer.js"
MOVED = {"/openapi.json": "/api/openapi.json", "/docs": "/api"}  # where tools and people look first
PAGES = {"/": "match.html", "/model": "model.html", "/training": "training.html", "/api": "api.html"}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "the request cannot be read",
        401: "the token is missing",
        403: "outside the folders that were given, or asked for by another site's page",
        404: "it is not here, or not any more",
        408: "the body came too slowly",
        413: "the body is too large",
        422: "what is asked for cannot be given; the line says why",
        429: "too many requests: see Retry-After",
        503: "busy: see Retry-After",
    }.items()
}
_log = logging.getLogger("posfeat.page")


def build_app(services: Services, access: Access) -> Guard:
    """The whole server, guarded."""
    app = FastAPI(
        title="PoSFeat",
        version=__version__,
        description="Keypoints, matches, maps and poses of photos. Positions are (x, y) in the photo's own pixels; the "
        "centre of the top-left pixel is (0, 0) and an EXIF orientation is ignored. A server that other machines can "
        "reach asks for the header Authorization: Bearer TOKEN. Busy servers answer 503 or 429 with Retry-After.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
    )
    for routes in (MatchRoutes, SceneRoutes, ReconstructionRoutes, BrowseRoutes):
        app.include_router(routes(services).router())
    add_static(app)
    app.add_exception_handler(RefusedError, answer_refused)
    app.add_exception_handler(PosfeatError, answer_error)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(Exception, answer_mistake)
    return Guard(app, access, services.limits)


def add_static(app: FastAPI) -> None:
    """Pages and what they are made of, straight from the package."""
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES} | {VIEWER.name: VIEWER}

    async def page(request: Request) -> Response:
        """A page."""
        return _file(STATIC / PAGES[request.url.path])

    async def asset(name: str) -> Response:
        """A part of a page."""
        if name not in files:
            raise not_found("there is no such file")
        return _file(files[name])

    async def moved(request: Request) -> Response:
        """What is found elsewhere."""
        return RedirectResponse(MOVED[request.url.path])

    for path in PAGES:
        app.add_api_route(path, page, include_in_schema=False)
    for path in MOVED:
        app.add_api_route(path, moved, include_in_schema=False)
    app.add_api_route("/static/{name}", asset, include_in_schema=False)


def _file(path: Path) -> Response:
    # browsers ask for the icon again with every change of the address
    caching = "private, max-age=3600" if path.suffix == ".svg" else "no-cache"
    return FileResponse(path, media_type=TYPES[path.suffix], headers={"Cache-Control": caching})


async def answer_refused(_: Request, error: Exception) -> Response:
    """What this server cannot grant, or not now."""
    assert isinstance(error, RefusedError)
    return refused(error)


async def answer_error(_: Request, error: Exception) -> Response:
    """What a person can put right."""
    return JSONResponse({"detail": " ".join(str(error).split())}, status_code=422)


async def answer_invalid(_: Request, error: Exception) -> Response:
    """A field that is missing, unknown or out of range."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(str(part) for part in e['loc'][1:]) or 'body'}: {said(e['msg'])}" for e in error.errors()[:5]]
    return JSONResponse({"detail": printable("; ".join(lines))[:1000]}, status_code=422)


def said(message: str) -> str:
    """A mistake in words that people understand who don't know the framework."""
    return "a file is wanted (curl: -F name=@photo.jpg)" if "Expected UploadFile" in message else message


async def answer_http(_: Request, error: Exception) -> Response:
    """What the framework refuses: an unknown path, a method that does not fit, a body that cannot be parsed."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": printable(str(error.detail))}, status_code=error.status_code, headers=error.headers)


async def answer_mistake(request: Request, error: Exception) -> Response:
    """Our own mistake: the log has the traceback, the client has one line."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
        return JSONResponse({"detail": "the photo does not fit into memory; send a smaller one"}, status_code=422)
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "the server made a mistake; its log says more"}, status_code=500)


def printable(text: str) -> str:
    """A text that can stand in one line."""
    return "".join(c if c.isprintable() else " " for c in text)
