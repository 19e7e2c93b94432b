"""The whole way: posed photos in, weights, numbers and a page out; stopped and gone on with; better, or not worth it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from safetensors.torch import load_file

from posfeat.adapt.round import Events
from posfeat.adapt.run import Adapted, adapt_to
from posfeat.cli import main
from posfeat.networks.checkpoint import load_checkpoint, read_card
from posfeat.types import DataError, OptionsError
from tests.adapt.conftest import QUICK


class StoppedError(Exception):
    """What the test stops tuning with."""


class Ran(NamedTuple):
    """An adaptation that was stopped while the detector was tuned, and gone on with."""

    result: Adapted
    output: Path
    description: bytes  # the weights when it was stopped
    steps: list[tuple[str, int]]  # of the second session


@pytest.fixture(scope="module")
def ran(walk, tiny_weights, quick, tmp_path_factory):
    output = tmp_path_factory.mktemp("adapted") / "mine.safetensors"
    steps = []

    def stop(stage, progress, gain):
        if stage == "detection":
            raise StoppedError

    def listen(stage, progress, gain):
        steps.append((stage, progress.step))

    with pytest.raises(StoppedError):
        adapt_to(walk, output, quick(), weights=tiny_weights, events=_listening(stop))
    description = _best(output).read_bytes()
    result = adapt_to(walk, output, quick(), weights=tiny_weights, events=_listening(listen))
    return Ran(result, output, description, steps)


def test_it_tunes_measures_and_reports(ran):
    sentence = ran.result.verdict.sentence
    assert sentence.startswith(("Better:", "Not worth it:"))
    assert ran.result.weights == ran.output
    load_checkpoint(ran.output)
    assert sentence in read_card(ran.output).notes
    numbers = json.loads((_folder(ran.output) / "results.json").read_text())
    assert numbers["before"]["pairs"] == numbers["after"]["pairs"] == 6
    page = ran.result.report.read_text()
    assert sentence in page
    assert page.count("<figure>") == 8


def test_a_model_card_tells_where_the_weights_come_from(ran):
    card = (_folder(ran.output) / "model_card.md").read_text()
    assert ran.result.verdict.sentence in card
    assert "| recall at 3 px |" in card
    assert "licence: Apache-2.0" in card


def test_statistics_stay_those_of_the_start(ran):
    start, tuned = (load_file(path) for path in (_folder(ran.output) / "start.safetensors", _best(ran.output)))
    statistics = [key for key in start if "running_" in key]
    assert statistics
    assert all((start[key] == tuned[key]).all() for key in statistics)
    assert any((start[key].half() != tuned[key].half()).any() for key in start if key.startswith("description."))


def test_what_was_done_is_not_done_again(ran):
    assert {stage for stage, _ in ran.steps} == {"detection"}
    assert _best(ran.output).read_bytes() == ran.description


def test_another_run_is_not_gone_on_with(ran, walk, tiny_weights, quick):
    with pytest.raises(OptionsError, match="holds a run with another seed"):
        adapt_to(walk, ran.output, quick("seed=1"), weights=tiny_weights)


def test_weights_that_are_no_better_are_not_recommended(walk, tiny_weights, quick, tmp_path):
    output = tmp_path / "same.safetensors"
    still = quick("tune.description_rate=0", "tune.detection_rate=0", "tune.steps=1")
    result = adapt_to(walk, output, still, weights=tiny_weights)
    assert not result.verdict.better
    assert "Keep tiny.safetensors" in result.verdict.sentence
    start, written = load_file(tiny_weights), load_file(output)
    assert all((start[key] == written[key]).all() for key in start)


def test_on_the_command_line(ran, walk, tiny_weights, monkeypatch, capsys):
    """The same run once more: all of it is there but the numbers."""
    settings = [part for option in QUICK if not option.startswith("minutes") for part in ("--set", option)]
    where = [walk, "-o", ran.output, "--weights", tiny_weights, "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["posfeat", "adapt", "--minutes", "5", *map(str, [*where, *settings])])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "apart by place" in shown
    assert "before: precision at 3 px" in shown
    assert f"{ran.result.verdict.sentence}\nweights: {ran.output}" in shown


def test_what_cannot_be_asked(walk, tiny_weights, quick, tmp_path):
    with pytest.raises(OptionsError, match=r"must end in \.safetensors"):
        adapt_to(walk, tmp_path / "mine", quick(), weights=tiny_weights)
    with pytest.raises(OptionsError, match="--rounds is for folders of photos"):
        adapt_to(walk, tmp_path / "mine.safetensors", quick("rounds=2"), weights=tiny_weights)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="found neither pictures nor cameras"):
        adapt_to(tmp_path / "empty", tmp_path / "mine.safetensors", quick(), weights=tiny_weights)
    with pytest.raises(DataError, match="no photos in"):
        adapt_to(walk, tmp_path / "mine.safetensors", quick(), weights=tiny_weights, generic=tmp_path / "empty")


def _listening(tuning):
    silent = Events.silent()
    return Events(silent.say, silent.bar, tuning)


def _best(output):
    return _folder(output) / "round_1" / "description" / "best.safetensors"


def _folder(output):
    return output.with_suffix("")
