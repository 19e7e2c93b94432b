"""``posfeat adapt``: features tuned to somebody's own photos, with proof."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.model_choice import Device, DeviceOption, WeightsOption, checked_device
from posfeat.cli.progress import progress_bar
from posfeat.cli.scene_options import Sharing, SharingOption

if TYPE_CHECKING:
    from posfeat.adapt.options import AdaptOptions
    from posfeat.adapt.round import Events

EXAMPLES = """\b
Examples:
  posfeat adapt my_scene/ -o mine.safetensors
  posfeat adapt photos/ -o mine.safetensors --minutes 60 --rounds 2
  posfeat adapt video_frames/ -o dive.safetensors --pairs sequential --share-camera single
  posfeat adapt my_scene/ -o mine.safetensors --generic holiday_photos/ --masks masks/
  posfeat match a.jpg b.jpg --weights mine.safetensors
"""


class PairMethod(str, Enum):
    """Which photos of a folder are matched."""

    auto = "auto"
    exhaustive = "exhaustive"
    sequential = "sequential"
    retrieval = "retrieval"


def adapt(
    source: Annotated[
        Path, typer.Argument(help="Posed photos (a COLMAP model, nerfstudio, cameras.txt), or a folder of photos.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The weights to use; a folder of the same name holds the rest.")
    ] = Path("adapted.safetensors"),
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="Minutes of tuning, over all rounds.")] = 20.0,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=5, help="Reconstruct a folder and tune so many times.")
    ] = 1,
    pairs: Annotated[
        PairMethod, typer.Option("--pairs", help="Which photos of a folder are matched; sequential for video frames.")
    ] = PairMethod.auto,
    share_camera: SharingOption = Sharing.auto,
    masks: Annotated[
        Path | None, typer.Option("--masks", help="Folder of masks named as the photos; black parts are not looked at.")
    ] = None,
    generic: Annotated[
        Path | None, typer.Option("--generic", help="A folder of any other photos, against forgetting.")
    ] = None,
    trust_poses: Annotated[
        bool, typer.Option("--trust-poses", help="Do not verify poses by SIFT, which fails on some kinds of images.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all random choices.")] = 0,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads of the network.")] = None,
    weights: WeightsOption = "default",
    device: DeviceOption = Device.auto,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any option, such as tune.posed_share=0.7.")
    ] = None,
) -> None:
    """Tune weights to your own photos, measure before and after, and say whether it was worth it."""
    import torch

    from posfeat.adapt.run import adapt_to

    asked: dict[str, object] = {
        "minutes": minutes,
        "rounds": rounds,
        "match_pairs": pairs.value,
        "share_camera": share_camera.value,
        "trust_poses": trust_poses,
        "seed": seed,
    }
    options = _options(asked, overrides or [])
    where = checked_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    result = adapt_to(
        source,
        output,
        options,
        weights=weights,
        masks=masks,
        generic=generic,
        device=where,
        events=_events(),
    )
    print(f"{result.verdict.sentence}\nweights: {result.weights}\nreport: {result.report}")


def _options(asked: dict[str, object], overrides: list[str]) -> AdaptOptions:
    from posfeat.adapt.options import AdaptOptions
    from posfeat.options import apply_overrides, options_from_mapping

    return options_from_mapping(AdaptOptions, apply_overrides(asked, overrides))


def _events() -> Events:
    from posfeat.adapt.round import Events

    return Events(say=print, bar=progress_bar, tuning=_TuningLine())


class _TuningLine:
    """Every validation's gain as a line, and in a terminal a line that renews itself with each step."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console, self._said = Console(stderr=True), ""

    def __call__(self, stage, progress, gain) -> None:  # type: ignore[no-untyped-def]
        judged = f"validation {gain:+.3f}" if progress.validation else "not yet validated"
        left = f"{progress.seconds_left / 60:.1f} min left"
        if self._console.is_terminal:
            self._console.print(f"{stage}: step {progress.step}, {judged}, {left}    ", end="\r", highlight=False)
        elif judged != self._said:
            self._console.print(f"{stage}: step {progress.step}, {judged}, {left}", highlight=False, soft_wrap=True)
        self._said = judged
