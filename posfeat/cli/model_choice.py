"""Which weights run where and how: the options that all verbs with a network share."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.networks.posfeat import PoSFeat
    from posfeat.pipeline.extract import Extractor


class Device(str, Enum):
    """Where the network runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Precision(str, Enum):
    """The network's number format."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Kind(str, Enum):
    """What features."""

    posfeat = "posfeat"
    rootsift = "rootsift"


class Engine(str, Enum):
    """What runs the network."""

    torch = "torch"
    onnx = "onnx"
    openvino = "openvino"


FeaturesOption = Annotated[Kind, typer.Option("--features", help="Ours, or RootSIFT, which needs no weights.")]
WeightsOption = Annotated[
    str, typer.Option("--weights", help="'default', a checkpoint, or a folder in the published layout.")
]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to run; auto takes the fastest there is.")]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="What runs the network; --weights may be an exported .onnx file then.")
]
PrecisionOption = Annotated[Precision, typer.Option("--precision", help="Number format; auto takes the fastest.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any option of extraction, such as selection.nms_size=7, scales=[1,0.5] or rotations_deg=[0,90,180,270].",
    ),
]
KeypointsOption = Annotated[int, typer.Option("--max-keypoints", min=1, help="The most keypoints for one image.")]


def load_model(weights: str, device: Device) -> PoSFeat:
    """The model on the device that was asked for."""
    from posfeat.networks.checkpoint import load

    return load(weights, checked_device(device))


def checked_device(device: Device) -> str:
    """The name of the device, which is there; the best one for auto."""
    from posfeat.networks.checkpoint import choose_device
    from posfeat.processor import keep_to_granted_cores

    keep_to_granted_cores()
    return str(choose_device(device.value))


def extraction_options(max_keypoints: int, precision: Precision, overrides: list[str] | None) -> ExtractionOptions:
    """How images are looked at, from what was asked for on the command line."""
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.options import apply_overrides, options_from_mapping

    asked = {"selection": {"max_keypoints": max_keypoints}, "precision": precision.value}
    return options_from_mapping(ExtractionOptions, apply_overrides(asked, overrides or []))


def load_extractor(
    kind: Kind,
    weights: str,
    device: Device,
    max_keypoints: int,
    precision: Precision,
    overrides: list[str] | None,
    engine: Engine = Engine.torch,
) -> Extractor:
    """What turns photos into features, from what was asked for on the command line."""
    from posfeat.pipeline.extract import NetworkExtractor, RootSiftExtractor
    from posfeat.types import OptionsError

    if kind is Kind.posfeat:
        options = extraction_options(max_keypoints, precision, overrides)
        if engine is not Engine.torch:
            return _load_engine(engine, weights, device, options)
        if weights.endswith(".onnx"):
            raise OptionsError(f"{weights} is run by --engine onnx or --engine openvino")
        return NetworkExtractor(load_model(weights, device), options)
    if overrides:
        raise OptionsError(f"--set {overrides[0]} is an option of our own features; RootSIFT has --max-keypoints only")
    return RootSiftExtractor(max_keypoints)


def _load_engine(engine: Engine, weights: str, device: Device, options: ExtractionOptions) -> Extractor:
    from pathlib import Path

    from posfeat.interop.onnx_engine import EngineExtractor
    from posfeat.types import OptionsError

    if device not in (Device.auto, Device.cpu):
        raise OptionsError(f"--engine {engine.value} runs on the processor; leave out --device, or the engine")
    name: Literal["onnx", "openvino"] = "onnx" if engine is Engine.onnx else "openvino"
    if weights.endswith(".onnx"):
        return EngineExtractor.of_file(Path(weights), name, options)
    return EngineExtractor.of_model(load_model(weights, Device.cpu), name, options)
