"""Pictures against forgetting are always the same, differ from one another, and judge on others than they teach."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posfeat.adapt.generic import NUM_PICTURES, Generic, fallen_leaves, generic_pictures


def test_pictures_are_reproducible_and_full_of_edges():
    one, other = fallen_leaves(0), fallen_leaves(1)
    assert (one == fallen_leaves(0)).all()
    assert np.abs(one.astype(int) - other).mean() > 20
    slopes = np.abs(np.diff(one.astype(int).mean(axis=2), axis=1))
    assert 0.02 < (slopes > 20).mean() < 0.3


def test_they_are_written_once(tmp_path, monkeypatch):
    paths = generic_pictures(tmp_path / "generic")
    assert len(paths) == NUM_PICTURES
    monkeypatch.setattr("posfeat.adapt.generic.fallen_leaves", lambda seed: 1 / 0)
    assert generic_pictures(tmp_path / "generic") == paths


def test_what_judges_was_not_learnt_from():
    photos = [Path(f"{number}.jpg") for number in range(24)]
    generic = Generic.of_photos(photos)
    assert (len(generic.to_learn), len(generic.to_judge)) == (18, 6)
    assert not set(generic.to_learn) & set(generic.to_judge)
    assert Generic.of_photos(photos[:3]) == Generic(photos[:3], photos[:3], 1.0)
