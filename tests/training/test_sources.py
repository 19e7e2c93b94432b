"""What training draws from: photos held out by their names, posed pairs chosen or taken from a checked list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from posfeat.data.check_run import CheckSettings, run_check
from posfeat.data.posed_source import PosedSource
from posfeat.training.distributed import Workers
from posfeat.training.sources import DataOptions, open_sources, training_batches, validation_batches
from posfeat.types import DataError
from tests.data.rendered_scene import write_rendered_scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("posed") / "relief"
    write_rendered_scene(root, 4)
    return root


def posed_names(options: DataOptions) -> set[str]:
    (source,) = open_sources(options).training
    assert isinstance(source, PosedSource)
    return {f"{pair.view0.name} {pair.view1.name}" for pairs in source.scenes.values() for pair in pairs}


def test_a_checked_list_says_which_pairs_are_used(scene, tmp_path):
    options = DataOptions(posed=(str(scene),), height=96, width=128, held_out=0.0)
    (report,) = run_check(scene, tmp_path / "check", CheckSettings())
    assert report.num_usable_pairs >= 3
    checked = replace(options, pair_list=str(tmp_path / "check" / "pairs.txt"))
    names = {f"{pair.view0.name} {pair.view1.name}" for pair in report.pairs}
    assert posed_names(checked) == names
    lines = (tmp_path / "check" / "pairs.txt").read_text().splitlines()
    (tmp_path / "check" / "pairs.txt").write_text("\n".join(lines[:2]) + "\n")
    assert len(posed_names(checked)) == 1
    assert open_sources(checked).fingerprint["hash"] != open_sources(options).fingerprint["hash"]
    with pytest.raises(DataError, match=r"none\.txt cannot be read"):
        open_sources(replace(options, pair_list=str(tmp_path / "none.txt")))


def test_posed_photos_train_and_validate(scene):
    options = DataOptions(posed=(str(scene),), validation_posed=(str(scene),), height=96, width=128, workers=0)
    sources = open_sources(options)
    batch = next(training_batches(sources, options, 2, seed=0, first_step=0, workers=Workers()))
    assert batch.image0.shape == (2, 3, 96, 128)
    assert bool(batch.has_baseline.all())
    rendered, posed = validation_batches(sources, options, 4, 4, 2)
    assert (rendered, len(posed)) == ([], 2)


def test_posed_photos_alone_are_held_out_too(scene):
    """So that a run on nothing but posed photos is judged, by true positions and by lines."""
    options = DataOptions(posed=(str(scene),), height=96, width=128, workers=0)
    sources = open_sources(options)
    (trained,), (judged,) = sources.training, sources.posed_validation
    seen, kept = (
        {v.name for pairs in s.scenes.values() for p in pairs for v in (p.view0, p.view1)} for s in (trained, judged)
    )
    assert len(kept - seen) >= 1
    assert all({pair.view0.name, pair.view1.name} - seen for pairs in judged.scenes.values() for pair in pairs), (
        "every judged pair shows a photo that is not trained on"
    )
    assert {path.name for path in sources.rendered_validation.paths} == {Path(name).name for name in kept - seen}
    rendered, posed = validation_batches(sources, options, 2, 2, 2)
    assert rendered[0].map1_from_map0 is not None
    assert posed[0].map1_from_map0 is None
    nothing = open_sources(replace(options, held_out=0.0))
    assert nothing.rendered_validation is None
    assert nothing.posed_validation == []


def test_held_out_photos_are_never_trained_on(photos):
    options = DataOptions(photos=(str(photos),), held_out=0.3)
    sources = open_sources(options)
    assert sources.rendered_validation is not None
    kept, held_out = set(sources.training[0].paths), set(sources.rendered_validation.paths)
    assert kept
    assert held_out
    assert kept & held_out == set()
    assert kept | held_out == set(photos.glob("*.png"))
    assert sources.fingerprint["held_out"] == len(held_out)
