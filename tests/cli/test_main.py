"""What a person sees when something is wrong: one line, an exit code, no traceback."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from posfeat import __version__
from posfeat.cli import app, main
from posfeat.types import ImageError

Posfeat = Callable[..., Any]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A verb ``fail`` that raises what is put into this list."""
    errors: list[BaseException] = []

    def fail() -> None:
        warnings.warn("mind the step", stacklevel=1)
        raise errors[0]

    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))
    app.command("fail")(fail)
    return errors


def test_version(posfeat: Posfeat) -> None:
    assert posfeat("--version").out.strip() == __version__


def test_an_error_of_ours_is_one_line(posfeat: Posfeat, failing: list[BaseException]) -> None:
    failing.append(ImageError("a.jpg is cut off:\n  copy it again"))
    run = posfeat("fail")
    assert run.code == 2
    assert run.err == "posfeat: warning: mind the step\nposfeat: error: a.jpg is cut off: copy it again\n"


def test_an_error_of_the_system_is_one_line(posfeat: Posfeat, failing: list[BaseException]) -> None:
    failing.append(OSError(28, "No space left on device", "matches.h5"))
    run = posfeat("fail")
    assert run.code == 2
    assert run.err.endswith("posfeat: error: No space left on device: matches.h5\n")


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError())
    monkeypatch.setattr("sys.argv", ["posfeat", "fail"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, failing: list[BaseException]) -> None:
    failing.append(ImageError("a.jpg is cut off"))
    monkeypatch.setenv("POSFEAT_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["posfeat", "fail"])
    with pytest.raises(ImageError):
        main()


def test_ctrl_c_is_quiet(posfeat: Posfeat, failing: list[BaseException]) -> None:
    failing.append(KeyboardInterrupt())
    run = posfeat("fail")
    assert run.code == 130
    assert "Traceback" not in run.err


def test_a_misspelt_option_is_named(posfeat: Posfeat) -> None:
    run = posfeat("match", "--max-keypoint", "5", "a.jpg", "b.jpg")
    assert run.code == 2
    assert "--max-keypoint" in run.err


def test_a_device_that_is_not_there(posfeat: Posfeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = posfeat("match", "a.jpg", "b.jpg", "--device", "cuda")
    assert run.code == 2
    assert run.err == "posfeat: error: there is no cuda device here; leave the device out, or take cpu\n"
