"""``posfeat reconstruct``: from a folder of photos to cameras and 3D."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.export import DEFAULT_FORMATS, FormatsOption
from posfeat.cli.extract import PARTLY, print_failure
from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
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
from posfeat.cli.scene_options import (
    CameraModelOption,
    CameraParamsOption,
    DeterministicOption,
    FixCamerasOption,
    KnownCamerasOption,
    Mapper,
    MapperOption,
    MaxErrorOption,
    NeighboursOption,
    OverlapOption,
    PairListOption,
    PairMethod,
    PairMethodOption,
    SeedOption,
    Sharing,
    SharingOption,
    camera_options,
    mapping_options,
    pair_options,
    print_models,
    verification_options,
)

if TYPE_CHECKING:
    from posfeat.matching import MatchOptions
    from posfeat.pipeline.reconstruct import ReconstructionSummary

EXAMPLES = """\b
Examples:
  posfeat reconstruct photos/ -o scene/
  posfeat reconstruct video_frames/ -o scene/ --pairs sequential --share-camera single
  posfeat reconstruct photos/ -o scene/ --features rootsift --mapper global
  posfeat reconstruct photos/ -o scene/ --cameras old_model/ --pairs poses --fix-cameras
"""
_TITLES = {
    "extract": "extracting",
    "pairs": "choosing pairs",
    "match": "matching",
    "verify": "verifying",
    "map": "mapping",
    "export": "exporting",
    "report": "writing the report",
}
_LEFT_OUT_SHOWN = 10


def reconstruct(
    photos: Annotated[Path, typer.Argument(metavar="FOLDER", help="Photos, in folders below it as well.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for everything that is made; it is gone on with.")
    ] = Path("scene"),
    pairs: PairMethodOption = PairMethod.auto,
    neighbours: NeighboursOption = 20,
    overlap: OverlapOption = 10,
    pair_list: PairListOption = None,
    cameras: KnownCamerasOption = None,
    camera_model: CameraModelOption = "SIMPLE_RADIAL",
    camera_params: CameraParamsOption = None,
    share_camera: SharingOption = Sharing.auto,
    fix_cameras: FixCamerasOption = False,
    mapper: MapperOption = Mapper.incremental,
    max_error: MaxErrorOption = 4.0,
    ratio: Annotated[
        float | None, typer.Option("--ratio", min=0, max=1, help="Largest distance ratio of best to second best.")
    ] = None,
    seed: SeedOption = 0,
    deterministic: DeterministicOption = False,
    formats: FormatsOption = DEFAULT_FORMATS,
    masks: Annotated[
        Path | None, typer.Option("--masks", help="Folder of masks named as the photos; nothing is found where black.")
    ] = None,
    max_keypoints: KeypointsOption = 4096,
    kind: FeaturesOption = Kind.posfeat,
    overrides: SetOption = None,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
) -> None:
    """Compute where photos were taken, and the 3D points that they see."""
    from posfeat.pipeline.reconstruct import ReconstructionOptions
    from posfeat.pipeline.reconstruct import reconstruct as run

    options = ReconstructionOptions(
        pairs=pair_options(pairs, neighbours, overlap, pair_list),
        matching=_matching(ratio),
        cameras=camera_options(camera_model, camera_params, share_camera),
        verification=verification_options(max_error, max(seed, 0) if deterministic else seed),
        mapping=mapping_options(mapper, fix_cameras, seed, deterministic),
    )
    extractor = load_extractor(kind, weights, device, max_keypoints, precision, overrides)
    summary = run(
        extractor,
        photos,
        output,
        options,
        mask_folder=masks,
        cameras=cameras,
        pair_list=pair_list,
        formats=[wanted.value for wanted in formats],
        progress_bar=lambda step: progress_bar(_TITLES[step]),
        on_failure=print_failure,
    )
    _tell(summary, output)
    if summary.failures:
        raise typer.Exit(PARTLY)


def _matching(ratio: float | None) -> MatchOptions | None:
    from posfeat.matching import MatchOptions

    return None if ratio is None else MatchOptions(ratio=ratio)


def _tell(summary: ReconstructionSummary, output: Path) -> None:
    print_models(summary.models, summary.num_photos)
    print(f"verified pairs: {summary.num_verified_pairs} of {summary.num_pairs}")
    for line in summary.doubts:
        print(f"doubt: {line}")
    for name, why in list(summary.left_out.items())[:_LEFT_OUT_SHOWN]:
        print(f"not in the model: {name}: {why}")
    if len(summary.left_out) > _LEFT_OUT_SHOWN:
        print(f"not in the model: {len(summary.left_out) - _LEFT_OUT_SHOWN} more; the report names them")
    times = ", ".join(f"{step} {seconds:.1f}" for step, seconds in summary.seconds.items())
    print(f"seconds: {times}")
    print(f"model: {output / 'sparse' / '0'}")
    print(f"report: {output / 'report.html'}")
