"""The whole demo from the command line, with small untrained networks: its files and its page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posfeat.data.images import read_image
from posfeat.networks.checkpoint import ModelCard, save_checkpoint
from posfeat.networks.compact import CompactDescriptionOptions, CompactDetectionOptions
from posfeat.networks.posfeat import ModelOptions, build_model
from posfeat.pipeline.feature_store import FeatureStore, MatchStore

Posfeat = Callable[..., Any]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    description = CompactDescriptionOptions(widths=(8, 8, 8, 8), blocks=(1, 1, 1), dim=16)
    detection = CompactDetectionOptions(feature_channels=8, image_channels=4)
    model = build_model(ModelOptions(compact_description=description, compact_detection=detection))
    save_checkpoint(tmp_path / "small.safetensors", model, ModelCard())
    return tmp_path / "small.safetensors"


def test_the_demo_from_the_command_line(
    posfeat: Posfeat, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # matches of untrained networks agree on nothing, and take minutes to find that out
    monkeypatch.setattr("posfeat.demo.run.rebuild", lambda *_: "nobody tried")
    folder = tmp_path / "my demo"
    (folder / "gallery").mkdir(parents=True)
    FeatureStore(folder / "gallery" / "features.h5", "a", {"weights": "others, of an earlier run"}).close()
    run = posfeat("demo", "-o", folder, "--max-keypoints", 200, "--precision", "fp32", "--weights", weights)
    assert run.code == 0, run.err
    assert str(folder / "report.html") in run.out
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["gallery"]["views"] == 16
    assert results["gallery"]["pairs"] == 120
    assert results["gallery"]["keypoints"] == 16 * 200
    assert results["reconstruction"] == {"failure": "nobody tried"}
    for name in ("real_pair.jpg", "gallery_06_09.jpg", "gallery_03_12.jpg", "gallery/photos/view_16.jpg"):
        assert read_image(folder / name).size > 0
    with FeatureStore(folder / "gallery" / "features.h5") as features:
        assert len(features) == 16
    with MatchStore(folder / "gallery" / "matches.h5") as matches:
        assert len(matches) == 120
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "never trained" in page
    assert page.count("<section>") == page.count("</section>") >= 5
    # everything is inside: nothing is loaded from elsewhere
    assert set(re.findall(r'(?:src|href)="([a-z]+:)', page)) == {"data:"}
    assert not re.search(r"url\(|@import|<script|<link", page)
