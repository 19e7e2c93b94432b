"""From nothing, in about a minute: descriptions that match, then keypoints that come again."""

from __future__ import annotations

import json

import pytest

from posfeat.networks.checkpoint import load_checkpoint
from posfeat.training.detection_stage import description_fingerprint
from posfeat.training.distributed import Workers
from posfeat.training.run import run_stage


def validations(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "validation"]


@pytest.mark.slow
def test_both_stages_learn(tiny, tmp_path):
    described = run_stage("description", tiny(), tmp_path / "description", Workers())
    # chance is one cell in 768: 0.1 %, or about 1 % within 4 px
    assert described["dense_4px"] > 0.25
    weights = tmp_path / "description" / "best.safetensors"
    options = tiny(
        f"start.weights={weights}",
        "loop.steps=250",
        "loop.learning_rate=0.01",
        "detection.expected.weight=1.0",
        "detection.policy.truncation=0",  # descriptors of a minute: hardly a match is as likely as 0.9
        "loop.validate_every=5",
        "loop.average=0.0",
    )
    last = run_stage("detection", options, tmp_path / "detection", Workers())
    first = validations(tmp_path / "detection")[0]
    assert last["repeatability"] > first["repeatability"] + 0.1
    assert last["mma"] > first["mma"] + 0.05
    before, after = load_checkpoint(weights), load_checkpoint(tmp_path / "detection" / "best.safetensors")
    assert description_fingerprint(before) == description_fingerprint(after)
