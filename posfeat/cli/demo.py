"""``posfeat demo``: the main job on photos that an installed package carries, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posfeat.cli.model_choice import (
    Device,
    DeviceOption,
    KeypointsOption,
    Precision,
    PrecisionOption,
    WeightsOption,
    extraction_options,
    load_model,
)
from posfeat.cli.progress import progress_bar

EXAMPLES = """\b
Examples:
  posfeat demo
  posfeat demo -o demo_output --weights runs/mine/best.safetensors
"""


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the pictures and report.html.")] = Path(
        "demo_output"
    ),
    max_keypoints: KeypointsOption = 2048,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = Precision.auto,
) -> None:
    """Match two real photos, and reconstruct a rendered gallery.

    The cameras of the gallery are known exactly, so that all of it is judged by the truth.
    """
    from posfeat.demo.origin import describe_origin
    from posfeat.demo.report import write_report
    from posfeat.demo.run import run_demo

    model = load_model(weights, device)
    origin, warning = describe_origin(model, weights, precision.value)
    results = run_demo(model, output, extraction_options(max_keypoints, precision, None), progress_bar)
    write_report(output, results, origin, warning)
    real, gallery = results.real, results.gallery
    print(f"two real photos: {real.num_matches} matches, {real.right_share:.1%} of them right")
    print(
        f"gallery of {len(gallery.views)} views: {gallery.num_matches} matches, {gallery.right_share:.1%} of them right"
    )
    rebuilt = results.rebuilt
    if isinstance(rebuilt, str):
        print(f"gallery not reconstructed: {rebuilt}")
    else:
        errors = rebuilt.errors
        print(
            f"gallery reconstructed: {rebuilt.model.num_images} of {errors.num_true} views, centres "
            f"{errors.mean_centre_percent:.3f} % of the scene's size off, rotations {errors.mean_rotation_deg:.3f}°"
        )
    print(f"open in a browser: {output / 'report.html'}")
