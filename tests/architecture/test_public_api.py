"""The names that people build on. A change here is a change for them: make it knowingly."""

from __future__ import annotations

import inspect

import pytest

import posfeat

NAMES = {
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
}


def test_names() -> None:
    assert set(posfeat.__all__) == NAMES
    assert dir(posfeat) == sorted(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_there(name: str) -> None:
    assert getattr(posfeat, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        posfeat.lode  # noqa: B018


@pytest.mark.parametrize(
    ("callable_", "parameters"),
    [
        (lambda: posfeat.load, ["weights", "device"]),
        (lambda: posfeat.extract, ["image", "max_keypoints", "mask", "scales", "rotations", "options"]),
        (lambda: posfeat.match, ["features0", "features1", "options", "ratio", "min_similarity"]),
        (
            lambda: posfeat.adapt_to,
            ["source", "output", "options", "weights", "masks", "generic", "device", "events"],
        ),
        (lambda: posfeat.Localizer, ["map_folder", "model", "features", "options"]),
        (lambda: posfeat.Localizer.localize, ["self", "image", "camera"]),
        (lambda: posfeat.PoSFeat.extract, ["self", "image", "max_keypoints", "mask", "scales", "rotations", "options"]),
        (lambda: posfeat.PoSFeat.describe, ["self", "image", "keypoints", "options"]),
        (lambda: posfeat.PoSFeat.dense, ["self", "image"]),
    ],
)
def test_parameters(callable_: object, parameters: list[str]) -> None:
    assert callable(callable_)
    assert list(inspect.signature(callable_()).parameters) == parameters


def test_every_error_is_one_of_ours() -> None:
    errors = [value for name, value in ((n, getattr(posfeat, n)) for n in NAMES) if name.endswith("Error")]
    assert all(issubclass(error, posfeat.PosfeatError) for error in errors)
