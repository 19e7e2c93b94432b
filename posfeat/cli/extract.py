"""``posfeat extract``: a folder of photos into a feature file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
    Engine,
    EngineOption,
    FeaturesOption,
    KeypointsOption,
    Kind,
    Precision,
    PrecisionOption,
    SetOption,
    WeightsOption,
    load_extractor,
)
from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.networks.posfeat import PoSFeat
    from posfeat.pipeline.extract import Extractor
    from posfeat.pipeline.feature_store import DescriptorFormat

EXAMPLES = """\b
Examples:
  posfeat extract photos/ -o features.h5
  posfeat extract photos/ -o features.h5 --masks masks/ --max-keypoints 8192
  posfeat extract photos/ -o features.h5 --set rotations_deg=[0,90,180,270]
  posfeat extract photos/ -o features.h5 --features rootsift
"""
PARTLY = 1  # exit code where the work is done but some of it failed


def extract(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Photos, in folders below it as well.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The feature file (HDF5, hloc's layout); it is gone on with.")
    ] = Path("features.h5"),
    masks: Annotated[
        Path | None, typer.Option("--masks", help="Folder of masks named as the photos; nothing is found where black.")
    ] = None,
    max_keypoints: KeypointsOption = 4096,
    full_precision: Annotated[
        bool, typer.Option("--float32", help="Store descriptors in 32 bits; they are stored in 16.")
    ] = False,
    overrides: SetOption = None,
    kind: FeaturesOption = Kind.posfeat,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
    engine: EngineOption = Engine.torch,
) -> None:
    """Extract the features of all photos of a folder into one file."""
    extractor = load_extractor(kind, weights, device, max_keypoints, precision, overrides, engine)
    number_format: DescriptorFormat = "float32" if full_precision else "float16"
    if extract_with_progress(extractor, folder, output, masks=masks, descriptor_format=number_format):
        raise typer.Exit(PARTLY)


def extract_with_progress(
    model: PoSFeat | Extractor,
    folder: Path,
    output: Path,
    options: ExtractionOptions | None = None,
    masks: Path | None = None,
    descriptor_format: DescriptorFormat = "float16",
) -> int:
    """Extract a folder and tell how it went; how many photos failed."""
    from posfeat.pipeline.extract import extract_folder

    with progress_bar("extracting") as progress:
        report = extract_folder(
            model,
            folder,
            output,
            options,
            mask_folder=masks,
            descriptor_format=descriptor_format,
            progress=progress,
            on_failure=print_failure,
        )
    print(f"extracted: {report.num_extracted}, there already: {report.num_known}, failed: {len(report.failures)}")
    if report.num_without_mask:
        print(f"without a mask: {report.num_without_mask}")
    print(f"features: {output}")
    return len(report.failures)


def print_failure(line: str) -> None:
    """Tell of a photo or a pair that is left out, as soon as that is known."""
    print(f"posfeat: left out: {line}", file=sys.stderr)
