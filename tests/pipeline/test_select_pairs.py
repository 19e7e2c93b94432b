"""Which pairs each method chooses, on sets where the right ones are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import read_pairs
from posfeat.pipeline.retrieval import ImageIndex, index_images
from posfeat.pipeline.select_pairs import (
    PairSelectionOptions,
    covisible_pairs,
    natural_order,
    near_pairs,
    select_pairs,
    sequential_pairs,
    similar_pairs,
)
from posfeat.types import DataError, Features, OptionsError, StoreError, View
from tests.pipeline.projected_scene import CAMERA, pose, write_scene

NUM_PLACES, PER_PLACE = 6, 5


def place_store(path: Path, dim: int = 16, count: int = 60) -> list[str]:
    """Images of several places; those of one place share most of their descriptors."""
    generator = torch.Generator().manual_seed(0)
    names = []
    with FeatureStore(path, "a") as store:
        for place in range(NUM_PLACES):
            common = torch.randn(count, dim, generator=generator)
            for view in range(PER_PLACE):
                own = torch.randn(count // 3, dim, generator=generator)
                noise = 0.2 * torch.randn(count, dim, generator=generator)
                descriptors = F.normalize(torch.cat([common + noise, own]), dim=1)
                keypoints = 100 * torch.rand(len(descriptors), 2, generator=generator)
                name = f"place {place}/{view}.jpg"
                store.write(name, Features(keypoints, torch.ones(len(descriptors)), descriptors, (101, 101)))
                names.append(name)
    return names


def place_of(name: str) -> str:
    return name.partition("/")[0]


def test_similar_images_are_those_of_one_place(tmp_path: Path) -> None:
    names = place_store(tmp_path / "f.h5")
    with FeatureStore(tmp_path / "f.h5") as store:
        pairs = similar_pairs(store, names, PER_PLACE - 1)
    assert len(pairs) == len(names) * (PER_PLACE - 1)
    right = np.mean([place_of(a) == place_of(b) for a, b in pairs])
    assert right > 0.98


def test_an_index_is_the_same_each_time_and_on_disk(tmp_path: Path) -> None:
    names = place_store(tmp_path / "f.h5")
    with FeatureStore(tmp_path / "f.h5") as store:
        index, again = index_images(store, names), index_images(store, names)
        assert torch.equal(index.vectors, again.vectors)
        assert torch.allclose(index.vectors.norm(dim=1), torch.ones(len(names)), atol=1e-5)
        index.save(tmp_path / "index.safetensors")
        read = ImageIndex.load(tmp_path / "index.safetensors")
        assert read.names == tuple(names)
        assert torch.equal(read.vectors, index.vectors)
        query = store.read(names[7])
        rows, similarity = read.nearest(read.vector_of(query)[None], 3)
        assert rows[0, 0] == 7
        assert similarity[0, 0] == pytest.approx(1, abs=1e-4)
    nothing = Features(torch.zeros(0, 2), torch.zeros(0), torch.zeros(0, 16), (9, 9))
    assert not read.vector_of(nothing).any()
    other = Features(torch.zeros(1, 2), torch.zeros(1), torch.ones(1, 8), (9, 9))
    with pytest.raises(StoreError, match="8 and 16"):
        read.vector_of(other)
    (tmp_path / "text").write_text("no index")
    with pytest.raises(StoreError, match="no index of images"):
        ImageIndex.load(tmp_path / "text")


def test_sequences() -> None:
    names = [f"{number}.jpg" for number in range(100)]
    pairs = set(sequential_pairs(names, 3))
    assert {("0.jpg", f"{step}.jpg") for step in (1, 2, 3, 6, 12, 24, 48, 96)} <= pairs
    assert ("0.jpg", "4.jpg") not in pairs
    assert sequential_pairs(names[:2], 5) == [("0.jpg", "1.jpg")]
    assert sequential_pairs(names[:1], 5) == []
    assert sorted(["10.jpg", "9.jpg", "a2.jpg", "a10.jpg"], key=natural_order) == [
        "9.jpg",
        "10.jpg",
        "a2.jpg",
        "a10.jpg",
    ]


def test_loops_are_closed(tmp_path: Path) -> None:
    """A walk that ends where it began: the last frames show the first place again."""
    names = place_store(tmp_path / "places.h5")
    order = [*names, *names[:3]]
    with FeatureStore(tmp_path / "places.h5") as places, FeatureStore(tmp_path / "f.h5", "a") as store:
        for number, name in enumerate(order):
            store.write(f"frame{number}.jpg", places.read(name))
    options = PairSelectionOptions(method="sequential", overlap=4, neighbours=8)
    report = select_pairs(tmp_path / "f.h5", tmp_path / "pairs.txt", options)
    with FeatureStore(tmp_path / "f.h5") as store:
        pairs = set(read_pairs(tmp_path / "pairs.txt", store.names()))
    assert report.num_pairs == len(pairs)
    assert ("frame1.jpg", "frame31.jpg") in pairs
    without = PairSelectionOptions(method="sequential", overlap=4, loop_closure=False)
    assert select_pairs(tmp_path / "f.h5", tmp_path / "fewer.txt", without).num_pairs < report.num_pairs


def test_near_cameras_that_look_the_same_way() -> None:
    views = [View(Path(f"{angle}.jpg"), CAMERA, pose(angle), name=str(angle)) for angle in range(0, 360, 30)]
    pairs = near_pairs(views, 2, 45)
    assert {b for a, b in pairs if a == "60"} == {"30", "90"}
    assert near_pairs(views, 2, 20) == []
    turned = pose(0)
    turned[:3, :3] = np.diag([-1.0, 1, -1]) @ turned[:3, :3]  # stands there, and looks away
    both = [views[0], View(Path("b.jpg"), CAMERA, turned, name="back")]
    assert near_pairs(both, 5, 60) == []


def test_views_that_share_points() -> None:
    seen = {"a": range(0, 100), "b": range(50, 150), "c": range(120, 200), "d": range(500, 510), "e": None}
    views = [
        View(Path(name), CAMERA, pose(0), name=name, point_ids=None if ids is None else np.array(ids))
        for name, ids in seen.items()
    ]
    assert covisible_pairs(views, 5, 15) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    assert covisible_pairs(views, 1, 15) == [("a", "b"), ("b", "a"), ("c", "b")]
    assert covisible_pairs(views[3:], 5, 1) == []


def test_pairs_of_a_store(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, [pose(angle) for angle in (-20, -10, 0, 10, 20)])
    with FeatureStore(scene.features, "a") as store:
        nothing = Features(torch.zeros(0, 2), torch.zeros(0), torch.zeros(0, 32), (640, 480))
        store.write("blank.png", nothing)
    report = select_pairs(scene.features, tmp_path / "pairs.txt")
    assert (report.method, report.num_pairs, report.without_features) == ("exhaustive", 10, ("blank.png",))
    few = PairSelectionOptions(max_exhaustive=3, neighbours=2)
    assert select_pairs(scene.features, tmp_path / "pairs.txt", few).method == "retrieval"
    some = select_pairs(scene.features, tmp_path / "pairs.txt", images={"000.png", "002.png"})
    assert some.num_pairs == 1
    write_cameras_txt(tmp_path / "cameras.txt", list(scene.views))
    near = PairSelectionOptions(method="poses", neighbours=1)
    report = select_pairs(scene.features, tmp_path / "pairs.txt", near, cameras=tmp_path / "cameras.txt")
    assert report.num_pairs == 4
    (tmp_path / "list.txt").write_text("000.png 003.png\n003.png 000.png\n001.png 001.png\n")
    listed = select_pairs(scene.features, tmp_path / "pairs.txt", pair_list=tmp_path / "list.txt")
    assert (listed.method, listed.num_pairs) == ("list", 1)
    covisible = PairSelectionOptions(method="covisibility")
    with pytest.raises(DataError, match="choose pairs by poses"):
        select_pairs(scene.features, tmp_path / "pairs.txt", covisible, cameras=tmp_path / "cameras.txt")
    for method in ("poses", "covisibility", "list"):
        with pytest.raises(OptionsError, match="name"):
            select_pairs(scene.features, tmp_path / "pairs.txt", PairSelectionOptions(method=method))  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    other = write_scene(tmp_path / "other", [pose(0), pose(5)], names=["x.png", "y.png"])
    with pytest.raises(DataError, match="none of these photos"):
        select_pairs(other.features, tmp_path / "pairs.txt", near, cameras=tmp_path / "cameras.txt")


@pytest.mark.parametrize("method", ["auto", "exhaustive", "sequential", "retrieval"])
@pytest.mark.parametrize("num_images", [0, 1])
def test_no_pairs_of_one_image_or_none(tmp_path: Path, method: str, num_images: int) -> None:
    one = Features(torch.ones(3, 2), torch.ones(3), F.normalize(torch.ones(3, 8), dim=1), (9, 9))
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        for number in range(num_images):
            store.write(f"{number}.jpg", one)
    options = PairSelectionOptions(method=method)  # type: ignore[arg-type]
    report = select_pairs(tmp_path / "f.h5", tmp_path / "pairs.txt", options)
    assert (report.num_images, report.num_pairs) == (num_images, 0)
