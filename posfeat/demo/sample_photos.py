"""Photos that come with scikit-image. They are read as files of the installed package, so that nothing is downloaded.

The four photos and three textures are in the public domain or CC0. The pair is Middlebury's motorcycle of 2014, with the
true disparity of its pixels.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from posfeat.data.images import RGB, read_image
from posfeat.types import DataError, MissingExtraError

PhotoName = Literal["astronaut", "coffee", "chelsea", "rocket", "brick", "grass", "gravel"]

_FILES: dict[PhotoName, str] = {
    "astronaut": "astronaut.png",
    "coffee": "coffee.png",
    "chelsea": "chelsea.png",
    "rocket": "rocket.jpg",
    "brick": "brick.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
}


@dataclass(frozen=True)
class StereoPair:
    """A rectified pair: what the left photo shows at (x, y), the right one shows at (x - disparity[y, x], y)."""

    left: Path
    right: Path
    disparity: npt.NDArray[np.float32]  # (height, width), NaN where it is not known


def sample_photo(name: PhotoName) -> RGB:
    """One of the photos."""
    return read_image(_file(_FILES[name]))


def motorcycle_pair() -> StereoPair:
    """The motorcycle."""
    with np.load(_file("motorcycle_disp.npz")) as arrays:
        disparity = arrays["arr_0"].astype(np.float32)
    disparity[~np.isfinite(disparity)] = np.nan
    return StereoPair(_file("motorcycle_left.png"), _file("motorcycle_right.png"), disparity)


def _file(name: str) -> Path:
    package = importlib.util.find_spec("skimage")
    if package is None or package.origin is None:
        raise MissingExtraError("the photos of the demo come with scikit-image: pip install 'posfeat[demo]'")
    path = Path(package.origin).parent / "data" / name
    if not path.is_file():
        raise DataError(f"the installed scikit-image has no {name} in {path.parent}; use another version of it")
    return path
