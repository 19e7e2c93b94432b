"""A run's folder: what it was asked, what it did, its weights, and all that is needed to go on.

config.yaml        the exact options: ``posfeat train STAGE config.yaml`` does the run again
provenance.json    command, package version, commit, data fingerprint, machine's kind
metrics.jsonl      a line a log step, ``kind`` training or validation
pictures/          validation pictures, one set a validation
last.safetensors, best.safetensors   models ready to use
state.pt           optimiser, averages, step, random state: ``--resume``
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posfeat import __version__
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import CheckpointError

STATE = "state.pt"


class RunFolder:
    """Writes a run's files, each in one piece."""

    def __init__(self, path: Path, card: Callable[[int, dict[str, float]], ModelCard]) -> None:
        self.path = path
        self._card = card
        self._board: Any = None

    def begin(self, config: str, data: dict[str, Any], tensorboard: bool) -> None:
        """Make the folder and say in it how to do this again."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "config.yaml", config)
        write_text(self.path / "provenance.json", json.dumps(provenance() | {"data": data}, indent=2) + "\n")
        if tensorboard:
            self._board = _tensorboard(self.path)

    def log(self, step: int, metrics: dict[str, float], is_main: bool, kind: str = "training") -> None:
        """Append a line of numbers (and show them in TensorBoard)."""
        if not is_main:
            return
        line = {"step": step, "kind": kind, "time": round(time.time(), 1)} | {
            k: round(v, 6) for k, v in metrics.items()
        }
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for key, value in metrics.items():
                self._board.add_scalar(f"{kind}/{key}", value, step)

    def picture(self, step: int, name: str, rgb: np.ndarray) -> None:
        """Keep a validation picture."""
        from posfeat.data.images import write_image

        folder = self.path / "pictures"
        folder.mkdir(exist_ok=True)
        write_image(folder / f"{step:07d}_{name}.jpg", rgb)
        if self._board is not None:
            self._board.add_image(name, rgb, step, dataformats="HWC")

    def save_weights(self, model: PoSFeat, step: int, name: str, validation: dict[str, float]) -> None:
        """Write a model that is ready to use."""
        save_checkpoint(self.path / f"{name}.safetensors", model, self._card(step, validation), half=True)

    def save_state(self, state: dict[str, Any], is_main: bool) -> None:
        """Write all that resuming needs: the old file stays whole until the new one is."""
        if not is_main:
            return
        part = self.path / f"{STATE}.part"
        with open(part, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path / STATE)

    def load_state(self, is_main: bool) -> dict[str, Any] | None:
        """The saved state, or None where the run had not got that far. Later lines of the log are dropped."""
        path = self.path / STATE
        state = _read_state(path) if path.exists() else None
        if is_main:
            self._drop_log_after(0 if state is None else state["step"])
        return state

    def _drop_log_after(self, step: int) -> None:
        log = self.path / "metrics.jsonl"
        if log.exists():
            lines = [
                line for line in log.read_text().splitlines() if line.endswith("}") and json.loads(line)["step"] <= step
            ]
            write_text(log, "".join(line + "\n" for line in lines))


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); delete it to start again".replace("\n", " ")
        ) from error
    return state


def write_text(path: Path, text: str) -> None:
    """Replace a file in one piece."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def provenance() -> dict[str, Any]:
    """Who made this, from what, on what kind of machine."""
    return {
        "command": " ".join(["posfeat", *sys.argv[1:]]),
        "package_version": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""),
        "threads": torch.get_num_threads(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _commit() -> str:
    """The source tree's commit, with + where files differ from it; empty outside a checkout."""
    folder = Path(__file__).parents[2]
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        )
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=folder, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(path / "tensorboard"))
