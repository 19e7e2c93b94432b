"""The order of pairs depends on seed and step alone, whoever draws them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from posfeat.data.images import IMAGENET_MEAN, IMAGENET_STD, write_image
from posfeat.data.loader import PairLoader, batch_samples, normalised
from posfeat.data.pair_sample import PairSample
from posfeat.data.photo_source import ImageCache, PhotoSource
from posfeat.data.synthetic import SyntheticOptions
from posfeat.types import DataError, OptionsError, PairBatch

HEIGHT, WIDTH = 48, 64


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    (folder / "nested").mkdir()
    for index in range(6):
        pixels = np.random.default_rng(index).integers(0, 256, (90, 120, 3)).astype(np.uint8)
        write_image(folder / ("nested" if index % 2 else "") / f"{index}.png", pixels)
    return folder


def loader(
    photos: Path, batch_size: int = 4, first_step: int = 0, num_steps: int = 3, **more: int | bool
) -> PairLoader:
    return PairLoader([PhotoSource(photos)], None, batch_size, HEIGHT, WIDTH, 11, first_step, num_steps, **more)


def assert_equal(a: PairBatch, b: PairBatch) -> None:
    for field in fields(PairBatch):
        left, right = (vars(batch)[field.name] for batch in (a, b))
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right, field.name


def test_a_batch_is_what_training_expects(photos: Path) -> None:
    (batch,) = loader(photos, num_steps=1)
    assert batch.image0.shape == batch.image1.shape == (4, 3, HEIGHT, WIDTH)
    assert batch.image0.dtype == torch.float32
    assert batch.intrinsics0.shape == batch.intrinsics1.shape == (4, 3, 3)
    assert batch.cam1_from_cam0.shape == (4, 4, 4)
    assert batch.has_baseline.dtype == torch.bool
    assert batch.map1_from_map0 is None
    assert len(batch.names) == 4


def test_images_are_normalised() -> None:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    image[..., 1] = 255
    batch = batch_samples([PairSample(image, image, np.eye(3), np.eye(3), np.eye(4), True)])
    expected = (torch.tensor([0.0, 1.0, 0.0]) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    torch.testing.assert_close(batch.image0[0, :, 3, 5], expected)


def test_a_run_resumes_from_its_step(photos: Path) -> None:
    whole, rest = list(loader(photos)), list(loader(photos, first_step=2, num_steps=1))
    assert_equal(whole[2], rest[0])


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_change_nothing(photos: Path, workers: int) -> None:
    for alone, helped in zip(loader(photos), loader(photos, workers=workers), strict=True):
        assert_equal(alone, helped)


def test_processes_share_the_global_batch(photos: Path) -> None:
    (whole,) = loader(photos, num_steps=1)
    halves = [next(iter(loader(photos, rank=rank, world_size=2))) for rank in range(2)]
    assert torch.equal(whole.image0, torch.cat([half.image0 for half in halves]))
    assert whole.names == halves[0].names + halves[1].names


def test_leaving_early_stops_the_threads(photos: Path) -> None:
    batches = iter(loader(photos, num_steps=1000, workers=2))
    next(batches)
    batches.close()  # type: ignore[attr-defined]


def test_a_source_that_fails_says_so_through_the_threads() -> None:
    class Broken:
        def draw(self, rng: np.random.Generator, height: int, width: int) -> PairSample:
            raise DataError("nothing left")

    with pytest.raises(DataError, match="nothing left"):
        list(PairLoader([Broken()], None, 2, HEIGHT, WIDTH, 0, num_steps=2, workers=1))


class Named(NamedTuple):
    name: str

    def draw(self, rng: np.random.Generator, height: int, width: int) -> PairSample:
        image = np.zeros((height, width, 3), np.uint8)
        return PairSample(image, image, np.eye(3), np.eye(3), np.eye(4), True, name=self.name)


def test_sources_are_mixed_by_weight() -> None:
    batches = PairLoader([Named("a"), Named("b"), Named("c")], [3, 1, 0], 50, 8, 8, 0, num_steps=8)
    names = [name for batch in batches for name in batch.names]
    assert 0.68 < names.count("a") / len(names) < 0.82
    assert "c" not in names


def test_wrong_use_is_named() -> None:
    with pytest.raises(OptionsError, match="cannot be shared equally"):
        PairLoader([Named("a")], None, 3, 8, 8, 0, world_size=2)
    with pytest.raises(OptionsError, match="weights"):
        PairLoader([Named("a")], [0.0], 2, 8, 8, 0)
    with pytest.raises(OptionsError, match="at least one source"):
        PairLoader([], None, 2, 8, 8, 0)


def test_true_maps_come_along_when_asked_for(photos: Path) -> None:
    source = PhotoSource(photos, SyntheticOptions(correspondences=True))
    (batch,) = PairLoader([source], None, 2, HEIGHT, WIDTH, 0, num_steps=1)
    assert batch.map1_from_map0 is not None
    assert batch.map1_from_map0.shape == (2, HEIGHT, WIDTH, 2)


def test_damaged_photos_are_passed_over(photos: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 not a photo")
    tiny = tmp_path / "tiny.png"
    write_image(tiny, np.zeros((8, 8, 3), np.uint8))
    source = PhotoSource([broken, tiny, *sorted(photos.glob("*.png"))])
    names = {source.draw(np.random.default_rng(seed), HEIGHT, WIDTH).name for seed in range(20)}
    assert names == {"0.png", "2.png", "4.png"}
    with pytest.raises(DataError, match="hardly any"):
        PhotoSource([broken, tiny]).draw(np.random.default_rng(0), HEIGHT, WIDTH)


def test_no_photos_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no photos in"):
        PhotoSource(tmp_path)
    with pytest.raises(DataError, match="no folder of photos"):
        PhotoSource(tmp_path / "missing")
    with pytest.raises(DataError, match="list of photos is empty"):
        PhotoSource([])


def test_the_cache_is_bounded(photos: Path) -> None:
    paths = sorted(photos.rglob("*.png"))
    read = []
    cache = ImageCache(3 * 90 * 120 * 3, lambda path: (read.append(path), np.zeros((90, 120, 3), np.uint8))[1])
    for path in paths[:3] * 3:
        cache.read(path)
    assert read == paths[:3]
    for path in paths[3:]:
        cache.read(path)
    cache.read(paths[0])
    assert read == [*paths, paths[0]]


def test_processes_draw_the_same_batches(photos: Path) -> None:
    for alone, shared in zip(loader(photos), loader(photos, processes=2), strict=True):
        assert_equal(alone, shared)


def test_raw_batches_become_network_input_later(photos: Path) -> None:
    for batch, raw in zip(loader(photos), loader(photos, raw=True), strict=True):
        assert raw.image0.dtype == torch.uint8
        assert_equal(batch, normalised(raw))
