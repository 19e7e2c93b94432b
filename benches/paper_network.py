"""The paper's network on a CPU: whole extraction at 640x480 against the straightforward forward of the same weights.

    python benches/paper_network.py                                # fresh weights
    python benches/paper_network.py --encoder resnet50.safetensors # with an ImageNet encoder
    python benches/paper_network.py --weights paper.safetensors    # a trained checkpoint, or a published folder

Straightforward is what a plain ``model(image)`` does: float32, default memory layout, batch norms as they are; keypoint
selection and descriptor sampling are not even counted. Ours is the public ``model.extract`` from pixels to features.
Both run in turn in one process. Matching accuracy on rendered pairs must not suffer: it is compared as well.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable

import numpy as np
import torch
from in_turn import Row, against, in_turn, photo
from skimage import data as pictures
from torch import Tensor

from posfeat.benchmarks.metrics import mma_score, share_within
from posfeat.data.images import normalise
from posfeat.data.pair_sample import PairSample
from posfeat.data.random_views import ViewOptions
from posfeat.data.synthetic import SyntheticOptions, render_pair
from posfeat.matching import match
from posfeat.networks.checkpoint import load, load_imagenet_encoder
from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.extraction import ExtractionOptions, extract_image, network_features
from posfeat.networks.inference import FastNetworks, choose_dtype
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.types import Features

HEIGHT, WIDTH = 480, 640
PLAIN = "straightforward forward, fp32"


def make_model(arguments: argparse.Namespace) -> PoSFeat:
    if arguments.weights:
        return load(arguments.weights, "cpu")
    torch.manual_seed(0)
    stride = "conv1x1" if arguments.caffe else "conv3x3"
    description = PaperDescriptionOptions(encoder_stride=stride)
    model = build_model(ModelOptions(architecture="paper", paper_description=description)).eval()
    if arguments.encoder:
        assert isinstance(model.description, PaperDescription)
        load_imagenet_encoder(arguments.encoder, model.description)
    return model


def rendered_pairs(count: int) -> list[PairSample]:
    """Two views each of photos that a registry package carries, with the true position of every pixel."""
    photos = [pictures.astronaut(), pictures.coffee(), pictures.chelsea(), pictures.rocket()]
    options = SyntheticOptions(correspondences=True, patch_share=0.0, views=ViewOptions())
    drawn = (np.random.default_rng([5, index]) for index in range(count))
    return [render_pair(photos[i % 4], HEIGHT, WIDTH, rng, options) for i, rng in enumerate(drawn)]


def ways_of(model: PoSFeat, pixels: np.ndarray, options: ExtractionOptions) -> dict[str, Callable[[], object]]:
    """The straightforward forward, and whole extractions."""
    image = normalise(pixels)

    def straightforward() -> None:
        with torch.no_grad():
            model(image)

    ways: dict[str, Callable[[], object]] = {PLAIN: straightforward}
    for precision in ("fp32", "auto"):
        # a model keeps one fast copy: each precision has a model of its own, or every turn would make it anew
        chosen, copied = dataclasses.replace(options, precision=precision), copy.deepcopy(model)
        ways[f"whole extraction, {precision}"] = functools.partial(copied.extract, pixels, options=chosen)
    return ways


def rows() -> list[Row]:
    warnings.filterwarnings("ignore", message=".*untrained.*")
    model = make_model(argparse.Namespace(weights=None, encoder=None, caffe=False))
    times = in_turn(ways_of(model, photo(WIDTH, HEIGHT), ExtractionOptions()), rounds=3, seconds=40)
    return [
        against(times, "whole extraction, auto", PLAIN, 0.5, label="paper's network, whole extraction"),
        against(times, "whole extraction, fp32", PLAIN, label="paper's network, whole extraction, fp32"),
    ]


def accuracy(extract: Callable[[np.ndarray], Features], pairs: list[PairSample]) -> tuple[Tensor, float]:
    """Mean matching accuracy at 1..10 px over pairs, and the mean number of matches whose truth is known."""
    curves, counts = [], []
    for pair in pairs:
        features0, features1 = extract(pair.image0), extract(pair.image1)
        indices = match(features0, features1).indices
        xy0, xy1 = features0.keypoints[indices[:, 0]], features1.keypoints[indices[:, 1]]
        assert pair.map1_from_map0 is not None
        x, y = xy0.round().long().unbind(-1)
        truth = torch.from_numpy(pair.map1_from_map0)[y, x] + (xy0 - xy0.round())
        errors = (truth - xy1).norm(dim=-1)
        errors = errors[errors.isfinite()]
        curves.append(share_within(errors))
        counts.append(len(errors))
    return torch.stack(curves).mean(0), float(np.mean(counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--weights")
    parser.add_argument("--encoder")
    parser.add_argument(
        "--caffe", action="store_true", help="the encoder's weights carry the stride on 1x1 convolutions"
    )
    parser.add_argument("--keypoints", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message=".*untrained.*")
    model, pairs = make_model(arguments), rendered_pairs(arguments.pairs)
    selection = dataclasses.replace(ExtractionOptions().selection, max_keypoints=arguments.keypoints)
    options = ExtractionOptions(selection=selection)
    plain = FastNetworks(model, torch.device("cpu"), torch.float32, model.description.stride, ())
    pixels = pairs[0].image0
    times = in_turn(ways_of(model, pixels, options), arguments.repeats, 300)
    base = times[PLAIN].least
    print(
        f"{WIDTH}x{HEIGHT}, {arguments.keypoints} keypoints, {torch.get_num_threads()} threads; auto is {choose_dtype('auto', model.device)}"
    )
    for name, time in times.items():
        print(f"  {name:32s} {time.least:7.0f} ms   {base / time.least:5.2f} times as fast")
    slow, count_slow = accuracy(
        lambda pixels: extract_image(functools.partial(network_features, plain), pixels, None, options), pairs
    )
    fast, count_fast = accuracy(lambda pixels: model.extract(pixels, options=options), pairs)
    print(f"rendered pairs: {len(pairs)}; known matches {count_slow:.0f} and {count_fast:.0f}")
    for threshold in (1, 3, 5):
        a, b = float(slow[threshold - 1]), float(fast[threshold - 1])
        print(f"  MMA@{threshold}  fp32 {a:.4f}   ours {b:.4f}   difference {b - a:+.4f}")
    print(f"  MMAscore  fp32 {mma_score(slow):.4f}   ours {mma_score(fast):.4f}")


if __name__ == "__main__":
    main()
