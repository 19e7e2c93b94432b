"""The exported graph: the same matches as torch's at any size, ties, tiles, masks and errors; COLMAP's signature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from posfeat.interop.onnx_engine import Engine, EngineExtractor, agreement
from posfeat.interop.onnx_export import export_onnx, onnx_bytes, read_graph_header
from posfeat.interop.onnx_graph import LOWEST_SCORE, calibrated, uncalibrated
from posfeat.matching import match
from posfeat.networks.checkpoint import load, weights_digest
from posfeat.networks.description import PaperDescriptionOptions
from posfeat.networks.detection import PaperDetectionOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.types import CheckpointError, Features, OptionsError, PosfeatError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Pixels = npt.NDArray[np.uint8]
PLAIN = ExtractionOptions(SelectionOptions(max_keypoints=1000), precision="fp32")
SIZES = [(480, 640), (479, 641), (240, 320), (33, 17), (640, 480), (37, 800), (500, 333), (16, 16), (211, 97), (8, 300)]


def photo(height: int, width: int, seed: int = 0) -> Pixels:
    """Smooth texture with sharp edges."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // 7 + 2, width // 7 + 2, 3))
    large = np.kron(small, np.ones((7, 7, 1)))[:height, :width]
    return (0.8 * large + 0.2 * rng.integers(0, 256, (height, width, 3))).astype(np.uint8)


@pytest.fixture(scope="module")
def content(model: PoSFeat) -> bytes:
    return onnx_bytes(model, PLAIN.selection)


def engine_of(content: bytes, engine: Engine = "onnx", options: ExtractionOptions = PLAIN) -> EngineExtractor:
    if engine == "openvino":
        pytest.importorskip("openvino")
    return EngineExtractor(content, "model.onnx", engine, options)


def matched_positions(features0: Features, features1: Features) -> set[tuple[int, ...]]:
    """Matches as pairs of positions, in tenths of pixels."""
    indices = match(features0, features1).indices
    rows = torch.cat([features0.keypoints[indices[:, 0]], features1.keypoints[indices[:, 1]]], dim=1)
    return {tuple(row) for row in (rows * 10).round().int().tolist()}


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_same_matches_as_torch_at_ten_sizes(model: PoSFeat, content: bytes, engine: Engine) -> None:
    extractor = engine_of(content, engine)
    total = common = 0
    for height, width in SIZES:
        image = photo(height, width)
        pair = image, np.roll(image, (4, 8), axis=(0, 1))
        expected, found = ([f(i) for i in pair] for f in (lambda i: model.extract(i, options=PLAIN), lambda i: extractor.extract(i, None)))  # fmt: skip
        assert [len(f) for f in found] == [len(f) for f in expected]
        assert torch.allclose(found[0].scores, expected[0].scores, atol=1e-5)
        assert agreement(expected[0], found[0], within_px=0.01) > 0.99
        ours, theirs = matched_positions(*expected), matched_positions(*found)
        total, common = total + max(len(ours), len(theirs)), common + len(ours & theirs)
    print(f"{common} of {total} matches are the same")
    assert total > 1000
    assert common >= 0.99 * total


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_the_shipped_weights_give_the_same_too(engine: Engine) -> None:
    """Trained detectors are surer of themselves than fresh ones: their scores are the harder ones to keep apart."""
    shipped = load("default", "cpu")
    extractor = engine_of(onnx_bytes(shipped, PLAIN.selection), engine)
    for height, width in ((240, 320), (179, 211)):
        image = photo(height, width)
        expected = shipped.extract(image, options=PLAIN)
        assert len(expected) > 500
        assert agreement(expected, extractor.extract(image, None), within_px=0.05) >= 0.99


def test_colmaps_signature(content: bytes) -> None:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    inputs = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    float32, int64 = "tensor(float)", "tensor(int64)"
    assert inputs == {"image": (float32, 4), "max_keypoints": (int64, 0), "min_score": (float32, 0)}
    image, *_ = session.get_inputs()
    assert image.shape[:2] == [1, 3]
    assert all(isinstance(size, str) for size in image.shape[2:])
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    assert list(outputs) == ["keypoints", "descriptors", "scores"]
    assert (outputs["keypoints"][2], outputs["descriptors"][2]) == (2, 128)


def test_number_and_lowest_score_of_keypoints(model: PoSFeat, content: bytes) -> None:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    pixels = photo(120, 160)
    image = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None] / 255, dtype=np.float32)

    def run(count: int, lowest: float) -> list[npt.NDArray[np.float32]]:
        return session.run(
            None,
            {"image": image, "max_keypoints": np.array(count), "min_score": np.array(lowest, np.float32)},
        )

    everything = run(10**6, 0.0)
    assert everything[0].shape[1] > 300
    for count in (0, 1, 300):
        assert run(count, 0.0)[0].shape == (1, count, 2)
        assert np.array_equal(run(count, 0.0)[2], everything[2][:, :count])
    scores = everything[2][0]
    assert scores.min() >= LOWEST_SCORE > 0.2  # what COLMAP leaves out unless told otherwise
    assert scores.max() < 1
    middle = float(scores[len(scores) // 2 - 1 :][:2].mean())  # between two: a score itself may be rounded either way
    assert run(10**6, middle)[0].shape[1] == (scores > middle).sum()
    expected = model.extract(pixels, options=PLAIN).keypoints[:300].numpy()
    assert np.abs((everything[0][0, :300] + 1) / 2 * [159, 119] - expected).max() < 0.01


def test_calibration_comes_back() -> None:
    scores = torch.tensor([1e-6, 0.1, 0.9, 3.0, 20.0])
    there = calibrated(scores)
    assert bool((there[1:] > there[:-1]).all())
    assert torch.allclose(uncalibrated(there), scores, rtol=1e-3, atol=1e-6)


def test_plateaus_give_one_keypoint(model: PoSFeat, content: bytes) -> None:
    flat = np.full((64, 96, 3), 128, np.uint8)
    flat[20:40, 30:60] = 200
    expected, found = model.extract(flat, options=PLAIN), engine_of(content).extract(flat, None)
    assert abs(len(expected) - len(found)) <= 2
    assert len(found) < 400


def test_tiles_masks_scales_and_rotations(model: PoSFeat, content: bytes) -> None:
    image, allowed = photo(300, 420), np.ones((300, 420), bool)
    allowed[:, 200:] = False
    options = ExtractionOptions(
        PLAIN.selection,
        precision="fp32",
        scales=(1.0, 0.7),
        rotations_deg=(0.0, 90.0),
        tile_pixels=2**16,
        tile_overlap_px=64,
    )
    expected = model.extract(image, mask=allowed, options=options)
    found = engine_of(content, options=options).extract(image, allowed)
    assert len(found) == len(expected) == 1000
    assert agreement(expected, found, 0.05) > 0.98
    assert float(found.keypoints[:, 0].max()) < 202


def test_the_papers_networks_and_other_selections() -> None:
    torch.manual_seed(0)
    paper = build_model(
        ModelOptions(
            architecture="paper",
            paper_description=PaperDescriptionOptions(encoder="resnet18", dim=32),
            paper_detection=PaperDetectionOptions(image_channels=8, hidden_channels=16),
        )
    ).eval()
    selection = SelectionOptions(max_keypoints=200, nms_size=7, subpixel="mean", threshold=0.5, border_px=6)
    options = ExtractionOptions(selection, precision="fp32")
    image = photo(150, 130)
    expected = paper.extract(image, options=options)
    found = EngineExtractor.of_model(paper, "onnx", options).extract(image, None)
    assert len(found) == len(expected) > 20
    assert agreement(expected, found, 0.05) > 0.98


def test_half_precision_is_half_the_size_and_finds_the_same(model: PoSFeat, content: bytes) -> None:
    half = onnx_bytes(model, PLAIN.selection, "fp16")
    assert len(half) < 0.55 * len(content)
    image = photo(240, 320)
    assert agreement(model.extract(image, options=PLAIN), engine_of(half).extract(image, None)) > 0.97


def test_the_file_says_what_it_is(model: PoSFeat, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_onnx(model, path)
    header = read_graph_header(path.read_bytes(), path)
    assert header.weights == weights_digest(model)
    assert header.selection == SelectionOptions()
    assert [child.name for child in tmp_path.iterdir()] == ["model.onnx"]
    export_onnx(model, tmp_path / "new folder" / "model.onnx")
    with pytest.raises(PosfeatError, match=r"cannot write .*new folder: .*; choose another place"):
        export_onnx(model, tmp_path / "new folder")
    assert sorted(child.name for child in tmp_path.iterdir()) == ["model.onnx", "new folder"]
    options = ExtractionOptions(SelectionOptions(nms_size=7))
    with pytest.raises(OptionsError, match=r"exported with selection.nms_size=3, not 7; export it again with --set"):
        EngineExtractor.of_file(path, "onnx", options)
    with pytest.raises(OptionsError, match="leave out --precision"):
        EngineExtractor.of_file(path, "onnx", ExtractionOptions(precision="bf16"))


def test_files_that_are_none_of_ours(content: bytes, tmp_path: Path) -> None:
    foreign = onnx.load_model_from_string(content)
    del foreign.metadata_props[:]
    for name, data in (("foreign", foreign.SerializeToString()), ("cut", content[:1000]), ("text", b"hello")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CheckpointError, match=rf"{name} (is no ONNX file|was not written by)[^\n]*$"):
            EngineExtractor.of_file(tmp_path / name, "onnx", PLAIN)
    with pytest.raises(CheckpointError, match="cannot read"):
        EngineExtractor.of_file(tmp_path / "missing", "onnx", PLAIN)
