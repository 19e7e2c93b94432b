"""hloc's own reader reads our files, where hloc is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.types import Features, Matches


def test_hlocs_reader(tmp_path: Path) -> None:
    io: Any = pytest.importorskip("hloc.utils.io")
    features = Features(torch.rand(9, 2) * 4000, torch.rand(9), F.normalize(torch.rand(9, 128), dim=1), (4000, 4000))
    matches = Matches(torch.tensor([[3, 8], [0, 2]]), torch.tensor([0.9, 0.8]))
    with FeatureStore(tmp_path / "f.h5", "a") as store, MatchStore(tmp_path / "m.h5", "a") as match_store:
        store.write("db/1.jpg", features)
        match_store.write("db/1.jpg", "query/1.jpg", matches, len(features))
    keypoints, uncertainty = io.get_keypoints(tmp_path / "f.h5", "db/1.jpg", return_uncertainty=True)
    np.testing.assert_array_equal(keypoints, features.keypoints.numpy())
    assert uncertainty > 0
    assert io.list_h5_names(tmp_path / "f.h5") == ["db/1.jpg"]
    for names, columns in ((("db/1.jpg", "query/1.jpg"), [0, 1]), (("query/1.jpg", "db/1.jpg"), [1, 0])):
        found, scores = io.get_matches(tmp_path / "m.h5", *names)
        assert sorted(found.tolist()) == sorted(matches.indices[:, columns].tolist())
        assert len(scores) == 2
