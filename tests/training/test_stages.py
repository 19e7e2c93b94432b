"""Each stage trains what it should, from every source, and every shipped configuration builds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from posfeat.networks.checkpoint import load_checkpoint
from posfeat.training.description_stage import DescriptionOptions, contrast_weight
from posfeat.training.distributed import Workers
from posfeat.training.loop import learning_rate
from posfeat.training.run import build_stage, read_run_options, run_stage
from posfeat.types import DataError, OptionsError
from tests.training.conftest import CONFIGS

QUICK = ("data.height=64", "data.width=96", "validation.pairs=4", "loop.steps=2", "loop.precision=fp32")


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_is_readable(config):
    options = read_run_options(config, [])
    assert options.loop.steps > 0


def test_the_papers_schedules_and_its_public_codes():
    paper, code = (
        [read_run_options(CONFIGS / f"{name}_{stage}.yaml", []) for stage in ("description", "detection")]
        for name in ("paper", "public_code")
    )
    for options in (*paper, *code):
        assert (options.data.height, options.data.width) == (480, 640)
        assert options.data.look.kind == "colour_jitter"
        assert options.data.geometry.strength == 0
        assert options.data.pairs.max_rotation_deg == 80
        assert options.data.pairs.max_pairs_per_scene == 5000
        assert options.description.contrast_weight == options.detection.expected.weight == 0
        assert options.loop.weight_decay == 0
    for options, steps in zip(paper, (100_000, 5_000), strict=True):
        assert (options.loop.steps, options.loop.batch_size, options.loop.optimiser) == (steps, 6, "sgd")
        assert {learning_rate(step, options.loop) for step in (0, steps // 2, steps - 1)} == {1e-3}
        assert options.loop.momentum > 0
        assert options.detection.policy.normalise
        assert options.detection.policy.truncation == 0.9
        assert options.description.search.noise == "paper"
    for options, rate, last in zip(code, (1e-4, 1e-3), (10_000, 1_000), strict=True):
        before = options.loop.steps - last
        rates = [learning_rate(step, options.loop) for step in (0, before - 1, before, options.loop.steps - 1)]
        assert rates == pytest.approx([rate, rate, rate / 10, rate / 10])
    assert [options.loop.batch_size for options in code] == [8, 6]
    assert code[0].description.search.noise == "symmetric"
    assert not code[1].detection.policy.normalise
    assert code[1].detection.policy.truncation == 0


def test_the_line_contrast_fades():
    options = DescriptionOptions(contrast_weight=2.0, contrast_steps=100)
    assert [contrast_weight(step, options) for step in (0, 50, 100, 1000)] == [2.0, 1.0, 0.0, 0.0]
    assert contrast_weight(1000, DescriptionOptions(contrast_weight=2.0)) == 2.0


def test_a_misspelt_option_names_the_nearest():
    with pytest.raises(OptionsError, match=r"did you mean loop\.learning_rate"):
        read_run_options(CONFIGS / "tiny.yaml", ["loop.learning_rat=0.1"])
    assert read_run_options(CONFIGS / "tiny.yaml", ["loop.learning_rate=1e-4"]).loop.learning_rate == 1e-4


def test_nothing_to_train_on(tmp_path):
    with pytest.raises(DataError, match="nothing to train on"):
        run_stage("description", read_run_options(CONFIGS / "tiny.yaml", []), tmp_path, Workers())


def test_coarse_to_fine_trains(tiny, tmp_path):
    changes = ("description.strategy=coarse_to_fine", "description.contrast_weight=0.0")
    options = tiny(*QUICK, *changes, "model.compact_description.coarse=true")
    run_stage("description", options, tmp_path / "run", Workers())
    with pytest.raises(OptionsError, match="coarse=true"):
        run_stage("description", tiny(*QUICK, *changes), tmp_path / "other", Workers())


@pytest.mark.parametrize("description_weight", [0.0, 1.0])
def test_joint_training_changes_both_networks(tiny, tmp_path, description_weight):
    options = tiny(*QUICK, f"joint.description_weight={description_weight}", "joint.detection.policy.truncation=0.0")
    torch.manual_seed(options.seed)
    before = build_stage("joint", options).model.state_dict()
    run_stage("joint", options, tmp_path / "run", Workers())
    after = load_checkpoint(tmp_path / "run" / "last.safetensors").state_dict()
    for part in ("description.head.weight", "detection.worth.weight"):
        assert not torch.equal(before[part], after[part])


def test_detection_leaves_the_description_as_it_is(tiny, tmp_path):
    run_stage("description", tiny(*QUICK), tmp_path / "description", Workers())
    weights = tmp_path / "description" / "last.safetensors"
    run_stage("detection", tiny(*QUICK, f"start.weights={weights}"), tmp_path / "detection", Workers())
    before = load_checkpoint(weights).state_dict()
    after = load_checkpoint(tmp_path / "detection" / "last.safetensors").state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items() if key.startswith("description"))
    assert not torch.equal(before["detection.worth.weight"], after["detection.worth.weight"])
    with pytest.raises(OptionsError, match=r"start\.weights"):
        run_stage("detection", tiny(*QUICK), tmp_path / "none", Workers())


def test_posed_photos_are_a_source(tiny, tmp_path, posfeat_data):
    posed = Path(posfeat_data) / "posed" / "strecha_herzjesu_P8"
    options = tiny(*QUICK, f"data.posed=[{posed}]", f"data.validation_posed=[{posed}]", "validation.posed_pairs=2")
    result = run_stage("description", options, tmp_path / "run", Workers())
    assert "posed_3px" in result
