"""What a number format costs in accuracy: matching accuracy on homography sequences, and the same keypoints as float32.

    python benches/engine_accuracy.py SEQUENCES --calibration PHOTOS

Features of the same weights by torch, ONNX Runtime and OpenVINO in each number format, and with 8-bit convolutions (made
here with ONNX Runtime's quantisation, calibrated on a dozen photos), matched by mutual nearest neighbours. A format passes
where its MMAscore is no more than ALLOWED_LOSS below that of torch in float32. Not part of ``all.py``: it needs sequences,
and asks about accuracy, not time.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from posfeat.benchmarks.homography_scores import score_sequence, summarise
from posfeat.benchmarks.hpatches import HomographySequence, read_sequences
from posfeat.data.images import RGB, read_image
from posfeat.interop.onnx_engine import Engine, EngineExtractor, agreement
from posfeat.interop.onnx_export import onnx_bytes
from posfeat.matching import match
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.inference import Precision
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import list_images
from posfeat.types import Features

Extract = Callable[[RGB], Features]
CALIBRATION_PHOTOS = 12
ALLOWED_LOSS = 0.002


def with_8_bits(content: bytes, photos: list[Path], which: str) -> bytes:
    """The graph with those convolutions whose name holds ``which`` on 8-bit numbers."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Photos(CalibrationDataReader):
        def __init__(self) -> None:
            self._feeds = self._make()

        def get_next(self) -> Any:
            return next(self._feeds, None)

        @staticmethod
        def _make() -> Iterator[dict[str, Any]]:
            for path in photos:
                image = np.ascontiguousarray(read_image(path).transpose(2, 0, 1)[None], dtype=np.float32) / 255
                yield {"image": image, "max_keypoints": np.array(1000), "min_score": np.array(0, np.float32)}

    graph = onnx.load_model_from_string(content)
    chosen = [node.name for node in graph.graph.node if node.op_type == "Conv" and which in node.name]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        source.write_bytes(content)
        quantize_static(
            source,
            target,
            Photos(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=chosen,
        )
        made = onnx.load(target)
    onnx.helper.set_model_props(made, {entry.key: entry.value for entry in graph.metadata_props})
    return bytes(made.SerializeToString())


def variants(weights: str, photos: list[Path], keypoints: int) -> dict[str, Extract]:
    """Every way to run the weights, float32 in torch first."""
    model, selection = load(weights, "cpu"), SelectionOptions(max_keypoints=keypoints)

    def options(precision: Precision) -> ExtractionOptions:
        return ExtractionOptions(selection, precision=precision)

    def torch_way(precision: Precision) -> Extract:
        return lambda rgb: model.extract(rgb, options=options(precision))

    def engine_way(content: bytes, engine: Engine, precision: Precision = "auto") -> Extract:
        extractor = EngineExtractor(content, "the graph", engine, options(precision))
        return lambda rgb: extractor.extract(rgb, None)

    full, half = onnx_bytes(model, selection), onnx_bytes(model, selection, "fp16")
    ways = {"torch fp32": torch_way("fp32"), "torch bf16": torch_way("bf16"), "onnx fp32": engine_way(full, "onnx")}
    ways["onnx fp16 file"] = engine_way(half, "onnx")
    for precision in ("fp32", "bf16", "fp16"):
        ways[f"openvino {precision}"] = engine_way(full, "openvino", precision)
    if photos:
        for name, which in (("all", ""), ("description's", "/description/")):
            small = with_8_bits(full, photos, which)
            ways[f"onnx int8, {name} convolutions"] = engine_way(small, "onnx")
            ways[f"openvino int8, {name} convolutions"] = engine_way(small, "openvino", "fp32")
    return ways


def score(sequences: list[HomographySequence], extract: Extract) -> tuple[float, dict[Path, Features], float]:
    """MMAscore, all features, and the processor's seconds for an image."""
    features: dict[Path, Features] = {}
    start = time.process_time()
    for sequence in sequences:
        for path in (sequence.reference, *sequence.targets):
            features[path] = extract(read_image(path))
    seconds = (time.process_time() - start) / len(features)
    scores = [pair for s in sequences for pair in score_sequence(s, features.__getitem__, match, None)]
    return summarise(scores)[0].mma_score, features, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sequences", type=Path)
    parser.add_argument("--calibration", type=Path, help="a folder of photos; without it no 8-bit numbers")
    parser.add_argument("--weights", default="default")
    parser.add_argument("--keypoints", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.disable(logging.WARNING)  # quantisation's advice
    folder = arguments.calibration
    photos = [] if folder is None else [folder / name for name in list_images(folder)[:CALIBRATION_PHOTOS]]
    sequences = read_sequences(arguments.sequences)
    expected: dict[Path, Features] = {}
    best = 0.0
    print(f"{'':42}MMAscore            same keypoints   cpu ms an image")
    for name, extract in variants(arguments.weights, photos, arguments.keypoints).items():
        mma, features, seconds = score(sequences, extract)
        if not expected:  # torch in float32, which the others are compared with
            expected, best = features, mma
        same = np.mean([agreement(expected[path], features[path]) for path in features])
        verdict = "passes" if mma >= best - ALLOWED_LOSS else "FAILS"
        print(f"{name:42}{mma:.4f} {mma - best:+.4f} {verdict:8} {same:.4f} {seconds * 1e3:12.0f}", flush=True)


if __name__ == "__main__":
    main()
