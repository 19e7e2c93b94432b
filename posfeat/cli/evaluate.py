"""posfeat evaluate: the benchmarks, one command each, with a report that says where every number came from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli import (
    evaluate_ablation,
    evaluate_localization,
    evaluate_models,
    evaluate_photos,
    evaluate_reconstruction,
)
from posfeat.cli.evaluate_options import (
    CACHE,
    CacheOption,
    DeviceOption,
    KeypointsOption,
    MethodsOption,
    OutputOption,
    OwnMatcherOption,
    SetOption,
    run_options,
)
from posfeat.cli.evaluate_tables import print_accuracy, print_poses
from posfeat.cli.progress import progress_bar
from posfeat.cli.ray_options import RayCpusOption, RayGpusOption, RayOption, cluster_options

if TYPE_CHECKING:
    from posfeat.benchmarks.run import RunOptions
    from posfeat.scale.cluster import ClusterOptions

EXAMPLES = """\b
Examples:
  posfeat evaluate --check hpatches-sequences-release
  posfeat evaluate hpatches hpatches-sequences-release --methods default rootsift disk xfeat
  posfeat evaluate pose megadepth1500 --pairs pairs_calibrated.txt
  posfeat evaluate rotation photos/ --methods default "default[rotations_deg=[0,90,180,270]]" rootsift
  posfeat evaluate repeatability photos/ --methods default rootsift xfeat --keypoints 1024
  posfeat evaluate eth South-Building --methods default rootsift
  posfeat evaluate reconstruction scenes/ --methods default rootsift --own-matcher
  posfeat evaluate localization scenes/ --methods default rootsift --own-matcher
  posfeat evaluate aachen aachen --version v1.1
  posfeat evaluate ablation configs/plans/ablation.yaml --photos photos/ --sequences oxford_affine -o runs/ablation
"""


def _examples(verb: str) -> str:
    """Those of one benchmark, for its own --help."""
    lines = [line for line in EXAMPLES.splitlines() if f"posfeat evaluate {verb} " in line]
    return "\n".join(["\b", "Examples:", *lines])


app = typer.Typer(help="Measure features on the paper's benchmarks, beside other people's features.", epilog=EXAMPLES)
app.command("ablation", epilog=_examples("ablation"))(evaluate_ablation.ablation)
app.command("eth", epilog=_examples("eth"))(evaluate_models.eth)
app.command("reconstruction", epilog=evaluate_reconstruction.EXAMPLES)(evaluate_reconstruction.reconstruction)
app.command("localization", epilog=evaluate_localization.EXAMPLES)(evaluate_localization.localization)
app.command("aachen", epilog=_examples("aachen"))(evaluate_models.aachen)
app.command("rotation", epilog=_examples("rotation"))(evaluate_photos.rotation)
app.command("repeatability", epilog=_examples("repeatability"))(evaluate_photos.repeatability)


@app.callback(invoke_without_command=True)
def _evaluate(
    context: typer.Context,
    check: Annotated[Path | None, typer.Option("--check", help="Say whether this data set lies as it must.")] = None,
) -> None:
    if check is not None:
        _check(check)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command("hpatches", epilog=_examples("hpatches"))
def hpatches(
    root: Annotated[Path, typer.Argument(help="Folder of HPatches' or of the Oxford affine sequences.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    keypoints: KeypointsOption = 8192,
    output: OutputOption = Path("runs/evaluate/hpatches"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
    ray: RayOption = None,
    ray_cpus: RayCpusOption = 1,
    ray_gpus: RayGpusOption = 0.0,
) -> None:
    """Matching accuracy on image sequences joined by homographies (the paper's Fig. 5 and Table 1)."""
    from posfeat.benchmarks.hpatches_run import run_hpatches

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    if ray is not None:
        from posfeat.benchmarks.hpatches import read_sequences

        images = (image for sequence in read_sequences(root) for image in sequence.images)
        _extract_on_ray(options, root, images, cluster_options(ray, ray_cpus, ray_gpus))
    results = run_hpatches(root, options, output, progress_bar)
    print_accuracy(results)
    print(f"report: {output / 'report.html'}")


@app.command("pose", epilog=_examples("pose"))
def pose(
    root: Annotated[Path, typer.Argument(help="Folder of posed photos: a COLMAP model, .camera files, a pair list's.")],
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    methods: MethodsOption = ["default"],  # noqa: B006
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Text list of pairs with their cameras; it may lie in ROOT.")
    ] = None,
    neighbours: Annotated[
        int | None, typer.Option("--neighbours", min=1, help="Take views up to so far apart in the order of names.")
    ] = None,
    keypoints: KeypointsOption = 8192,
    output: OutputOption = Path("runs/evaluate/pose"),
    cache: CacheOption = CACHE,
    own_matcher: OwnMatcherOption = False,
    device: DeviceOption = None,
    overrides: SetOption = None,
    ray: RayOption = None,
    ray_cpus: RayCpusOption = 1,
    ray_gpus: RayGpusOption = 0.0,
) -> None:
    """Relative poses of pairs of posed photos: pose AUC, epipolar precision, matches."""
    from posfeat.benchmarks.pose_run import run_poses

    options = run_options([*methods, *(more or [])], keypoints, cache, own_matcher, device, overrides)
    if ray is not None:
        from posfeat.benchmarks.pose_pairs import read_pose_pairs
        from posfeat.benchmarks.pose_run import images_of

        images = images_of(read_pose_pairs(root, pairs, neighbours))
        _extract_on_ray(options, root, images, cluster_options(ray, ray_cpus, ray_gpus))
    results = run_poses(root, options, output, pairs, neighbours, progress_bar)
    print_poses(results)
    print(f"report: {output / 'report.html'}")


def _extract_on_ray(options: RunOptions, root: Path, images: Iterable[Path], cluster: ClusterOptions) -> None:
    """Have the features in the cache, where the benchmark finds them."""
    from posfeat.scale.evaluate import export_features

    export_features(options, root, images, cluster, progress_bar)


def _check(root: Path) -> None:
    from posfeat.benchmarks.layouts import check_layout

    found, problems = check_layout(root)
    for line in found:
        print(f"found: {line}")
    for line in problems:
        print(f"problem: {line}")
    if problems:
        raise typer.Exit(2)
    print("nothing is wrong")
