"""The demo's reconstruction, beside the exact truth, with features that need no weights."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from posfeat.demo.gallery import gallery_cameras
from posfeat.demo.rebuilt import Rebuilt, rebuild
from posfeat.demo.report import rebuilt_numbers, rebuilt_section
from posfeat.pipeline.extract import RootSiftExtractor
from tests.pipeline.conftest import GalleryPhotos
from tests.pipeline.conftest import gallery as gallery

pytest.importorskip("pycolmap")


def test_cameras_lie_over_the_true_ones(gallery: GalleryPhotos, tmp_path: Path) -> None:
    shutil.copytree(gallery.folder, tmp_path / "photos")
    heard: list[tuple[int, int]] = []
    rebuilt = rebuild(RootSiftExtractor(1500), tmp_path, gallery.views, lambda *done: heard.append(done))
    assert isinstance(rebuilt, Rebuilt)
    assert heard[-1] == (8, 8)
    numbers = rebuilt_numbers(rebuilt)
    assert numbers["views"] == 8
    assert numbers["mean_centre_error_percent"] < 0.5
    assert numbers["focal_px"] == pytest.approx(numbers["true_focal_px"], rel=0.02)
    assert np.isfinite(numbers["reprojection_error_px"])
    section = rebuilt_section(rebuilt, gallery_cameras())
    assert section.count('class="found"') == 8
    (inner,) = re.findall(r'srcdoc="([^"]*)"', section)
    assert html.unescape(inner) == (tmp_path / "report.html").read_text(encoding="utf-8")


def test_why_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    reason = rebuild(RootSiftExtractor(100), tmp_path, [], None)
    assert isinstance(reason, str)
    assert rebuilt_numbers(reason) == {"failure": reason}
    assert html.escape(reason) in rebuilt_section(reason, [])
