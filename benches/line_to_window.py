"""Stage 1's search and loss against the direct way: gathering a descriptor at every line and window point.

    python benches/line_to_window.py            # batch 6 at 640x480, 1,200 queries a view, both directions

Both compute the same numbers, forward and backward, without the network. Each runs in a process of its own, so that its
peak memory can be read; the larger of resident memory less what was there before is printed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from in_turn import Row
from torch import Tensor

from posfeat.geometry.pixels import inside_image, sample_map
from posfeat.geometry.pose import pose_from_rotation_translation, rotation_from_axis_angle
from posfeat.losses.epipolar_loss import epipolar_loss
from posfeat.losses.epipolar_targets import EpipolarTargets, epipolar_targets
from posfeat.losses.line_to_window import (
    SearchOptions,
    SearchResult,
    search_line_to_window,
    window_noise,
    window_offsets,
)
from posfeat.losses.query_points import grid_query_points

STRIDE = 4


def direct_search(
    map0: Tensor, map1: Tensor, xy0: Tensor, targets: EpipolarTargets, options: SearchOptions, uniform: Tensor
) -> SearchResult:
    """Line-to-window search that gathers descriptors at all points, as the equations are written."""
    height, width = map1.shape[-2] * STRIDE, map1.shape[-1] * STRIDE
    unit1 = F.normalize(map1, dim=1)
    queries = F.normalize(sample_map(F.normalize(map0, dim=1), xy0, STRIDE), dim=1).transpose(1, 2)
    along = torch.linspace(0, 1, options.line_points, dtype=xy0.dtype)[:, None]
    candidates = targets.start[:, :, None] + along * (targets.end - targets.start)[:, :, None]
    with torch.no_grad():
        on_line = sample_map(unit1, candidates, STRIDE)
        best = torch.einsum("bnd,bdnl->bnl", queries, on_line).argmax(-1)
    centre = candidates.gather(2, best[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
    centre = centre + window_noise(uniform, height, width, options)
    columns, rows = (max(2, round(options.window * size / STRIDE)) for size in (width, height))
    offsets = torch.meshgrid(
        window_offsets(columns, STRIDE, centre), window_offsets(rows, STRIDE, centre), indexing="xy"
    )
    points = centre.unsqueeze(2) + torch.stack(offsets, dim=-1).reshape(-1, 2)
    similarity = torch.einsum("bnd,bdnp->bnp", queries, sample_map(unit1, points, STRIDE))
    valid = targets.valid & inside_image(centre, height, width)
    usable = inside_image(points, height, width) | ~valid.unsqueeze(-1)
    probability = (similarity * options.temperature).masked_fill(~usable, float("-inf")).softmax(-1).unsqueeze(-1)
    expected = (probability * points).sum(2)
    half = points.new_tensor([width / 2, height / 2])
    variance = (probability * ((points - expected.detach().unsqueeze(2)) / half).square()).sum(2)
    return SearchResult(
        expected, variance.clamp(min=1e-10).sqrt().sum(-1), valid, centre, torch.zeros_like(valid, dtype=xy0.dtype)
    )


def problem(
    batch: int, height: int, width: int, cell_px: int
) -> tuple[Tensor, Tensor, Tensor, EpipolarTargets, Tensor]:
    """Smooth random maps of both directions, query points, their lines, and the windows' random numbers."""
    generator = torch.Generator().manual_seed(0)
    both = 2 * batch
    rough = torch.randn(both, 128, height // 32, width // 32, generator=generator)
    maps = F.interpolate(rough, (height // STRIDE, width // STRIDE), mode="bicubic")
    maps = maps.contiguous(memory_format=torch.channels_last)
    intrinsics = torch.tensor([[0.8 * width, 0, width / 2], [0, 0.8 * width, height / 2], [0, 0, 1]]).expand(both, 3, 3)
    turn = rotation_from_axis_angle(0.1 * torch.randn(both, 3, generator=generator))
    pose = pose_from_rotation_translation(turn, torch.randn(both, 3, generator=generator))
    xy = torch.stack([grid_query_points(height, width, cell_px, generator) for _ in range(both)])
    baseline = torch.ones(both, dtype=torch.bool)
    targets = epipolar_targets(xy, intrinsics, intrinsics, pose, baseline, height, width)
    return maps, torch.cat(maps.chunk(2)[::-1]), xy, targets, torch.rand(xy.shape, generator=generator)


def measure(way: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Time, memory and result of one way, in this process."""
    map0, map1, xy, targets, uniform = problem(arguments.batch, arguments.height, arguments.width, arguments.cell)
    map0, map1 = map0.requires_grad_(), map1.requires_grad_()
    search = direct_search if way == "direct" else search_line_to_window
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(arguments.repeats):
        map0.grad = map1.grad = None
        start = time.perf_counter()
        found = search(map0, map1, xy, targets, SearchOptions(), uniform=uniform)
        loss = epipolar_loss(found, targets, min(arguments.height, arguments.width))[0].mean()
        loss.backward()
        times.append(time.perf_counter() - start)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert map0.grad is not None
    assert map1.grad is not None
    result = {"loss": float(loss), "grad0": float(map0.grad.norm()), "grad1": float(map1.grad.norm())}
    return {"seconds": min(times), "mib": peak} | result


def in_fresh_processes(given: list[str]) -> dict[str, dict[str, float]]:
    """What both ways measure, each in a process of its own."""
    printed = {
        way: subprocess.run(
            [sys.executable, __file__, *given, "--way", way], check=True, capture_output=True, text=True
        )
        for way in ("direct", "ours")
    }
    return {way: json.loads(done.stdout) for way, done in printed.items()}


def rows() -> list[Row]:
    found = in_fresh_processes(["--batch", "2", "--threads", str(torch.get_num_threads())])
    name, peer = "line-to-window, batch of 2", "gathering every point"
    return [
        Row(name, peer, found["ours"]["seconds"] * 1e3, found["direct"]["seconds"] * 1e3, "ms"),
        Row(f"memory of {name}", peer, found["ours"]["mib"], found["direct"]["mib"], "MiB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--cell", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", choices=["ours", "direct"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments)))
        return
    found = in_fresh_processes(sys.argv[1:])
    for way, values in found.items():
        print(f"{way:7s}" + "  ".join(f"{key} {value:.6g}" for key, value in values.items()))
    time_ratio, memory_ratio = (found["direct"][key] / found["ours"][key] for key in ("seconds", "mib"))
    print(f"ours is {time_ratio:.1f} times faster and needs 1/{memory_ratio:.1f} of the memory")


if __name__ == "__main__":
    main()
