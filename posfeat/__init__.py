"""Local features learnt from camera poses alone: load a model, extract keypoints and descriptors, match photos.

    import posfeat

    model = posfeat.load()
    features0 = model.extract("a.jpg")
    features1 = model.extract("b.jpg")
    matches = posfeat.match(features0, features1)

The names below are imported when they are first used, so that ``import posfeat`` costs nothing by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posfeat.adapt.options import AdaptOptions
    from posfeat.adapt.run import Adapted, adapt_to
    from posfeat.matching import MatchOptions, match
    from posfeat.networks.checkpoint import load
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.networks.keypoint_selection import SelectionOptions
    from posfeat.networks.posfeat import PoSFeat
    from posfeat.networks.shipped import extract
    from posfeat.pipeline.localize import Localization, Localizer
    from posfeat.types import (
        CheckpointError,
        DataError,
        DenseFeatures,
        Features,
        ImageError,
        Matches,
        MissingExtraError,
        OptionsError,
        PosfeatError,
        ReconstructionError,
        StoreError,
    )

__version__ = "0.1.0"

__all__ = [
    "AdaptOptions",
    "Adapted",
    "CheckpointError",
    "DataError",
    "DenseFeatures",
    "ExtractionOptions",
    "Features",
    "ImageError",
    "Localization",
    "Localizer",
    "MatchOptions",
    "Matches",
    "MissingExtraError",
    "OptionsError",
    "PoSFeat",
    "PosfeatError",
    "ReconstructionError",
    "SelectionOptions",
    "StoreError",
    "__version__",
    "adapt_to",
    "extract",
    "load",
    "match",
]

_HOME = {
    "adapt_to": "posfeat.adapt.run",
    "Adapted": "posfeat.adapt.run",
    "AdaptOptions": "posfeat.adapt.options",
    "extract": "posfeat.networks.shipped",
    "ExtractionOptions": "posfeat.networks.extraction",
    "load": "posfeat.networks.checkpoint",
    "Localization": "posfeat.pipeline.localize",
    "Localizer": "posfeat.pipeline.localize",
    "match": "posfeat.matching",
    "MatchOptions": "posfeat.matching",
    "PoSFeat": "posfeat.networks.posfeat",
    "SelectionOptions": "posfeat.networks.keypoint_selection",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'posfeat' has no attribute {name!r}")
    return vars(importlib.import_module(_HOME.get(name, "posfeat.types")))[name]


def __dir__() -> list[str]:
    return sorted(__all__)
