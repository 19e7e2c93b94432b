"""A model as one ONNX file that needs nothing of ours: for ONNX Runtime, OpenVINO, COLMAP 4, browsers and phones.

The file also says which weights it holds and how keypoints are selected in it, see ``GraphHeader``.
"""

from __future__ import annotations

import copy
import io
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from posfeat import __version__
from posfeat.data.images import shown
from posfeat.interop.onnx_graph import KeypointGraph
from posfeat.networks.checkpoint import weights_digest
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import options_from_mapping
from posfeat.types import CheckpointError, MissingExtraError, OptionsError, PosfeatError

GraphPrecision = Literal["fp32", "fp16"]
OPSET = 17
_PROBE_SIZE = (96, 112)  # a height and a width; the graph takes any
_DYNAMIC = {
    "image": {2: "height", 3: "width"},
    "keypoints": {1: "num_keypoints"},
    "descriptors": {1: "num_keypoints"},
    "scores": {1: "num_keypoints"},
}


@dataclass(frozen=True)
class GraphHeader:
    """What an ONNX file of ours says about itself."""

    weights: str  # digest of the weights it was made from
    selection: SelectionOptions
    precision: GraphPrecision
    version: str = __version__


def export_onnx(
    model: PoSFeat, path: Path, selection: SelectionOptions | None = None, precision: GraphPrecision = "fp32"
) -> None:
    """Write a model as one ONNX file; the file is either the old one or the whole new one."""
    content = onnx_bytes(model, selection or SelectionOptions(), precision)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        if part.is_file():
            part.unlink()
        raise PosfeatError(f"cannot write {shown(path)}: {error.strerror}; choose another place") from None


def onnx_bytes(model: PoSFeat, selection: SelectionOptions, precision: GraphPrecision = "fp32") -> bytes:
    """The ONNX file of a model."""
    onnx = load_onnx()
    dtype = torch.float16 if precision == "fp16" else torch.float32
    graph = KeypointGraph(copy.deepcopy(model).cpu(), selection, dtype).eval()
    example = (torch.rand(1, 3, *_PROBE_SIZE), torch.tensor(100), torch.tensor(0.0))
    written = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is meant here
        torch.onnx.export(
            graph,
            example,
            written,  # type: ignore[arg-type]  # a file object will do
            dynamo=False,  # the newer exporter cannot leave the number of keypoints open
            opset_version=OPSET,
            input_names=["image", "max_keypoints", "min_score"],
            output_names=["keypoints", "descriptors", "scores"],
            dynamic_axes=_DYNAMIC,
        )
    proto = onnx.load_model_from_string(written.getvalue())
    header = GraphHeader(weights_digest(model), selection, precision)
    onnx.helper.set_model_props(proto, {"posfeat": json.dumps(asdict(header))})
    onnx.checker.check_model(proto)
    content: bytes = proto.SerializeToString()
    return content


def read_graph_header(content: bytes, name: str | os.PathLike[str]) -> GraphHeader:
    """What an ONNX file of ours says about itself; ``name`` is for messages."""
    onnx = load_onnx()
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own kinds of errors
        raise CheckpointError(f"{shown(name)} is no ONNX file or is cut short; export it again") from error
    properties = {entry.key: entry.value for entry in proto.metadata_props}
    try:
        return options_from_mapping(GraphHeader, json.loads(properties["posfeat"]))
    except (KeyError, ValueError, TypeError, OptionsError) as error:
        raise CheckpointError(
            f"{shown(name)} was not written by this version of posfeat; write it with: posfeat export onnx"
        ) from error


def load_onnx() -> Any:
    """The module onnx, or an error that names the extra to install."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(f"ONNX files need onnx ({error}); pip install 'posfeat[onnx]'") from None
    return onnx
