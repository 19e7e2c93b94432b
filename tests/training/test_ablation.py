"""The ablation plan means what it says, and a plan of a few steps runs from photos to the table."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from posfeat.cli import app
from posfeat.training.ablation_plan import planned_runs, read_plan
from posfeat.training.ablation_runs import read_outcome, train_run, train_runs
from posfeat.training.run import check_same_run
from posfeat.types import OptionsError
from tests.benchmarks.miniature_sequences import write_sequence

PLAN = Path(__file__).parents[2] / "configs" / "plans" / "ablation.yaml"
SHORT = ("start_steps=2", "description_steps=2", "detection_steps=1", "keypoints=100")
SMALL = ("options.data.height=64", "options.data.width=96", "options.validation.pairs=4", "options.loop.batch_size=2")


def runs_of(scale, *only, overrides=()):
    plan = read_plan(PLAN, scale, overrides)
    ablation = plan.ablation.chosen(only)
    return {run.name: run for run in planned_runs(plan, ablation.models, Path("runs"))}


@pytest.mark.parametrize("scale", list(yaml.safe_load(PLAN.read_text())["scales"]))
def test_every_scale_has_eight_models_and_nine_cells(scale):
    ablation = read_plan(PLAN, scale).ablation
    assert [m.name for m in ablation.models if m.part == "models"] == [f"Model {k}" for k in range(1, 9)]
    assert len(ablation.grid) == 9
    assert len({cell.model for cell in ablation.grid}) == 9
    assert {one.better for one in ablation.comparisons} <= {model.name for model in ablation.models}
    assert len(runs_of(scale)) == (27 if scale != "paper" else 26)


def test_joint_and_decoupled_have_equal_losses_and_lengths():
    runs = runs_of("tiny")
    l2w, detector, joint = (runs[name].options for name in ("l2w", "l2w_detector", "joint"))
    assert joint.joint.description == l2w.description
    assert joint.joint.detection == detector.detection
    assert joint.loop.steps == l2w.loop.steps + detector.loop.steps
    assert runs["reward"].options.joint.description_weight == 0
    assert l2w.start.weights == str(Path("runs/start/last.safetensors"))


def test_searches_are_compared_under_the_papers_loss_alone_from_equal_weights():
    runs = runs_of("tiny")
    l2w, c2f = runs["l2w"].options, runs["c2f"].options
    assert (l2w.description.strategy, c2f.description.strategy) == ("line_to_window", "coarse_to_fine")
    assert l2w.description.contrast_weight == c2f.description.contrast_weight == 0
    assert (l2w.start, l2w.loop, l2w.data, l2w.model) == (c2f.start, c2f.loop, c2f.data, c2f.model)
    assert l2w.model.compact_description.coarse
    assert runs["start"].options.description.epipolar_weight == 0


def test_query_points_differ_in_nothing_else():
    runs = runs_of("tiny", "queries")
    assert list(runs) == ["start", "sift_queries", "sift_queries_detector"]
    grid, sift = runs_of("tiny")["l2w"].options, runs["sift_queries"].options
    assert sift.description.query_points == "sift"
    assert dataclasses.replace(sift.description, query_points="grid") == grid.description
    assert dataclasses.replace(sift, name=grid.name, description=grid.description) == grid


def test_runs_from_before_an_option_existed_had_its_default(photos, tmp_path):
    plan = read_plan(PLAN, "tiny", [*SHORT, *SMALL])
    changes = {"data": {"photos": [str(photos)]}}
    (run,) = planned_runs(plan, plan.ablation.chosen(["Model 3"]).models, tmp_path, changes)[:1]
    outcome = train_run(run, tmp_path, "cpu", None)
    config = tmp_path / run.name / "config.yaml"
    options = yaml.safe_load(config.read_text())
    del options["description"]["query_points"]
    config.write_text(yaml.safe_dump(options))
    assert train_run(run, tmp_path, "cpu", None) == read_outcome(run, tmp_path) == outcome
    check_same_run(run.stage, run.options, tmp_path / run.name, resume=True)


def test_the_papers_grid_is_the_papers():
    cells = read_plan(PLAN, "paper").ablation.grid
    assert sorted({cell.line_points for cell in cells}) == [75, 100, 125]
    assert sorted({cell.window for cell in cells}) == [0.075, 0.1, 0.125]
    runs = runs_of("paper")
    cell = next(cell for cell in cells if (cell.line_points, cell.window) == (75, 0.125))
    search = runs["grid_75_0.125"].options.description.search
    assert (search.line_points, search.window) == (cell.line_points, cell.window)
    assert runs["l2w"].start is None, "ImageNet's encoder is the start"


def test_a_part_needs_only_its_own_runs():
    assert list(runs_of("tiny", "Model 4")) == ["start", "c2f"]
    assert list(runs_of("tiny", "Model 2", overrides=["start_steps=0"])) == ["joint"]
    with pytest.raises(OptionsError, match="Model 9"):
        runs_of("tiny", "Model 9")


def test_what_is_wrong_with_a_plan_is_said(tmp_path):
    with pytest.raises(OptionsError, match="no scale huge: tiny"):
        read_plan(PLAN, "huge")
    with pytest.raises(OptionsError, match="scale step_start"):
        read_plan(PLAN, "tiny", ["step_start=3"])
    (tmp_path / "plan.yaml").write_text("runs: 3\n")
    with pytest.raises(OptionsError, match=r"plan\.yaml is no readable plan"):
        read_plan(tmp_path / "plan.yaml", "tiny")


def test_from_photos_to_the_table_and_nothing_is_trained_twice(photos, tmp_path):
    for name in ("i_dome", "v_wall"):
        write_sequence(tmp_path / "data" / name)
    command = ["evaluate", "ablation", str(PLAN), "--scale", "tiny", "--photos", str(photos), "--device", "cpu"]
    command += ["--sequences", str(tmp_path / "data"), "-o", str(tmp_path / "out"), "--methods", "rootsift"]
    for name in ("Model 1", "Model 2", "Model 3", "Model 4", "Model 5"):
        command += ["--only", name]
    for override in (*SHORT, *SMALL):
        command += ["--set", override]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    assert "decoupled training beats joint training" in first.output

    results = json.loads((tmp_path / "out" / "results.json").read_text())
    names = [method["method"] for method in results["accuracy"]["methods"]]
    assert names == ["Model 1", "Model 2", "Model 3", "Model 4", "Model 5", "rootsift"]
    steps = {outcome["name"]: outcome["steps"] for outcome in results["training"]}
    assert steps == {"start": 2, "l2w_detector": 1, "l2w": 2, "joint": 3, "c2f": 2}
    text = (tmp_path / "out" / "ablation.md").read_text()
    assert text.startswith("# Ablations at the scale tiny\n\n## Claims\n")
    assert re.search(r"\| decoupled training beats joint training \| [+-]0\.\d{3} \| \d of 2 sequences \|", text)
    assert "| Model 4 | coarse-to-fine" in text
    assert "![MMA of Models 1 to 8](fig8.svg)" in text
    assert results["accuracy"]["provenance"]["data"] in text
    assert "Fig. 8" in (tmp_path / "out" / "report.html").read_text()
    assert b"<svg" in (tmp_path / "out" / "fig8.svg").read_bytes()

    weights = tmp_path / "out" / "runs" / "l2w" / "last.safetensors"
    before = weights.stat().st_mtime_ns
    again = CliRunner().invoke(app, [*command, "--no-train"], catch_exceptions=False)
    assert again.exit_code == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text())["training"] == results["training"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert weights.stat().st_mtime_ns == before

    with pytest.raises(OptionsError, match="trained with another loop"):
        CliRunner().invoke(app, [*command, "--set", "options.loop.learning_rate=0.5"], catch_exceptions=False)


def test_a_run_that_fails_costs_only_what_starts_from_it(photos, tmp_path):
    plan = read_plan(PLAN, "tiny", [*SHORT, *SMALL])
    runs = planned_runs(
        plan, plan.ablation.chosen(["Model 1", "Model 4"]).models, tmp_path, {"data": {"photos": [str(photos)]}}
    )
    (tmp_path / "l2w").mkdir()
    (tmp_path / "l2w" / "config.yaml").write_text("stage: description\nseed: 7\nloop: {}\n")
    outcomes = {outcome.name: outcome for outcome in train_runs(runs, tmp_path, "cpu", parallel=2, threads=1)}
    assert "run with another" in outcomes["l2w"].failure
    assert "the run l2w failed" in outcomes["l2w_detector"].failure
    assert not outcomes["start"].failure
    assert outcomes["c2f"].steps == 2
