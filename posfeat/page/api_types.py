"""What clients may ask and what they are answered: the types that the OpenAPI document is made from."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field

from posfeat.page.analysis import MOST_KEYPOINTS

PhotoReference = Annotated[
    str,
    Field(min_length=1, max_length=1024, description="what POST /api/photos answered, or root/path of a photo"),
]

# rows of numbers; arrays of mixed kinds cannot be said so that every generator of clients understands it
Row2 = Annotated[list[float], Field(min_length=2, max_length=2)]
Row3 = Annotated[list[float], Field(min_length=3, max_length=3)]
Row4 = Annotated[list[float], Field(min_length=4, max_length=4)]
Row5 = Annotated[list[float], Field(min_length=5, max_length=5)]


class Asked(BaseModel):
    """A request: an unknown or misspelt field is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Look(Asked):
    """How a photo is looked at."""

    method: str = Field("", max_length=100, description="one of those of /api/status; empty: the first of them")
    longest_px: int = Field(
        1600, ge=64, le=8192, description="larger photos are shrunk to this before the network sees them"
    )


class ExtractSettings(Look):
    """Which keypoints are wanted."""

    max_keypoints: int = Field(2048, ge=1, le=MOST_KEYPOINTS, description="the most keypoints of a photo")
    min_score: float = Field(0, ge=0, le=1e9, description="a keypoint's score is at least this")


class MatchSettings(ExtractSettings):
    """Which matches are wanted, and what geometry they are held against."""

    ratio: float = Field(1, gt=0, le=1, description="largest distance ratio of nearest to second nearest; 1: any")
    min_similarity: float = Field(-1, ge=-1, le=1, description="smallest cosine of two descriptors; -1: any")
    geometry: Literal["fundamental", "homography"] = Field("fundamental", description="what true matches agree on")
    threshold_px: float = Field(1.5, ge=0.1, le=100, description="how far off a match may be and still agree")


class PairQuery(MatchSettings):
    """Two photos."""

    photo0: PhotoReference
    photo1: PhotoReference


class KeypointQuery(PairQuery):
    """One keypoint of two photos."""

    side: int = Field(0, ge=0, le=1, description="the photo of the keypoint")
    keypoint: int = Field(ge=0, lt=MOST_KEYPOINTS, description="its number, best score first")


class ExportQuery(PairQuery):
    """Matches as a file."""

    format: Literal["json", "csv", "png"] = "json"


class FeaturesQuery(Look):
    """One photo's keypoints."""

    photo: PhotoReference


class PreviewQuery(Asked):
    """One photo to look at."""

    photo: PhotoReference
    longest_px: int = Field(1600, ge=16, le=4096)


class OverlayQuery(Look):
    """A picture to lay over a photo; the colours of descriptors are those of a pair where ``other`` is given."""

    photo: PhotoReference
    kind: Literal["scores", "descriptors"] = "scores"
    other: str = Field("", max_length=1024, description="the other photo of the pair")


class PhotoForm(Asked):
    """A photo."""

    image: UploadFile


class ExtractForm(ExtractSettings):
    """A photo and what is wanted of it."""

    image: UploadFile
    descriptors: bool = Field(False, description="answer descriptors too: base64 of little-endian float32, row by row")


class MatchForm(MatchSettings):
    """Two photos and what is wanted of them."""

    image0: UploadFile
    image1: UploadFile


class Problem(BaseModel):
    """Why a request was not granted, in one line."""

    detail: str


class PhotoAnswer(BaseModel):
    """A photo that the server keeps for a while."""

    photo: str
    name: str
    width: int
    height: int


class FeaturesAnswer(BaseModel):
    """Keypoints in the photo's own pixels, the best score first; the centre of the top-left pixel is (0, 0)."""

    width: int
    height: int
    keypoints: list[Row2]
    scores: list[float]


class ExtractAnswer(FeaturesAnswer):
    """Keypoints, and descriptors if they were asked for."""

    descriptors: str | None = None
    dim: int


class GeometryAnswer(BaseModel):
    """What most matches agree on: F with x1^T F x0 = 0, or H from image 0 to image 1, of unit norm; null if they don't."""

    kind: Literal["fundamental", "homography"]
    matrix: list[list[float]] | None
    num_inliers: int


class PairAnswer(BaseModel):
    """Matches by the numbers of their keypoints, rows of (keypoint in 0, keypoint in 1, score), best first."""

    num_keypoints: Row2
    matches: list[Row3]
    verified: list[bool]
    geometry: GeometryAnswer


class MatchAnswer(BaseModel):
    """Matches by their positions, rows of (x0, y0, x1, y1, score), best first."""

    images: list[FeatureCount]
    matches: list[Row5]
    verified: list[bool]
    geometry: GeometryAnswer


class FeatureCount(BaseModel):
    """A photo's size and how many keypoints were used."""

    width: int
    height: int
    keypoints: int


class KeypointAnswer(BaseModel):
    """A keypoint and those of the other photo that are most like it: rows of (number, x, y, similarity)."""

    x: float
    y: float
    score: float
    candidates: list[Row4]


class MethodAnswer(BaseModel):
    """Somebody's features."""

    name: str
    title: str
    has_maps: bool
    note: str


class LimitsAnswer(BaseModel):
    """What requests may hold."""

    upload_mb: float
    megapixels: float
    max_keypoints: int


class StatusAnswer(BaseModel):
    """What this server is and has."""

    version: str
    methods: list[MethodAnswer]
    limits: LimitsAnswer
    roots: list[str]
    waiting: int
