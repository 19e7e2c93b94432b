"""Extraction by ONNX Runtime or OpenVINO instead of torch: everything that our own extraction does, on an exported graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from posfeat.data.images import RGB, shown
from posfeat.interop.onnx_export import GraphHeader, onnx_bytes, read_graph_header
from posfeat.interop.onnx_graph import uncalibrated
from posfeat.matching import MatchOptions, own_matching
from posfeat.networks.extraction import ExtractionOptions, Region, extract_image
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.networks.views import Mask
from posfeat.options import options_to_mapping
from posfeat.processor import multiplies_bfloat16
from posfeat.types import CheckpointError, Features, MissingExtraError, OptionsError

Engine = Literal["onnx", "openvino"]
Runner = Callable[[dict[str, npt.NDArray[Any]]], list[npt.NDArray[Any]]]
ALL = 2**31 - 1  # keypoints
_SAME_DESCRIPTOR = 0.99  # cosine; other points' descriptors are far below


class EngineExtractor:
    """An exported model in another runtime; what ``pipeline.extract`` calls an Extractor."""

    def __init__(self, content: bytes, name: str, engine: Engine, options: ExtractionOptions) -> None:
        self.header = read_graph_header(content, name)
        self.options = options
        _check_selection(self.header, options.selection, name)
        self._run = _onnxruntime(content, options) if engine == "onnx" else _openvino(content, options)

    @classmethod
    def of_file(cls, path: Path, engine: Engine, options: ExtractionOptions) -> EngineExtractor:
        """From a file that ``posfeat export onnx`` wrote."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"cannot read {shown(path)}: {error.strerror}; check the name") from None
        return cls(content, shown(path), engine, options)

    @classmethod
    def of_model(cls, model: PoSFeat, engine: Engine, options: ExtractionOptions) -> EngineExtractor:
        """From a model of torch's, exported in memory."""
        return cls(onnx_bytes(model, options.selection), "the model", engine, options)

    @property
    def settings(self) -> dict[str, Any]:
        return {"weights": self.header.weights, "extraction": options_to_mapping(self.options)}

    @property
    def own_matching(self) -> MatchOptions:
        return own_matching(self.header.weights)

    def extract(self, rgb: RGB, allowed: Mask | None) -> Features:
        return extract_image(self._features, rgb, allowed, self.options)

    def _features(self, pixels: RGB, region: Region, allowed: Mask | None, selection: SelectionOptions) -> Features:
        """The features of a tile."""
        height, width = pixels.shape[:2]
        border = selection.border_px
        everywhere = allowed is None and region == (border, border, width - border, height - border)
        image = np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)[None] / np.float32(255)
        count = np.array(selection.max_keypoints if everywhere else ALL, np.int64)
        found = self._run({"image": image, "max_keypoints": count, "min_score": np.array(0, np.float32)})
        relative, descriptors, scores = (torch.from_numpy(np.array(part[0])) for part in found)
        xy = (relative + 1) / 2 * torch.tensor([width - 1.0, height - 1.0])
        if not everywhere:
            kept = _inside(xy, region, allowed).nonzero()[: selection.max_keypoints, 0]
            xy, descriptors, scores = xy[kept], descriptors[kept], scores[kept]
        return Features(xy, uncalibrated(scores), descriptors, (width, height))


def agreement(expected: Features, found: Features, within_px: float = 0.5) -> float:
    """The share of the expected keypoints that were found, and with the descriptor that was expected."""
    if not (len(expected) and len(found)):
        return float(len(expected) == len(found))
    exact = "donot_use_mm_for_euclid_dist"
    distance, nearest = torch.cdist(expected.keypoints, found.keypoints, compute_mode=exact).min(dim=1)
    cosine = (expected.descriptors * found.descriptors[nearest]).sum(1)
    return float(((distance < within_px) & (cosine > _SAME_DESCRIPTOR)).float().mean())


def _inside(xy: torch.Tensor, region: Region, allowed: Mask | None) -> torch.Tensor:
    """Which positions have their pixel in the region and where allowed."""
    x, y = xy.round().long().unbind(1)
    left, top, right, bottom = region
    inside = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    return inside if allowed is None else inside & torch.from_numpy(allowed)[y, x]


def _check_selection(header: GraphHeader, wanted: SelectionOptions, name: str) -> None:
    """A graph selects keypoints in one way, but for their number."""
    known, asked = options_to_mapping(header.selection), options_to_mapping(wanted)
    for key, value in asked.items():
        if key != "max_keypoints" and known[key] != value:
            raise OptionsError(
                f"{name} was exported with selection.{key}={known[key]!r}, not {value!r}; "
                f"export it again with --set selection.{key}={value}"
            )


def _onnxruntime(content: bytes, options: ExtractionOptions) -> Runner:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(f"--engine onnx needs onnxruntime ({error}); pip install 'posfeat[onnx]'") from None
    if options.precision in ("bf16", "fp16"):
        raise OptionsError(
            f"ONNX Runtime takes the file's own number format, not {options.precision}; leave out --precision"
        )
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return lambda feed: list(session.run(["keypoints", "descriptors", "scores"], feed))


def _openvino(content: bytes, options: ExtractionOptions) -> Runner:
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError(
            f"--engine openvino needs openvino ({error}); pip install 'posfeat[openvino]'"
        ) from None
    fast = "bf16" if multiplies_bfloat16() else "f32"
    precision = {"auto": fast, "fp32": "f32", "bf16": "bf16", "fp16": "f16"}[options.precision]
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = core.compile_model(core.read_model(content), "CPU", settings)

    def run(feed: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        outputs = compiled(feed)
        return [outputs[name] for name in ("keypoints", "descriptors", "scores")]

    return run
