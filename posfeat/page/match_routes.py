"""The match page's part of the interface, and the one that robots use: photos in, keypoints and matches out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import JSONResponse

from posfeat import __version__
from posfeat.data.images import encode_image
from posfeat.page import api_types as api
from posfeat.page import overlays, pairs
from posfeat.page.analysis import MOST_KEYPOINTS, Looked, extract_scaled, first
from posfeat.page.compute_queue import ComputeQueue
from posfeat.page.limits import RefusedError
from posfeat.page.photos import safe_name
from posfeat.page.services import Services
from posfeat.types import Features

Result = TypeVar("Result")

JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "a JPEG"}}
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/csv": {}, "image/png": {}}, "description": "a file to keep"}
}
FORMATS = {"json": "application/json", "csv": "text/csv; charset=utf-8", "png": "image/png"}


class MatchRoutes:
    """Functions that answer requests about photos and pairs."""

    def __init__(self, services: Services) -> None:
        self._all = services

    def router(self) -> APIRouter:
        """Where each function is found."""
        router = APIRouter(tags=["photos and matches"])
        add = router.add_api_route
        add("/api/status", self.status, response_model=api.StatusAnswer)
        add("/api/extract", self.extract, methods=["POST"], response_model=api.ExtractAnswer)
        add("/api/match", self.match, methods=["POST"], response_model=api.MatchAnswer)
        add("/api/photos", self.add_photo, methods=["POST"], response_model=api.PhotoAnswer)
        add("/api/photo/preview", self.preview, response_class=Response, responses=JPEG)
        add("/api/photo/features", self.features, response_model=api.FeaturesAnswer)
        add("/api/photo/overlay", self.overlay, response_class=Response, responses=JPEG)
        add("/api/pair", self.pair, response_model=api.PairAnswer)
        add("/api/pair/keypoint", self.keypoint, response_model=api.KeypointAnswer)
        add("/api/pair/similarity", self.similarity, response_class=Response, responses=JPEG)
        add("/api/pair/export", self.export, response_class=Response, responses=FILE)
        return router

    async def status(self) -> JSONResponse:
        """What this server is and has."""
        limits = self._all.limits
        return JSONResponse(
            {
                "version": __version__,
                "methods": [vars(card) for card in self._all.methods.cards()],
                "limits": {
                    "upload_mb": limits.upload_mb,
                    "megapixels": limits.megapixels,
                    "max_keypoints": MOST_KEYPOINTS,
                },
                "roots": self._all.roots.names(),
                "waiting": self._all.network.unfinished,
            }
        )

    async def extract(
        self, request: Request, form: Annotated[api.ExtractForm, Form(media_type="multipart/form-data")]
    ) -> JSONResponse:
        """Keypoints of a photo, and their descriptors if they are asked for."""
        method = self._all.methods.check(form.method)

        def job() -> dict[str, Any]:
            features = self._extracted(form.image, method, form)
            answer = features_json(features) | {"dim": features.descriptors.shape[1], "descriptors": None}
            if form.descriptors:
                answer["descriptors"] = base64.b64encode(features.descriptors.numpy().astype("<f4").tobytes()).decode()
            return answer

        return JSONResponse(await self._in(self._all.network, request, job))

    async def match(
        self, request: Request, form: Annotated[api.MatchForm, Form(media_type="multipart/form-data")]
    ) -> JSONResponse:
        """Matches of two photos: rows x0, y0, x1, y1, score, the best first."""
        method = self._all.methods.check(form.method)

        def job() -> dict[str, Any]:
            both = [self._extracted(upload, method, form) for upload in (form.image0, form.image1)]
            matched = pairs.match_pair(both[0], both[1], form)
            return {
                "images": [{"width": f.image_size[0], "height": f.image_size[1], "keypoints": len(f)} for f in both],
                "matches": pairs.as_rows(matched),
                "verified": pairs.verified_json(matched.geometry),
                "geometry": pairs.geometry_json(matched.geometry),
            }

        return JSONResponse(await self._in(self._all.network, request, job))

    async def add_photo(
        self, request: Request, form: Annotated[api.PhotoForm, Form(media_type="multipart/form-data")]
    ) -> JSONResponse:
        """Keep a photo for a while, to ask about it by what is answered here."""
        name = safe_name(form.image.filename)
        photo = await self._in(self._all.reading, request, lambda: self._all.photos.add(form.image.file.read(), name))
        return JSONResponse(
            {"photo": photo.reference, "name": photo.name, "width": photo.width, "height": photo.height}
        )

    async def preview(self, request: Request, query: Annotated[api.PreviewQuery, Query()]) -> Response:
        """The photo as a JPEG, its pixels as they are stored: an EXIF orientation is ignored."""
        job = lambda: self._all.photos.preview(query.photo, query.longest_px)  # noqa: E731
        content, width, height = await self._in(self._all.reading, request, job)
        return picture(content, {"X-Photo-Width": str(width), "X-Photo-Height": str(height)})

    async def features(self, request: Request, query: Annotated[api.FeaturesQuery, Query()]) -> JSONResponse:
        """All keypoints of a photo that the sliders may show."""
        looked = self._looked(query.photo, query)
        return JSONResponse(features_json(await self._features(request, looked)))

    async def overlay(self, request: Request, query: Annotated[api.OverlayQuery, Query()]) -> Response:
        """The detector's scores, or the descriptors as colours, over the whole photo."""
        looked = [self._looked(photo, query) for photo in (query.photo, query.other) if photo]

        def job() -> bytes:
            maps = [self._all.analysis.maps(one).maps for one in looked]
            if query.kind == "scores":
                return jpeg(overlays.score_overlay(maps[0]))
            return jpeg(overlays.descriptor_overlay(maps[0], maps[1] if len(maps) > 1 else None))

        return picture(await self._in(self._all.network, request, job))

    async def pair(self, request: Request, query: Annotated[api.PairQuery, Query()]) -> JSONResponse:
        """Matches of two photos by the numbers of their keypoints; after the first time no network runs."""
        features0, features1 = await self._both(request, query)

        def job() -> dict[str, Any]:
            matched = pairs.match_pair(features0, features1, query)
            return {
                "num_keypoints": [len(matched.features0), len(matched.features1)],
                "matches": pairs.as_indices(matched),
                "verified": pairs.verified_json(matched.geometry),
                "geometry": pairs.geometry_json(matched.geometry),
            }

        return JSONResponse(await self._in(self._all.matching, request, job))

    async def keypoint(self, request: Request, query: Annotated[api.KeypointQuery, Query()]) -> JSONResponse:
        """The keypoints of the other photo that are most like one."""
        mine, other = await self._sides(request, query)
        x, y = pairs.rounded(mine.keypoints[query.keypoint].numpy(), 3)
        found = await self._in(self._all.matching, request, lambda: pairs.candidates(mine, other, query.keypoint))
        return JSONResponse({"x": x, "y": y, "score": float(mine.scores[query.keypoint]), "candidates": found})

    async def similarity(self, request: Request, query: Annotated[api.KeypointQuery, Query()]) -> Response:
        """How alike each place of the other photo is to a keypoint."""
        mine, _ = await self._sides(request, query)
        looked = self._looked(query.photo1 if query.side == 0 else query.photo0, query)
        known = self._all.analysis.known_maps(looked)
        descriptor = mine.descriptors[query.keypoint]
        job = lambda: jpeg(overlays.similarity_overlay(self._all.analysis.maps(looked).maps, descriptor))  # noqa: E731
        return picture(await self._in(self._all.matching if known else self._all.network, request, job))

    async def export(self, request: Request, query: Annotated[api.ExportQuery, Query()]) -> Response:
        """Matches as a file: JSON, CSV or a picture."""
        features0, features1 = await self._both(request, query)

        def job() -> bytes:
            matched = pairs.match_pair(features0, features1, query)
            photos, references = self._all.photos, (query.photo0, query.photo1)
            if query.format == "png":
                return pairs.export_picture(matched, *map(photos.pixels, references))
            if query.format == "csv":
                return pairs.export_csv(matched)
            return pairs.export_json(matched, [photos.name(reference) for reference in references])

        content = await self._in(self._all.matching, request, job)
        named = {"Content-Disposition": f'attachment; filename="matches.{query.format}"'}
        return Response(content, media_type=FORMATS[query.format], headers=named)

    # ---- what they share ---------------------------------------------------------------------------------------------

    def _extracted(self, upload: Any, method: str, settings: api.ExtractSettings) -> Features:
        """Features of a sent photo; it is read when its turn has come, so that waiting ones take no memory."""
        rgb = self._all.photos.decode(upload.file.read(), safe_name(upload.filename))
        features = extract_scaled(self._all.methods, method, rgb, settings.longest_px, settings.max_keypoints)
        return first(features, settings.max_keypoints, settings.min_score)

    def _looked(self, photo: str, look: api.Look) -> Looked:
        return Looked(photo, self._all.methods.check(look.method), look.longest_px)

    async def _features(self, request: Request, looked: Looked) -> Features:
        known = self._all.analysis.known_features(looked)
        if known is not None:
            return known
        return await self._in(self._all.network, request, lambda: self._all.analysis.features(looked))

    async def _both(self, request: Request, query: api.PairQuery) -> tuple[Features, Features]:
        features0 = await self._features(request, self._looked(query.photo0, query))
        return features0, await self._features(request, self._looked(query.photo1, query))

    async def _sides(self, request: Request, query: api.KeypointQuery) -> tuple[Features, Features]:
        """The features of the keypoint's photo and those of the other one, as many as the settings allow."""
        both = [first(f, query.max_keypoints, query.min_score) for f in await self._both(request, query)]
        mine, other = both if query.side == 0 else both[::-1]
        if query.keypoint >= len(mine):
            raise RefusedError(422, f"there is no keypoint {query.keypoint}: the photo has {len(mine)} of them")
        return mine, other

    async def _in(self, queue: ComputeQueue, request: Request, job: Callable[[], Result]) -> Result:
        return await queue.run(job, request.is_disconnected)


def features_json(features: Features) -> dict[str, Any]:
    """Keypoints for a client."""
    width, height = features.image_size
    return {
        "width": width,
        "height": height,
        "keypoints": pairs.rounded(features.keypoints.numpy(), 3),
        "scores": [float(f"{score:.5g}") for score in features.scores.tolist()],
    }


def jpeg(rgb: Any) -> bytes:
    """The bytes of a JPEG."""
    return encode_image(rgb, ".jpg")


def picture(content: bytes, more: dict[str, str] | None = None) -> Response:
    """A JPEG that the client may keep for a while."""
    headers = {"Cache-Control": "private, max-age=600"} | (more or {})
    return Response(content, media_type="image/jpeg", headers=headers)
