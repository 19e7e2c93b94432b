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
from posfeat.cli.ray_options import RayCpusOption, RayGpusOption, RayOption, cluster_options, require_path

if TYPE_CHECKING:
    from posfeat.networks.extraction import ExtractionOptions
    from posfeat.networks.posfeat import PoSFeat
    from posfeat.pipeline.extract import ExtractionReport, Extractor
    from posfeat.pipeline.feature_store import DescriptorFormat
    from posfeat.scale.cluster import ClusterOptions

EXAMPLES = """\b
Examples:
  posfeat extract photos/ -o features.h5
  posfeat extract photos/ -o features.h5 --masks masks/ --max-keypoints 8192
  posfeat extract photos/ -o features.h5 --set rotations_deg=[0,90,180,270]
  posfeat extract photos/ -o features.h5 --features rootsift
  posfeat extract photos/ -o features/ --ray local
  posfeat extract s3://bucket/photos -o s3://bucket/features --ray 10.0.0.1:6379 --ray-gpus 1
"""
FILE, SHARDS = "features.h5", "features"  # what is written unless somebody says otherwise
PARTLY = 1  # exit code where the work is done but some of it failed


def extract(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Photos, in folders below it as well; with --ray an address too.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="The feature file (HDF5, hloc's layout); it is gone on with. With --ray a folder of such files.",
            show_default=FILE,
        ),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option("--masks", help="A mask for all photos, or a folder of masks named as they; black is left out."),
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
    ray: RayOption = None,
    ray_cpus: RayCpusOption = 1,
    ray_gpus: RayGpusOption = 0.0,
) -> None:
    """Extract the features of all photos of a folder.

    They are written into one file, or into many on a Ray cluster.
    """
    number_format: DescriptorFormat = "float32" if full_precision else "float16"
    if ray is None:
        for place in (folder, output or FILE):
            require_path(place)
        extractor = load_extractor(kind, weights, device, max_keypoints, precision, overrides, engine)
        failed = extract_with_progress(
            extractor, Path(folder), Path(output or FILE), masks=masks, descriptor_format=number_format
        )
    else:
        cluster = cluster_options(ray, ray_cpus, ray_gpus)
        require_torch(engine)
        extractor = load_extractor(kind, weights, Device.cpu, max_keypoints, precision, overrides)
        failed = _extract_on_ray(extractor, folder, output or SHARDS, cluster, masks, number_format, device)
    if failed:
        raise typer.Exit(PARTLY)


def require_torch(engine: Engine) -> None:
    """Workers get a model of torch's."""
    from posfeat.types import OptionsError

    if engine is not Engine.torch:
        raise OptionsError(f"--engine {engine.value} does not go with --ray; leave out one of them")


def _extract_on_ray(
    extractor: Extractor,
    folder: str,
    output: str,
    cluster: ClusterOptions,
    masks: Path | None,
    descriptor_format: DescriptorFormat,
    device: Device,
) -> int:
    from posfeat.scale.extract import extract_on_ray

    with progress_bar("extracting on Ray") as progress:
        report = extract_on_ray(
            extractor,
            folder,
            output,
            cluster,
            mask_folder=masks,
            descriptor_format=descriptor_format,
            device=None if device is Device.auto else device.value,
            progress=progress,
            on_failure=print_failure,
        )
    return _tell(report, output)


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
    return _tell(report, str(output))


def _tell(report: ExtractionReport, output: str) -> int:
    print(f"extracted: {report.num_extracted}, there already: {report.num_known}, failed: {len(report.failures)}")
    if report.num_without_mask:
        print(f"without a mask: {report.num_without_mask}")
    print(f"features: {output}")
    return len(report.failures)


def print_failure(line: str) -> None:
    """Tell of a photo or a pair that is left out, as soon as that is known."""
    print(f"posfeat: left out: {line}", file=sys.stderr)
