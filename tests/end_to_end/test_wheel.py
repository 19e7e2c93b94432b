"""The wheel that people install: small, complete, and enough for the main job in an environment that has nothing else.

The environment starts empty. It then sees exactly the packages that the wheel's own metadata asks for, and theirs in
turn, linked from the environment of the tests; pip checks that they satisfy the wheel. An import that no dependency
declares fails here.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import skimage.data
from packaging.requirements import Requirement

from posfeat.data.images import write_image

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 20 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that nothing lies about in the repository afterwards."""
    source, built = tmp_path_factory.mktemp("source") / "posfeat", tmp_path_factory.mktemp("wheel")
    source.mkdir()
    shutil.copytree(ROOT / "posfeat", source / "posfeat", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built), str(source))
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    venv.create(folder, with_pip=True)
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = Path(subprocess.check_output([interpreter, "-c", code], text=True).strip())
    for name in needed_distributions(requirements_of_wheel(wheel)):
        link_distribution(name, site_packages)
    pip("install", "--no-index", str(wheel), python=interpreter)
    return interpreter


def pip(*arguments: str, python: Path = Path(sys.executable)) -> None:
    run = subprocess.run([python, "-m", "pip", "--quiet", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def requirements_of_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def needed_distributions(requirements: list[str]) -> set[str]:
    """The names of all packages that the requirements ask for here, and those that these ask for, without extras."""
    needed: set[str] = set()
    open_names = list(names_wanted_here(requirements))
    while open_names:
        name = open_names.pop()
        if name not in needed:
            needed.add(name)
            open_names.extend(names_wanted_here(importlib.metadata.requires(name) or []))
    return needed


def names_wanted_here(requirements: list[str]) -> Iterator[str]:
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name.lower().replace("_", "-")


def link_distribution(name: str, site_packages: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}
    for top in tops - {"__pycache__", "bin"}:
        source, target = Path(str(distribution.locate_file(top))), site_packages / top
        if source.exists() and not target.exists():
            try:
                target.symlink_to(source, target_is_directory=source.is_dir())
            except OSError:  # Windows wants a privilege for links
                shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a real stereo pair, which is not the repository."""
    folder = tmp_path_factory.mktemp("my photos")
    left, right, _ = skimage.data.stereo_motorcycle()
    write_image(folder / "left.png", left)
    write_image(folder / "right.png", right)
    return folder


def posfeat(python: Path, folder: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, "-m", "posfeat", *arguments]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_wheel_is_small_and_complete(wheel: Path) -> None:
    assert wheel.stat().st_size <= LARGEST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "posfeat/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benches/"))]
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "posfeat").rglob("*.py")}
    assert sources - names == set(), "a folder without __init__.py does not reach the wheel"


def test_the_default_weights_are_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.startswith("posfeat/weights/") for name in archive.namelist())


def test_two_photos_match_there(python: Path, photos: Path) -> None:
    result = json.loads(posfeat(python, photos, "match", "left.png", "right.png", "-o", "matches.png", "--json"))
    assert (photos / "matches.png").stat().st_size > 10_000
    verified = [row for row, ok in zip(result["matches"], result["verified"], strict=True) if ok]
    assert len(verified) >= 200
    # the pair is rectified, so that true matches lie on one row
    offsets = sorted(abs(y0 - y1) for _, y0, _, y1, _ in verified)
    assert offsets[len(offsets) // 2] < 1


def test_from_python_there(python: Path, photos: Path) -> None:
    code = (
        "import posfeat\nmodel = posfeat.load()\nfeatures = model.extract('left.png', max_keypoints=500)\n"
        "print(len(posfeat.match(features, features)))"
    )
    count = subprocess.check_output([python, "-c", code], cwd=photos, text=True)
    assert int(count) >= 450
