"""What every test shares: fixed seeds, few threads, the development data, and shapes checked against signatures.

The shapes that stand in signatures as ``Annotated[Tensor, "batch 3 height width"]`` are comments when the package runs.
Here, before any test imports it, each such function is replaced by a copy that jaxtyping and beartype check at each call.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import random
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any

import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch
from beartype import beartype

CHECKED_PACKAGES = ("posfeat.geometry", "posfeat.losses", "posfeat.networks")

torch.set_num_threads(min(2, os.cpu_count() or 1))
hypothesis.settings.register_profile("posfeat", deadline=None, derandomize=True, max_examples=50, database=None)
hypothesis.settings.load_profile("posfeat")


def with_shapes(hint: Any) -> Any:
    """The hint with each Annotated[Tensor, "a b"] turned into jaxtyping's Shaped[Tensor, "a b"]."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and isinstance(arguments[1], str):
        return jaxtyping.Shaped[typing.get_origin(arguments[0]) or arguments[0], arguments[1]]
    if origin is tuple:
        return tuple[tuple(with_shapes(argument) for argument in arguments)]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(with_shapes(argument) for argument in arguments)]  # noqa: UP007
    return hint


def checked(function: types.FunctionType) -> Any:
    """A copy of the function whose shapes are checked, or the function itself where its signature has none."""
    hints = typing.get_type_hints(function, include_extras=True)
    shaped = {name: with_shapes(hint) for name, hint in hints.items()}
    shaped = {name: hint for name, hint in shaped.items() if hint is not hints[name] and hint != hints[name]}
    if not shaped:
        return function
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    copy = types.FunctionType(code, function.__globals__, function.__name__, defaults, closure)
    copy.__kwdefaults__, copy.__doc__, copy.__qualname__ = (
        function.__kwdefaults__,
        function.__doc__,
        function.__qualname__,
    )
    copy.__module__, copy.__annotations__ = function.__module__, shaped
    return jaxtyping.jaxtyped(copy, typechecker=beartype)


def check_shapes(package: types.ModuleType) -> list[str]:
    """Replace the package's functions by checked ones, wherever posfeat has already imported them; what went wrong."""
    failures = []
    for information in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        try:
            module = importlib.import_module(information.name)
            functions = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
            replaced = {id(function): checked(function) for function in functions}
        except Exception as error:  # one broken file must not keep the tests of all others from running
            failures.append(f"{information.name}: {error!r}")
            continue
        loaded = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "posfeat"]
        for namespace in (vars(m) for m in loaded):
            namespace.update({name: replaced[id(value)] for name, value in namespace.items() if id(value) in replaced})
    return failures


_failures = [failure for name in CHECKED_PACKAGES for failure in check_shapes(importlib.import_module(name))]


@pytest.fixture(scope="session")
def shape_check_failures() -> list[str]:
    """Modules whose signatures could not be turned into checks."""
    return _failures


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def posfeat_data() -> Path:
    """The folder of development photos, which is not part of the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("POSFEAT_DATA", beside))
    if not folder.is_dir():
        pytest.skip("the development photos are not here (POSFEAT_DATA names their folder)")
    return folder
