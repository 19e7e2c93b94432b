"""A run that is killed goes on as if nothing had happened; two processes do what one does."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from posfeat.options import options_to_mapping
from posfeat.training.distributed import Workers
from posfeat.training.run import run_stage
from posfeat.types import OptionsError

ROOT = Path(__file__).parents[2]
QUICK = ("data.height=64", "data.width=96", "validation.pairs=4", "loop.precision=fp32", "loop.average=0.9")


def numbers_of(folder):
    """All that a run goes on from, by name and in full precision: the files of weights are rounded to 16 bits."""
    state = torch.load(folder / "state.pt", weights_only=True)
    optimiser = {f"optimiser {i} {key}": v for i, of in state["optimiser"]["state"].items() for key, v in of.items()}
    return state["model"] | state["average"] | optimiser | {"rng": state["rng"]}


def assert_equal_runs(one, other):
    ours, theirs = numbers_of(one), numbers_of(other)
    assert ours.keys() == theirs.keys()
    assert [key for key, value in ours.items() if not torch.equal(value, theirs[key])] == []


def write_config(options, path):
    path.write_text(yaml.safe_dump(options_to_mapping(options)))
    return path


def command(config, folder, *more):
    return [
        sys.executable,
        "-m",
        "posfeat",
        "train",
        "description",
        str(config),
        "-o",
        str(folder),
        "--threads",
        "1",
        *more,
    ]


def test_a_run_that_does_not_get_better_ends_and_stays_ended(tiny, tmp_path):
    torch.set_num_threads(1)
    still = tiny(*QUICK, "loop.steps=20", "loop.learning_rate=0", "loop.validate_every=1", "loop.patience=2")
    for _ in range(2):
        run_stage("description", still, tmp_path / "still", Workers(), resume=True)
        lines = [json.loads(line) for line in (tmp_path / "still" / "metrics.jsonl").read_text().splitlines()]
        values = [line["dense_4px"] for line in lines if line["kind"] == "validation"]
        # the batch norms' statistics still move, and may be better by chance now and then
        assert len(values) == values.index(max(values)) + 3 < 20


def test_stopping_and_resuming_changes_nothing(tiny, tmp_path):
    torch.set_num_threads(1)
    for steps in (3, 5, 8):
        part = tiny(*QUICK, f"loop.steps={steps}", "loop.save_every=1", "loop.schedule=constant")
        run_stage("description", part, tmp_path / "parts", Workers(), resume=True)
    constant = tiny(*QUICK, "loop.steps=8", "loop.schedule=constant")
    run_stage("description", constant, tmp_path / "constant", Workers())
    assert_equal_runs(tmp_path / "constant", tmp_path / "parts")
    with pytest.raises(OptionsError, match="already holds a run"):
        run_stage("description", constant, tmp_path / "constant", Workers())
    with pytest.raises(OptionsError, match="run with another seed"):
        run_stage("description", tiny(*QUICK, "seed=1"), tmp_path / "constant", Workers(), resume=True)


@pytest.mark.slow
def test_killed_at_random_moments(tiny, tmp_path):
    config = write_config(tiny(*QUICK, "loop.steps=200", "loop.save_every=2"), tmp_path / "config.yaml")
    subprocess.run(command(config, tmp_path / "whole"), check=True, cwd=ROOT, capture_output=True)
    chooser = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            command(config, tmp_path / "killed", "--resume"), cwd=ROOT, stderr=subprocess.DEVNULL
        )
        _wait_for_state(tmp_path / "killed" / "state.pt", process)
        time.sleep(chooser.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    subprocess.run(command(config, tmp_path / "killed", "--resume"), check=True, cwd=ROOT, capture_output=True)
    assert_equal_runs(tmp_path / "whole", tmp_path / "killed")
    lines = [json.loads(line) for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    logged = [line["step"] for line in lines if line["kind"] == "training"]
    assert logged == sorted(set(logged))


def _wait_for_state(path, process):
    """Until the process has saved once since it started (or is done)."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == before):
        time.sleep(0.02)


@pytest.mark.slow
def test_two_processes_equal_one(tiny, tmp_path):
    config = write_config(
        tiny(*QUICK, "loop.steps=4", "loop.optimiser=sgd", "loop.average=0.0"), tmp_path / "config.yaml"
    )
    subprocess.run(command(config, tmp_path / "one"), check=True, cwd=ROOT, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(port),
    ]
    two = [sys.executable, *launcher, *command(config, tmp_path / "two")[1:]]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(two, check=True, cwd=ROOT, capture_output=True, env=environment)
    one, two = (torch.load(tmp_path / name / "state.pt", weights_only=True)["model"] for name in ("one", "two"))
    for key, value in one.items():
        torch.testing.assert_close(value, two[key], rtol=1e-3, atol=1e-4, msg=key)


def test_accumulated_parts_equal_their_sum_but_for_batch_norm(tiny):
    """The loss of a batch is the mean of its pairs' losses."""
    from posfeat.data.loader import normalised
    from posfeat.training.distributed import item_generators
    from posfeat.training.loop import split_batch
    from posfeat.training.run import build_stage
    from posfeat.training.sources import open_sources, training_batches

    options = tiny(*QUICK)
    torch.manual_seed(0)
    stage = build_stage("description", options).eval()  # running statistics: pairs do not see each other
    batch = normalised(next(training_batches(open_sources(options.data), options.data, 8, 0, 0, Workers())))
    generators = item_generators(0, 0, range(8))
    whole = stage(batch, generators).loss
    parts = [stage(p, item_generators(0, 0, range(4 * i, 4 * i + 4))).loss for i, p in enumerate(split_batch(batch, 2))]
    torch.testing.assert_close(whole, torch.stack(parts).mean())


def test_a_number_that_is_not_finite_stops_the_run(tiny, tmp_path):
    from posfeat.training.loop import DivergedError

    with pytest.raises(DivergedError, match="training stopped at step"):
        run_stage(
            "description", tiny(*QUICK, "loop.learning_rate=1e30", "loop.optimiser=sgd"), tmp_path / "run", Workers()
        )
