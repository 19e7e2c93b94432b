"""``posfeat export onnx`` and ``--engine``: the same job with another runtime, and one line where that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posfeat.pipeline.feature_store import FeatureStore

pytest.importorskip("onnxruntime")


def test_export_then_extract_without_torchs_network(
    posfeat: Callable[..., Any], untrained: Path, photos: Path, tmp_path: Path
) -> None:
    file, by_torch, by_onnx = tmp_path / "model.onnx", tmp_path / "torch.h5", tmp_path / "onnx.h5"
    run = posfeat("export", "onnx", "-o", file, "--weights", untrained)
    assert (run.code, run.out.splitlines()[-1].split(",")[0]) == (0, f"written: {file}")
    common = ("--precision", "fp32", "--max-keypoints", 300)
    assert posfeat("extract", photos, "-o", by_torch, "--weights", untrained, *common).code == 0
    run = posfeat("extract", photos, "-o", by_onnx, "--weights", file, "--engine", "onnx", *common)
    assert run.code == 0, run.err
    with FeatureStore(by_torch) as expected, FeatureStore(by_onnx) as found:
        assert found.names() == expected.names()
        assert found.settings == expected.settings
        for name in expected.names():
            assert torch.allclose(found.read(name).keypoints, expected.read(name).keypoints, atol=0.01)


def test_an_engine_takes_a_checkpoint_as_well(
    posfeat: Callable[..., Any], untrained: Path, photos: Path, tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    pair = photos / "a.png", photos / "second day" / "b.png"
    plain = posfeat("match", *pair, "--weights", untrained, "--precision", "fp32")
    run = posfeat("match", *pair, "--weights", untrained, "--precision", "fp32", "--engine", "openvino")
    assert run.code == 0, run.err
    assert run.out.splitlines()[0] == plain.out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "x.onnx"), "x.onnx is run by --engine onnx or --engine openvino"),
        (("--weights", "x.onnx", "--engine", "onnx"), "cannot read x.onnx"),
        (("--engine", "openvino", "--device", "cuda"), "runs on the processor"),
    ],
)
def test_what_cannot_be(
    posfeat: Callable[..., Any], photos: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    run = posfeat("extract", photos, "-o", tmp_path / "f.h5", *arguments)
    assert run.code == 2
    assert message in run.err
    assert run.err.count("\n") == 1


def test_only_selection_is_part_of_the_file(posfeat: Callable[..., Any], untrained: Path, tmp_path: Path) -> None:
    run = posfeat("export", "onnx", "-o", tmp_path / "m.onnx", "--weights", untrained, "--set", "scales=[1,0.5]")
    assert run.code == 2
    assert "only selection.KEY=VALUE is" in run.err
