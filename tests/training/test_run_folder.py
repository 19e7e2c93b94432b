"""What a run leaves behind: enough to do it again, to judge it, and to use its weights."""

from __future__ import annotations

import json
import math

import pytest
import torch
import yaml
from typer.testing import CliRunner

from posfeat.cli import app
from posfeat.networks.checkpoint import load, load_checkpoint, read_card
from posfeat.training.distributed import Workers
from posfeat.training.run import read_run_options, run_stage
from posfeat.types import OptionsError
from tests.training.conftest import CONFIGS

QUICK = ("data.height=64", "data.width=96", "validation.pairs=4", "loop.steps=3", "loop.log_every=1")


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    """A short run from the command line."""
    folder = tmp_path_factory.mktemp("runs") / "short"
    command = ["train", "description", str(CONFIGS / "tiny.yaml"), "-o", str(folder), "--device", "cpu"]
    for override in (*QUICK, f"data.photos=[{photos}]", "loop.learning_rate=2e-3", "name=short"):
        command += ["--set", override]
    outcome = CliRunner().invoke(app, command, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return folder


def test_the_run_can_be_done_again(run, tmp_path):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["stage"] == "description"
    assert config["loop"]["learning_rate"] == 2e-3, "what --set changed is in the file"
    said = json.loads((run / "provenance.json").read_text())
    assert {"command", "package_version", "commit", "torch", "python", "machine", "data"} <= said.keys()
    assert said["data"]["photos"] + said["data"]["held_out"] == 24
    run_stage("description", read_run_options(run / "config.yaml", []), tmp_path / "again", Workers())
    before, after = (load_checkpoint(folder / "last.safetensors").state_dict() for folder in (run, tmp_path / "again"))
    for key, value in before.items():
        torch.testing.assert_close(value, after[key], rtol=1e-3, atol=1e-4, msg=key)


def test_numbers_and_pictures_are_kept(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if line["kind"] == "training"]
    assert [line["step"] for line in training] == [1, 2, 3]
    assert {"loss", "epipolar_px", "valid_share", "line_contrast", "gradient_norm", "learning_rate"} <= training[
        0
    ].keys()
    (validation,) = (line for line in lines if line["kind"] == "validation")
    assert 0 <= validation["dense_4px"] <= 1
    assert sorted(path.name for path in (run / "pictures").iterdir()) == ["0000003_matches_0.jpg"]


def test_tensorboard_shows_the_same_numbers(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulator.EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    losses = [event.value for event in board.Scalars("training/loss")]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert losses == pytest.approx([line["loss"] for line in lines if line["kind"] == "training"], rel=1e-4)
    assert "validation/dense_4px" in board.Tags()["scalars"]


def test_weights_are_ready_to_use_and_say_where_they_come_from(run):
    card = read_card(run / "best.safetensors")
    assert (card.name, card.trained, card.seed) == ("short", True, 0)
    assert "dense_4px" in card.notes
    features = load(run / "last.safetensors", "cpu").extract(torch.rand(3, 64, 96), 20)
    assert features.descriptors.shape[1] == 32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sixteen_bits(precision, tiny, tmp_path):
    """fp16's scaler may skip a step whose gradient overflows; weights stay finite and move."""
    options = tiny(*QUICK, "loop.steps=6", "loop.warmup=0", f"loop.precision={precision}")
    run_stage("description", options, tmp_path / "run", Workers())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["loss"]) for line in lines if line["kind"] == "training")
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert all(bool(value.isfinite().all()) for value in state["model"].values())
    assert bool(state["scaler"]) == (precision == "fp16")


def test_parts_of_a_batch_make_one_step(tiny, tmp_path):
    options = tiny(*QUICK, "loop.accumulate=4", "loop.batch_size=4")
    run_stage("description", options, tmp_path / "run", Workers())
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert state["step"] == 3
    assert {entry["step"].item() for entry in state["optimiser"]["state"].values()} == {3}
    with pytest.raises(OptionsError, match=r"loop\.accumulate=3 parts of a batch of 4"):
        run_stage("description", tiny(*QUICK, "loop.accumulate=3", "loop.batch_size=4"), tmp_path / "no", Workers())


def test_without_anything_to_judge_by_the_last_weights_are_the_best(tiny, tmp_path):
    options = tiny(*QUICK, "data.held_out=0.0", "loop.validate_every=1")
    assert run_stage("description", options, tmp_path / "run", Workers()) == {}
    last, best = (load_checkpoint(tmp_path / "run" / f"{name}.safetensors").state_dict() for name in ("last", "best"))
    assert all(torch.equal(value, best[key]) for key, value in last.items())


def test_what_was_logged_before_the_first_save_is_dropped_on_resuming(tiny, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "kind": "training"}\n{"step": 2, "ki')
    run_stage("description", tiny(*QUICK), tmp_path / "run", Workers(), resume=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "training"] == [1, 2, 3]
