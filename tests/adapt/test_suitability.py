"""Sources that cannot teach anything are refused, or warned about, with the reason."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from posfeat.adapt.round import ONE_PLACE, Events, share_out
from posfeat.adapt.run import adapt_to
from posfeat.data.images import read_image, write_image
from posfeat.data.posed import read_posed
from posfeat.types import DataError
from tests.adapt import corridor


@pytest.fixture
def share(quick, tmp_path):
    """Prepare, examine and split a folder."""

    def run(folder, *overrides):
        return share_out(read_posed(folder), tmp_path / "work", quick(*overrides), Events.silent())

    return run


def test_a_walk_is_shared_out_by_place(walk, share):
    parts = share(walk)
    assert parts.warnings == []
    assert parts.split.by_place
    names = [set(part) for part in (parts.split.training, parts.split.validation, parts.split.held_out)]
    assert min(map(len, names)) >= 4
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    assert not names[1] & names[2]
    # a photo's number says where along the wall it was taken; no two parts see the same piece of it
    seen = [{int(name[-7:-4]) for name in part} for part in names]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert min(abs(a - b) for a in seen[one] for b in seen[other]) >= 4


def test_it_is_not_examined_twice(walk, share):
    before = share(walk)
    again = share(walk, "check.min_matches=10000")
    assert again.split == before.split
    assert [(p.view0.name, p.view1.name) for p in again.pairs] == [(p.view0.name, p.view1.name) for p in before.pairs]


def test_wrong_poses(tmp_path, share):
    views = corridor.photograph(tmp_path / "wrong", corridor.walk(24))
    order = np.random.default_rng(0).permutation(len(views))
    corridor.with_poses_of(tmp_path / "wrong", views, [views[i] for i in order])
    with pytest.raises(DataError, match="the poses are wrong: SIFT matches of"):
        share(tmp_path / "wrong")


def test_some_wrong_poses_are_left_out(walk, tmp_path, share):
    views = read_posed(walk)
    shutil.copytree(walk, tmp_path / "some")
    moved = [corridor.moved(view, number in (5, 30)) for number, view in enumerate(views)]
    corridor.with_poses_of(tmp_path / "some", read_posed(tmp_path / "some"), moved)
    parts = share(tmp_path / "some")
    assert any("2 photos have wrong poses and are left out: images/0" in line for line in parts.warnings)
    used = {*parts.split.training, *parts.split.validation, *parts.split.held_out}
    assert not used & {"images/005.png", "images/030.png"}


def test_pure_rotation(tmp_path, share):
    corridor.photograph(tmp_path / "turning", corridor.turning(24))
    with pytest.raises(DataError, match=r"taken from one place: .* hardly any parallax"):
        share(tmp_path / "turning")


def test_a_single_place_is_warned_about(tmp_path, share):
    corridor.photograph(tmp_path / "place", corridor.around_one_place(24))
    parts = share(tmp_path / "place")
    assert not parts.split.by_place
    assert ONE_PLACE in parts.warnings
    assert not set(parts.split.training) & set(parts.split.held_out)


def test_copies_are_refused(tmp_path, share):
    folder = tmp_path / "copies"
    views = corridor.photograph(folder, corridor.walk(24))
    for number, view in enumerate(views):
        write_image(view.image_path, read_image(views[number % 4].image_path))
    with pytest.raises(DataError, match="4 photos that differ from one another are too few"):
        share(folder)


def test_a_copy_is_left_out(walk, tmp_path, share):
    folder = tmp_path / "copy"
    shutil.copytree(walk, folder)
    write_image(folder / "images" / "020.png", read_image(folder / "images" / "019.png"))
    parts = share(folder)
    assert parts.warnings[0] == "1 photos are copies of others and are left out, such as images/020.png"


def test_ten_photos(tmp_path, share):
    corridor.photograph(tmp_path / "ten", corridor.walk(10))
    with pytest.raises(
        DataError, match="10 photos are too few to learn from and to tell whether it helped; give at least 20"
    ):
        share(tmp_path / "ten")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("wrong", "the poses are wrong"), ("turning", "taken from one place"), ("ten", "10 photos are too few")],
)
def test_the_whole_verb_refuses_and_writes_no_weights(kind, reason, tiny_weights, quick, tmp_path):
    cameras = {"wrong": corridor.walk(24), "turning": corridor.turning(24), "ten": corridor.walk(10)}[kind]
    views = corridor.photograph(tmp_path / kind, cameras)
    if kind == "wrong":
        order = np.random.default_rng(0).permutation(len(views))
        corridor.with_poses_of(tmp_path / kind, views, [views[i] for i in order])
    with pytest.raises(DataError, match=reason):
        adapt_to(tmp_path / kind, tmp_path / "mine.safetensors", quick(), weights=tiny_weights)
    assert not (tmp_path / "mine.safetensors").exists()


def test_photos_that_sift_cannot_match(walk, tmp_path, share):
    folder = tmp_path / "hidden"
    shutil.copytree(walk, folder)
    for number, path in enumerate(sorted((folder / "images").iterdir())):
        write_image(path, corridor.hidden(read_image(path), number))
    with pytest.raises(DataError, match=r"cannot be verified: SIFT confirms .* give --trust-poses"):
        share(folder)
    parts = share(folder, "trust_poses=true")
    assert any("were not verified, as asked" in line for line in parts.warnings)


def test_poses_of_pale_photos_are_verified(walk, tmp_path, share):
    folder = tmp_path / "pale"
    shutil.copytree(walk, folder)
    for path in (folder / "images").iterdir():
        write_image(path, corridor.pale(read_image(path)))
    parts = share(folder)
    assert parts.warnings == []
    assert len(parts.pairs) > 100
