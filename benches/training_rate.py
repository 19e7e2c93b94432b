"""Drawing batches against training on them, and the line contrast against the paper's loss alone; the compact networks.

    python benches/training_rate.py                      # configs/compact_description.yaml: 8 pairs of 320x240, bf16
    python benches/training_rate.py --photos my_photos --threads 2

Drawing is rendering two views of a photo and changing their look. All take turns in one process with equal threads. ``cpu`` is
the processor time of the whole process: on a busy machine it says more than the clock. Without --photos, scikit-image's
photos are drawn from.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from posfeat.data.images import write_image
from posfeat.data.loader import PairLoader
from posfeat.data.photo_source import PhotoSource
from posfeat.demo.sample_photos import PhotoName, sample_photo
from posfeat.training.description_stage import DescriptionStage
from posfeat.training.distributed import item_generators
from posfeat.training.loop import build_optimiser, to_device
from posfeat.training.run import RunOptions, build_stage, read_run_options
from posfeat.types import PairBatch

CONFIG = Path(__file__).parents[1] / "configs" / "compact_description.yaml"
CPU = torch.device("cpu")


def training_step(options: RunOptions, batch: PairBatch, contrast_weight: float) -> Callable[[], None]:
    """One update of the description network on a batch that is there already."""
    torch.manual_seed(0)
    stage = build_stage(
        "description", replace(options, description=replace(options.description, contrast_weight=contrast_weight))
    )
    assert isinstance(stage, DescriptionStage)
    stage.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stage.prepare()
    parameters = [p for p in stage.parameters() if p.requires_grad]
    optimiser, generators = build_optimiser(parameters, options.loop), item_generators(0, 0, range(len(batch.names)))

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.loop.precision == "bf16"):
            loss = stage(to_device(batch, CPU), generators).loss
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 10.0)
        optimiser.step()

    return step


def timed(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, tuple[float, float]]:
    """Median time by the clock and by the processor, in seconds; the runs take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for repeat in range(repeats + 2):
        for name, run in runs.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            if repeat >= 2:
                times[name].append((time.perf_counter() - start, time.process_time() - start_cpu))
    return {name: tuple(map(statistics.median, zip(*values, strict=True))) for name, values in times.items()}  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--photos", type=Path, help="a folder of photos; scikit-image's otherwise")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    options = read_run_options(CONFIG, [])
    data, size = options.data, options.loop.batch_size
    with tempfile.TemporaryDirectory() as folder:
        if arguments.photos is None:
            for name in get_args(PhotoName):
                write_image(Path(folder) / f"{name}.png", sample_photo(name))
        source = PhotoSource(arguments.photos or folder, data.rendering, data.look)
        loader = PairLoader([source], None, size, data.height, data.width, 0, workers=arguments.threads, raw=True)
        batches = iter(loader)
        batch = next(batches)
        runs: dict[str, Callable[[], object]] = {
            "paper's loss": training_step(options, batch, 0.0),
            "with line contrast": training_step(options, batch, 1.0),
        }
        times = timed(runs, arguments.repeats)
        for _ in range(5):  # what threads have drawn ahead
            next(batches)
        times |= timed({"drawing": lambda: [next(batches) for _ in range(3)]}, arguments.repeats)
        times["drawing"] = (times["drawing"][0] / 3, times["drawing"][1] / 3)

    print(f"{size} pairs of {data.width}x{data.height}, {options.loop.precision}, {arguments.threads} threads")
    for name, (clock, cpu) in times.items():
        print(f"{name:20} {1e3 * clock:7.0f} ms, cpu {1e3 * cpu:7.0f} ms a batch: {size / clock:6.1f} pairs/s")
    plain, contrast, drawing = (times[name] for name in ("paper's loss", "with line contrast", "drawing"))
    print(
        "drawing is faster than training by "
        + " and ".join(f"{a / b:.1f}" for a, b in zip(contrast, drawing, strict=True))
    )
    print(
        "the contrast takes "
        + " and ".join(f"{100 * (a / b - 1):.0f} %" for a, b in zip(contrast, plain, strict=True))
        + " more time (clock, cpu)"
    )


if __name__ == "__main__":
    main()
