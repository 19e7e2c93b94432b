"""What a result came from: code, options, libraries, data, seed, time and kind of machine."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from posfeat import __version__
from posfeat.types import Camera, View

_LIBRARIES = (
    "torch",
    "numpy",
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
    "kornia",
    "poselib",
    "pycolmap",
)


@dataclass(frozen=True)
class Provenance:
    """Everything that is needed to make the same numbers again."""

    command: str
    posfeat_version: str
    commit: str  # with "+changes" where the checkout differs from it; empty outside a checkout
    options: dict[str, Any]
    libraries: dict[str, str]
    data: str  # name of the data set and digests of every file that was read and of the true cameras
    seed: int
    started: str
    machine: str


def gather_provenance(command: str, options: Mapping[str, Any], data: str, seed: int) -> Provenance:
    """The provenance of a run that begins now."""
    return Provenance(
        command=command,
        posfeat_version=__version__,
        commit=_commit(Path(__file__).parents[2]),
        options=dict(options),
        libraries=_versions(_LIBRARIES),
        data=data,
        seed=seed,
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        machine=_machine(),
    )


def data_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """The data set's name and a digest of the names and contents of its files."""
    digest = hashlib.sha256()
    paths = sorted(set(files))
    for path in paths:
        digest.update(path_below(root, path).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{root.resolve().name}: {len(paths)} files, sha256 {digest.hexdigest()[:16]}"


def path_below(folder: Path, path: Path) -> Path:
    """A file's path in its data set; its name alone where it lies elsewhere, as a model's photos may."""
    return path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name)


def cameras_fingerprint(views: Iterable[View]) -> str:
    """A digest of the known cameras and poses of photos, in the order given: the truth that they are measured against."""
    digest = hashlib.sha256()
    for view in views:
        digest.update(f"{view.name}\0{describe_camera(view.camera)}\0{view.cam_from_world.tolist()}\0".encode())
    return f"cameras sha256 {digest.hexdigest()[:16]}"


def describe_camera(camera: Camera) -> str:
    """All of a camera's numbers, to the last digit."""
    return f"{camera.model} {camera.width} {camera.height} {camera.matrix.tolist()} {list(camera.distortion)}"


def _versions(names: Iterable[str]) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit(checkout: Path) -> str:
    if not (checkout / ".git").exists():
        return ""
    head = _git(checkout, "rev-parse", "HEAD")
    return head + ("+changes" if head and _git(checkout, "status", "--porcelain", "--untracked-files=no") else "")


def _git(checkout: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip()


def _machine() -> str:
    """Its kind, never its name."""
    accelerator = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return f"{platform.system()} {platform.machine()}, {_processor()}, {cores}{accelerator}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
