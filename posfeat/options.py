"""Options are frozen dataclasses beside the code that reads them; this builds them from files and command lines.

A field is declared ``lr: float = described(1e-3, "learning rate", low=0)``. Unknown or misspelt keys are errors that
name the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from posfeat.types import OptionsError

T = TypeVar("T")


def described(default: Any, sentence: str, *, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with a default, a sentence that explains it, and optional bounds."""
    return dataclasses.field(default=default, metadata={"help": sentence, "low": low, "high": high})


def nested(options: type, sentence: str) -> Any:
    """A dataclass field that is itself a group of options."""
    return dataclasses.field(default_factory=options, metadata={"help": sentence})


def check_options(options: Any) -> None:
    """Raise OptionsError unless every field has its declared type and lies within its bounds (call in __post_init__)."""
    hints = typing.get_type_hints(type(options))
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if not _has_type(value, hints[field.name]):
            raise OptionsError(f"option {field.name}={value!r} is not of type {_type_name(hints[field.name])}")
        low, high = field.metadata.get("low"), field.metadata.get("high")
        if isinstance(value, (int, float)) and not (
            (low is None or value >= low) and (high is None or value <= high)  # which NaN is not
        ):
            bounds = (
                f"between {low} and {high}"
                if None not in (low, high)
                else f"at least {low}"
                if high is None
                else f"at most {high}"
            )
            raise OptionsError(f"option {field.name}={value!r} must be {bounds}")


def options_from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str = "") -> T:
    """Build the frozen dataclass ``cls`` from nested plain values; ``where`` prefixes error messages."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.4)
            hint = f"; did you mean {where}{near[0]}?" if near else f"; known: {', '.join(fields)}"
            raise OptionsError(f"unknown option {where}{key}{hint}")
        hint_type = hints[key]
        if dataclasses.is_dataclass(hint_type) and isinstance(value, Mapping):
            value = options_from_mapping(hint_type, value, f"{where}{key}.")  # type: ignore[arg-type]
        values[key] = _coerce(value, hint_type)
    return cls(**values)


def options_to_mapping(options: Any) -> dict[str, Any]:
    """The inverse of options_from_mapping: nested dictionaries of plain values."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(options).items()
    }


def plain_value(text: str) -> Any:
    """The number, list, true, false or null that a text on the command line stands for, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def apply_overrides(mapping: dict[str, Any], overrides: list[str], parse: Any = plain_value) -> dict[str, Any]:
    """Apply ``a.b=value`` strings to nested dictionaries; ``parse`` turns the text of a value into a value."""
    for override in overrides:
        path, separator, text = override.partition("=")
        if not separator:
            raise OptionsError(f"--set takes key=value, not {override!r}")
        node = mapping
        *parents, leaf = path.strip().split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise OptionsError(f"option {path} has no such part: {parent} is a value")
        node[leaf] = parse(text)
    return mapping


def _coerce(value: Any, hint: Any) -> Any:
    if isinstance(value, list) and (typing.get_origin(hint) is tuple or _admits(hint, tuple)):
        return tuple(_coerce(item, Any) for item in value)
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (hint is float or (_admits(hint, float) and not _admits(hint, int)))
    ):
        return float(value)
    if isinstance(value, str) and _admits(hint, float) and not _admits(hint, str):
        try:  # YAML takes 1e-3, without a point, for text
            return float(value)
        except ValueError:
            return value
    return value


def _admits(hint: Any, kind: type) -> bool:
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(member is kind or typing.get_origin(member) is kind for member in members)


def _has_type(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_has_type(value, member) for member in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is tuple and typing.get_args(hint)[1:] == (...,):
        return isinstance(value, tuple) and all(_has_type(item, typing.get_args(hint)[0]) for item in value)
    kind = origin or hint
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _type_name(hint: Any) -> str:
    return str(hint) if typing.get_origin(hint) else getattr(hint, "__name__", str(hint))
