"""What a person sees when something is wrong: one line, an exit code, no traceback."""

from __future__ import annotations

import warnings

import pytest

from posfeat import __version__
from posfeat.cli import app, main
from posfeat.types import ImageError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process; its exit code."""
    monkeypatch.setattr("sys.argv", ["posfeat", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


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


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_error_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: list[BaseException]
) -> None:
    failing.append(ImageError("a.jpg is cut off:\n  copy it again"))
    assert run(monkeypatch, "fail") == 2
    assert capsys.readouterr().err == (
        "posfeat: warning: mind the step\nposfeat: error: a.jpg is cut off: copy it again\n"
    )


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: list[BaseException]
) -> None:
    failing.append(OSError(28, "No space left on device", "matches.h5"))
    assert run(monkeypatch, "fail") == 2
    assert capsys.readouterr().err.endswith("posfeat: error: No space left on device: matches.h5\n")


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


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: list[BaseException]
) -> None:
    failing.append(KeyboardInterrupt())
    assert run(monkeypatch, "fail") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_misspelt_option_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "match", "--max-keypoint", "5", "a.jpg", "b.jpg") == 2
    assert "--max-keypoint" in capsys.readouterr().err
