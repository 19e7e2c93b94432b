"""Better is said only where it is sure; mixtures that gain nothing are not taken."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.adapt.blend import Mixture, blended, choose_share
from posfeat.adapt.measure import Measured, Numbers
from posfeat.adapt.verdict import judge, merit
from posfeat.benchmarks.relative_pose import PoseScore
from posfeat.networks.checkpoint import ModelCard, load_checkpoint, save_checkpoint


def measured(precisions, matches=100, errors=None):
    """Pairs of photos in a row, with these precisions at 3 px."""
    scores = []
    for number, value in enumerate(precisions):
        error = 5.0 if errors is None else errors[number]
        scores.append(
            PoseScore("s", f"{number}", f"{number + 1}", matches, (value / 2, value, value, value), error, 0.0)
        )
    right = float(np.mean([value * matches for value in precisions]))
    numbers = Numbers(len(scores), 0.0, float(np.mean(precisions)), right, right / 1000, (0.1, 0.2, 0.3), 0.5)
    return Measured(numbers, scores)


@pytest.mark.parametrize(
    ("gain", "spread", "better"), [(0.1, 0.02, True), (0.0, 0.05, False), (0.02, 0.3, False), (-0.1, 0.02, False)]
)
def test_only_sure_gains_count(gain, spread, better):
    rng = np.random.default_rng(0)
    before = rng.uniform(0.3, 0.7, 40)
    noise = rng.normal(0, spread, 40)
    after = before + gain + noise - noise.mean()
    verdict = judge(measured(before), measured(after), "the default weights", by_place=True)
    assert verdict.better == better
    assert verdict.sentence.endswith("Use the new weights." if better else "Keep the default weights.")


def test_precision_bought_with_matches_is_no_gain():
    before = np.full(40, 0.5)
    assert not judge(measured(before, 100), measured(before + 0.1, 60), "old.safetensors", by_place=True).better


def test_a_little_precision_does_not_outweigh_better_poses():
    before, errors = np.full(40, 0.5), [2.0] * 40
    assert judge(measured(before), measured(before - 0.005, 105, errors), "old", by_place=True).better
    assert not judge(measured(before), measured(before - 0.02, 105, errors), "old", by_place=True).better


def test_worse_poses_speak_against_it():
    before, worse = np.full(40, 0.5), [9.0] * 40
    assert judge(measured(before), measured(before + 0.1), "old", by_place=True).better
    assert not judge(measured(before), measured(before + 0.1, errors=worse), "old", by_place=True).better


def test_merit_rises_with_precision_and_matches():
    start = measured([0.5]).numbers
    assert merit(start, start) == 0
    assert merit(measured([0.6]).numbers, start) > 0
    assert merit(measured([0.5], 50).numbers, start) < 0


def test_the_nearest_of_nearly_equal_mixtures():
    gains = {0.0: 0.0, 0.25: 0.5, 0.5: 0.95, 0.75: 1.0, 1.0: 0.9}
    assert choose_share(lambda share: Mixture(gains[share], 1.0), 0.01)[0] == 0.5
    assert choose_share(lambda share: Mixture(-share, 1.0), 0.01)[0] == 0.0
    assert choose_share(lambda share: Mixture(0.0, 1.0), 0.01)[0] == 0.0


def test_mixtures_that_forget_are_not_taken():
    share, mixtures = choose_share(lambda share: Mixture(share, 1 - share / 50), 0.012)
    assert share == 0.5
    assert mixtures[1.0] == Mixture(1.0, 0.98)
    assert choose_share(lambda share: Mixture(share, 1 - share), 0.01)[0] == 0.0


def test_a_mixture_lies_between(tiny_weights, tmp_path):
    start = load_checkpoint(tiny_weights)
    tuned = load_checkpoint(tiny_weights)
    for value in tuned.state_dict().values():
        if value.is_floating_point():
            value += 1
    save_checkpoint(tmp_path / "tuned.safetensors", tuned, ModelCard(trained=True))
    middle = blended(tiny_weights, tmp_path / "tuned.safetensors", 0.25, start.device).state_dict()
    for key, value in start.state_dict().items():
        if value.is_floating_point():
            assert (middle[key] - value - 0.25).abs().max() < 1e-5, key
