"""``posfeat export``: what other programs read: a scene's model in their formats, or the network as an ONNX file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.model_choice import SetOption, WeightsOption, extraction_options
from posfeat.cli.progress import progress_bar

app = typer.Typer(help="Write a scene's model, or the network itself, for other programs.", no_args_is_help=True)


class Format(str, Enum):
    """What a model is written as."""

    ply = "ply"
    nerfstudio = "nerfstudio"
    undistorted = "undistorted"
    text = "text"


class GraphPrecision(str, Enum):
    """The number format in an ONNX file."""

    fp32 = "fp32"
    fp16 = "fp16"


SCENE_EXAMPLES = """\b
Examples:
  posfeat export scene sparse/0 photos/ -o scene/
  posfeat export scene sparse/0 photos/ -o scene/ --format undistorted
"""
ONNX_EXAMPLES = """\b
Examples:
  posfeat export onnx -o posfeat.onnx
  posfeat extract photos/ --engine openvino --weights posfeat.onnx
"""
DEFAULT_FORMATS = [Format.ply, Format.nerfstudio, Format.undistorted]
FormatsOption = Annotated[
    list[Format],
    typer.Option("--format", help="What to write (again for more): undistorted is for Gaussian splatting."),
]


@app.callback()
def _export() -> None:
    """Write a scene's model, or the network itself, for other programs."""


@app.command("scene", epilog=SCENE_EXAMPLES)
def scene(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a COLMAP model.")],
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="Its photos.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what is written.")] = Path("."),
    formats: FormatsOption = DEFAULT_FORMATS,
) -> None:
    """Write a model as PLY, transforms.json, undistorted photos with their cameras, or text."""
    from posfeat.pipeline.export import export_model

    with progress_bar("exporting") as progress:
        report = export_model(
            model, photos, output, [wanted.value for wanted in formats], progress=progress, on_failure=print_failure
        )
    for path in report.written:
        print(f"written: {path}")
    if report.failures:
        raise typer.Exit(PARTLY)


@app.command("onnx", epilog=ONNX_EXAMPLES)
def onnx(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("posfeat.onnx"),
    weights: WeightsOption = "default",
    precision: Annotated[
        GraphPrecision, typer.Option("--precision", help="Number format; fp16 halves the file.")
    ] = GraphPrecision.fp32,
    overrides: SetOption = None,
) -> None:
    """Write the network with its keypoint selection as one ONNX file, for any image size and number of keypoints.

    ONNX Runtime and OpenVINO run it, and its inputs and outputs are those of the ALIKED models that COLMAP 4 loads.
    """
    from posfeat.cli.model_choice import Device, Precision, load_model
    from posfeat.interop.onnx_export import export_onnx
    from posfeat.types import OptionsError

    options = extraction_options(1, Precision.fp32, overrides)
    for override in overrides or []:
        if not override.startswith("selection."):
            raise OptionsError(f"--set {override} is no part of an exported network; only selection.KEY=VALUE is")
    export_onnx(load_model(weights, Device.cpu), output, options.selection, precision.value)
    print(f"written: {output}, {output.stat().st_size / 1e6:.1f} MB")
