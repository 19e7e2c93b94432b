"""Options from files and command lines: types, bounds, and what is said about a slip."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from posfeat.options import (
    apply_overrides,
    check_options,
    described,
    nested,
    options_from_mapping,
    options_to_mapping,
)
from posfeat.types import OptionsError


@dataclass(frozen=True)
class Inner:
    rate: float = described(0.5, "a share", low=0, high=1)
    sizes: tuple[int, ...] = described((1, 2), "sizes")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Outer:
    steps: int = described(3, "how many", low=1)
    limit: float | None = described(None, "a limit")
    name: str = described("a", "a name")
    inner: Inner = nested(Inner, "more")

    def __post_init__(self) -> None:
        check_options(self)


def test_there_and_back() -> None:
    options = Outer(steps=7, limit=2.5, inner=Inner(rate=1.0, sizes=(4,)))
    assert options_from_mapping(Outer, options_to_mapping(options)) == options
    assert options_from_mapping(Outer, {"limit": 2, "inner": {"sizes": [4, 5]}}).inner.sizes == (4, 5)
    assert options_from_mapping(Outer, {"limit": "1e-3"}).limit == 1e-3  # as YAML gives it


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"stpes": 1}, "unknown option stpes; did you mean steps?"),
        ({"inner": {"rat": 1}}, "unknown option inner.rat; did you mean inner.rate?"),
        ({"qqq": 1}, "unknown option qqq; known: steps, limit, name, inner"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"steps": 2.5}, "steps=2.5 is not of type int"),
        ({"steps": True}, "steps=True is not of type int"),
        ({"inner": {"rate": 2}}, "rate=2.0 must be between 0 and 1"),
        ({"inner": {"rate": float("nan")}}, "rate=nan must be between 0 and 1"),
        ({"inner": {"sizes": [1, "2"]}}, "is not of type tuple[int, ...]"),
        ({"inner": 3}, "inner=3 is not of type Inner"),
    ],
)
def test_slips_are_named(mapping: dict[str, object], words: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_from_mapping(Outer, mapping)
    assert words in str(caught.value)


def test_overrides() -> None:
    mapping = apply_overrides({"steps": 1}, ["inner.rate=0.25", "steps=5", "name=b c", "limit=null", "inner.sizes=[3]"])
    assert options_from_mapping(Outer, mapping) == Outer(5, None, "b c", Inner(0.25, (3,)))
    for wrong, words in (("steps", "takes key=value"), ("steps.more=1", "steps is a value")):
        with pytest.raises(OptionsError, match=words):
            apply_overrides({"steps": 1}, [wrong])
