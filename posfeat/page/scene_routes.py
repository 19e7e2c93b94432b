"""The model page's part of the interface: models to look at, and photos to find in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from posfeat.page.api_types import Asked, Row2, Row3
from posfeat.page.limits import RefusedError, not_found
from posfeat.page.localizers import Localizers, known_camera, localization_json
from posfeat.page.photos import safe_name
from posfeat.page.roots import Roots
from posfeat.page.scene_files import MODEL_FILES, Scene, camera_json, counts, is_scene, read_scene, version_of
from posfeat.page.services import Services
from posfeat.pipeline.localization_map import find_features
from posfeat.types import PosfeatError

ScenePath = Annotated[
    str, Field(min_length=1, max_length=1024, description="a model's folder, as /api/scenes lists it")
]
BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/octet-stream": {}},
        "description": "little-endian float32 x, y, z of every point, then red, green, blue of every point in a byte each",
    }
}


class SceneQuery(Asked):
    """A model."""

    path: ScenePath


class SceneCameraQuery(SceneQuery):
    """A camera of a model, by its row."""

    camera: int = Field(ge=0, le=10**9)


class ScenePointQuery(SceneQuery):
    """A point of a model, by its row."""

    point: int = Field(ge=0, le=10**9)


class LocalizeForm(Asked):
    """A photo, the model to find it in, and what is known of its camera."""

    image: UploadFile
    scene: str = Field(
        "",
        max_length=1024,
        description="a model's folder, as /api/scenes lists it; empty: the only one that photos can be found in",
    )
    intrinsics: str = Field(
        "",
        pattern=r"^$|^\d{1,6}(\.\d{0,9})?(,-?\d{1,6}(\.\d{0,9})?){3}$",
        description="fx,fy,cx,cy of an undistorted photo in its pixels, where they are known",
    )


class SceneSummary(BaseModel):
    """A model that was found."""

    path: str
    images: int | None
    points: int | None


class CameraAnswer(BaseModel):
    """A camera; ``world_from_cam`` is a 4x4 matrix row by row, ``tan_x`` half the picture's width at distance 1."""

    name: str
    num_points: int
    photo: str | None
    width: int
    height: int
    world_from_cam: list[float]
    tan_x: float
    tan_y: float


class SceneAnswer(BaseModel):
    """A model; of its points those that most photos see are shown."""

    path: str
    cameras: list[CameraAnswer]
    num_points: int
    total_points: int
    can_localize: bool


class SeenAnswer(BaseModel):
    """Rows of (point, x, y) of what a camera sees."""

    points: list[Row3]


class TrackAnswer(BaseModel):
    """A point, and rows of (camera, x, y) of those that see it."""

    xyz: Row3
    track: list[Row3]


class LocalizeAnswer(BaseModel):
    """Where a photo was taken: ``cam_from_world`` is a 4x4 matrix row by row, ``centre`` the camera's place.

    ``keypoints`` support the pose; ``centre_deviation`` is the standard deviation of the centre in the model's unit.
    """

    cam_from_world: list[float]
    world_from_cam: list[float]
    centre: Row3
    width: int
    height: int
    tan_x: float
    tan_y: float
    focal_px: float
    num_inliers: int
    num_matches: int
    reprojection_error_px: float
    centre_deviation: float | None
    keypoints: list[Row2]
    images: list[str]


class SceneRoutes:
    """Functions that answer requests about models."""

    def __init__(self, services: Services) -> None:
        self._all = services
        self._localizers = Localizers(services.methods)

    def router(self) -> APIRouter:
        """Where each function is found."""
        router = APIRouter(tags=["models"])
        add = router.add_api_route
        add("/api/scenes", self.scenes, response_model=list[SceneSummary])
        add("/api/scene", self.scene, response_model=SceneAnswer)
        add("/api/scene/points", self.points, response_class=Response, responses=BYTES)
        add("/api/scene/camera", self.camera, response_model=SeenAnswer)
        add("/api/scene/point", self.point, response_model=TrackAnswer)
        add("/api/localize", self.localize, methods=["POST"], response_model=LocalizeAnswer)
        return router

    async def scenes(self, request: Request) -> JSONResponse:
        """All models below the roots."""

        def job() -> list[dict[str, Any]]:
            found = []
            for path, folder in self._all.roots.find(is_scene):
                images, points = counts(folder)
                found.append({"path": path, "images": images, "points": points})
            return found

        return JSONResponse(await self._all.reading.run(job, request.is_disconnected))

    async def scene(self, request: Request, query: Annotated[SceneQuery, Query()]) -> JSONResponse:
        """A model's cameras, and what can be done with it."""
        folder, scene = await self._scene(request, query.path)
        seen = np.bincount(scene.observations.camera, minlength=len(scene.views)).tolist()
        return JSONResponse(
            {
                "path": query.path,
                "cameras": [
                    camera_json(view, count, self._all.roots, scene.photos)
                    for view, count in zip(scene.views, seen, strict=True)
                ],
                "num_points": len(scene.positions),
                "total_points": scene.total_points,
                "can_localize": has_features(folder, self._all.roots),
            }
        )

    async def points(self, request: Request, query: Annotated[SceneQuery, Query()]) -> Response:
        """A model's points."""
        _, scene = await self._scene(request, query.path)
        content = scene.positions.astype("<f4").tobytes() + scene.colours.tobytes()
        return Response(content, media_type="application/octet-stream")

    async def camera(self, request: Request, query: Annotated[SceneCameraQuery, Query()]) -> JSONResponse:
        """The points that a camera sees."""
        _, scene = await self._scene(request, query.path)
        if query.camera >= len(scene.views):
            raise not_found(f"the model has {len(scene.views)} cameras")
        return JSONResponse({"points": scene.seen_by(query.camera)})

    async def point(self, request: Request, query: Annotated[ScenePointQuery, Query()]) -> JSONResponse:
        """A point's track."""
        _, scene = await self._scene(request, query.path)
        if query.point >= len(scene.positions):
            raise not_found(f"the model has {len(scene.positions)} points")
        return JSONResponse({"xyz": scene.positions[query.point].tolist(), "track": scene.track(query.point)})

    async def localize(
        self, request: Request, form: Annotated[LocalizeForm, Form(media_type="multipart/form-data")]
    ) -> JSONResponse:
        """Where a photo was taken in a model that posfeat reconstruct made."""
        scene = form.scene or await self._all.reading.run(self._only_scene, request.is_disconnected)
        folder, name = self._folder(scene), safe_name(form.image.filename)

        def job() -> dict[str, Any]:
            self._all.roots.require([find_features(folder)])
            rgb = self._all.photos.decode(form.image.file.read(), name)
            camera = known_camera(form.intrinsics, rgb.shape[1], rgb.shape[0])
            return localization_json(self._localizers.localize(folder, rgb, camera, name))

        try:
            return JSONResponse(await self._all.network.run(job, request.is_disconnected))
        except RefusedError:
            raise
        except PosfeatError as error:
            raise RefusedError(422, self._all.roots.hidden(str(error))) from None

    def _only_scene(self) -> str:
        """The model that is meant where none is named."""
        found = [path for path, folder in self._all.roots.find(is_scene) if has_features(folder, self._all.roots)]
        if not found:
            raise not_found("no model that photos can be found in lies in the folders that were given")
        if len(found) > 1:
            raise RefusedError(422, f"scene: name one of the {len(found)} models: {', '.join(found[:10])}")
        return found[0]

    def _folder(self, reference: str) -> Path:
        folder = self._all.roots.resolve(reference)
        if not folder.is_dir() or not is_scene(folder):
            raise not_found("that folder holds no COLMAP model")
        self._all.roots.require(folder / name for name in MODEL_FILES)
        return folder

    async def _scene(self, request: Request, reference: str) -> tuple[Path, Scene]:
        folder = self._folder(reference)
        key = (folder, version_of(folder))
        scene = self._all.scenes.get(key)
        if scene is None:
            try:
                scene = await self._all.models.run(lambda: read_scene(folder, self._all.roots), request.is_disconnected)
            except RefusedError:
                raise
            except PosfeatError as error:
                raise RefusedError(422, self._all.roots.hidden(str(error))) from None
            self._all.scenes.put(key, scene, scene.num_bytes)
        return folder, scene


def has_features(model: Path, roots: Roots) -> bool:
    """Whether photos can be found in a model: its features lie beside it, in the roots."""
    try:
        return roots.holds(find_features(model))
    except PosfeatError:
        return False
