"""Binary models that are cut off or damaged are refused before COLMAP's reader sees them, and whole ones are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from posfeat.data.colmap_files import require_whole
from posfeat.types import DataError
from tests.data.colmap_models import synthetic_reconstruction

NAMES = ("cameras", "images", "points3D", "rigs", "frames")


@pytest.mark.parametrize("cameras_per_rig", [1, 3])
def test_whole_models_pass(tmp_path: Path, cameras_per_rig: int) -> None:
    synthetic_reconstruction(cameras_per_rig=cameras_per_rig).write_binary(str(tmp_path))
    require_whole(tmp_path)
    for name in ("rigs", "frames"):  # older models have none
        (tmp_path / f"{name}.bin").unlink()
    require_whole(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_files_that_lie_about_what_they_hold(tmp_path: Path, name: str) -> None:
    synthetic_reconstruction(cameras_per_rig=2).write_binary(str(tmp_path))
    path = tmp_path / f"{name}.bin"
    whole = path.read_bytes()
    damaged = (b"", whole[:5], whole[: len(whole) // 2], whole[:-1], whole + b"\0", b"\xff" * 8 + whole[8:])
    for data in (*damaged, bytes(4000), os.urandom(4000), b"\xff" * 7 + b"\0" + b"\x01" * 300):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}\.bin is damaged or cut off"):
            require_whole(tmp_path)
