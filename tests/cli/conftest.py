"""The command line run inside the test's process, untrained weights, and two small photos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from posfeat.cli import main
from posfeat.data.images import write_image


class Run(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def posfeat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """``posfeat("match", a, b)`` runs that command."""

    def run(*arguments: object) -> Run:
        monkeypatch.setattr("sys.argv", ["posfeat", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return Run(int(stopped.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of small networks that nothing has trained."""
    from posfeat.networks.checkpoint import ModelCard, save_checkpoint
    from posfeat.networks.posfeat import ModelOptions, build_model

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "untrained.safetensors"
    save_checkpoint(path, build_model(ModelOptions()), ModelCard(name="untrained"))
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with two photos that overlap, one of them in a folder of its own with a space in its name."""
    texture = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    large = np.kron(texture, np.ones((4, 4, 1), dtype=np.uint8))
    folder = tmp_path / "photos"
    (folder / "second day").mkdir(parents=True)
    write_image(folder / "a.png", large[:128, :160])
    write_image(folder / "second day" / "b.png", large[16:144, 32:192])
    return folder
