"""A folder with hundreds of broken files: a line for each, the good ones extracted, memory bounded, and it resumes."""

from __future__ import annotations

import os
import random
import struct
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from posfeat.data.images import write_image
from posfeat.matching import MatchOptions
from posfeat.networks.compact import CompactDescriptionOptions, CompactDetectionOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.pipeline.extract import extract_folder, list_images
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import all_pairs, match_pairs, read_pairs, write_pairs
from posfeat.types import DataError, Features, PosfeatError, StoreError

OPTIONS = ExtractionOptions(SelectionOptions(max_keypoints=50), precision="fp32")


@pytest.fixture(scope="module")
def model() -> PoSFeat:
    torch.manual_seed(0)
    description = CompactDescriptionOptions(widths=(8, 8, 8, 8), blocks=(1, 1, 1), dim=16)
    detection = CompactDetectionOptions(feature_channels=8, image_channels=4)
    return build_model(ModelOptions(compact_description=description, compact_detection=detection)).eval()


def photo(seed: int, height: int = 48, width: int = 64) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)


def good_photos(folder: Path, count: int = 6) -> list[str]:
    names = ["a b.png", "ünï/図.png", "deep/er/x.PNG", "tall.jpg", "deep/grey.png", "z.webp"][:count]
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / name, photo(seed, *((400, 16) if name == "tall.jpg" else (48, 64))))
    return sorted(names)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def broken_photos(folder: Path, count: int) -> list[str]:
    """Files that nothing can be done with, of all kinds that turn up."""
    random_ = random.Random(0)
    jpeg = cv2.imencode(".jpg", photo(1, 200, 300))[1].tobytes()
    picture = cv2.imencode(".png", photo(2))[1].tobytes()
    kinds = {
        "zero bytes.jpg": lambda: b"",
        "cut.jpg": lambda: jpeg[: random_.randrange(len(jpeg))],
        "cut.png": lambda: picture[: random_.randrange(len(picture))],
        "text.jpg": lambda: b"not a picture\n" * random_.randrange(1, 99),
        "noise é.png": lambda: random_.randbytes(random_.randrange(1, 5000)),
        "one pixel.png": lambda: cv2.imencode(".png", photo(3, 1, 1))[1].tobytes(),
        "line.png": lambda: cv2.imencode(".png", photo(4, 20000, 1))[1].tobytes(),
        "bomb.png": lambda: png(30_000, 30_000),
        "flipped.png": lambda: picture[:300] + bytes([picture[300] ^ 255]) + picture[301:],
        "zeros.tif": lambda: bytes(4000),
    }
    names = []
    for number in range(count):
        kind = list(kinds)[number % len(kinds)]
        name = f"bad {number % 3}/{number} {kind}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(kinds[kind]())
        names.append(name)
    return names


def test_two_hundred_broken_files_cost_themselves_only(model: PoSFeat, tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "photos of ours").mkdir()
    images = tmp_path / "photos of ours" / ".." / "photos of ours"
    good, broken = good_photos(images), broken_photos(images, 200)
    (images / ".hidden.jpg").write_bytes(b"")
    (images / "notes.txt").write_text("not meant to be a picture")
    lines: list[str] = []
    done: list[tuple[int, int]] = []
    report = extract_folder(
        model, images, tmp_path / "f.h5", OPTIONS, on_failure=lines.append, progress=lambda a, b: done.append((a, b))
    )
    assert (report.num_extracted, report.num_known, len(report.failures)) == (len(good), 0, len(broken))
    assert tuple(lines) == report.failures
    assert not any("\n" in line for line in lines)
    for name in broken:
        assert sum(name in line for line in lines) == 1, name
    assert done[-1] == (206, 206)
    assert done == sorted(done)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
    with FeatureStore(tmp_path / "f.h5") as store:
        assert store.names() == good
        assert store.verify() == []
        expected = model.extract(images / good[0], options=OPTIONS)
        assert torch.equal(store.read(good[0]).keypoints, expected.keypoints)
    again = extract_folder(model, images, tmp_path / "f.h5", OPTIONS)
    assert (again.num_extracted, again.num_known, len(again.failures)) == (0, len(good), 200)


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no text exist on Linux")
def test_names_that_are_no_text_get_a_line_too(model: PoSFeat, tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    good = good_photos(tmp_path / "i", 2)
    (tmp_path / "i" / os.fsdecode(b"bad \xff.png")).write_bytes((tmp_path / "i" / good[0]).read_bytes())
    report = extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    assert report.num_extracted == 2
    assert len(report.failures) == 1
    report.failures[0].encode()


def test_what_the_system_refuses_gets_a_line(model: PoSFeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = good_photos(tmp_path / "i", 3)
    real_open = open

    def guarded(path: Any, *arguments: Any, **named: Any) -> Any:
        if str(path).endswith(good[1]):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **named)

    monkeypatch.setattr("builtins.open", guarded)
    report = extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    assert report.num_extracted == 2
    assert "Permission denied" in report.failures[0]


def test_too_little_memory_for_one_image_costs_that_one(
    model: PoSFeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_photos(tmp_path / "i", 3)
    calls = iter(range(100))
    extract = model.extract

    def hungry(*arguments: Any, **named: Any) -> Features:
        if next(calls) == 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")
        return extract(*arguments, **named)

    monkeypatch.setattr(model, "extract", hungry)
    report = extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    assert report.num_extracted == 2
    assert "does not fit into memory" in report.failures[0]


class StopError(Exception):
    """Stands for somebody who loses patience."""


def test_an_interruption_keeps_what_is_done(model: PoSFeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = good_photos(tmp_path / "i")
    calls: list[int] = []
    extract = model.extract

    def impatient(*arguments: Any, **named: Any) -> Features:
        if len(calls) == 4:
            raise StopError
        calls.append(1)
        return extract(*arguments, **named)

    monkeypatch.setattr(model, "extract", impatient)
    monkeypatch.setattr("posfeat.pipeline.extract.MOST_PHOTOS_AT_ONCE", 1)
    with pytest.raises(StopError):
        extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    with FeatureStore(tmp_path / "f.h5") as store:
        assert store.names() == good[:4]
    monkeypatch.setattr(model, "extract", extract)
    report = extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    assert (report.num_extracted, report.num_known) == (2, 4)


def test_other_options_or_weights_do_not_go_into_the_same_store(model: PoSFeat, tmp_path: Path) -> None:
    good_photos(tmp_path / "i", 1)
    extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    with pytest.raises(StoreError, match=r"with extraction\.precision='fp32', not 'auto'"):
        extract_folder(model, tmp_path / "i", tmp_path / "f.h5", ExtractionOptions(OPTIONS.selection))
    torch.manual_seed(1)
    with pytest.raises(StoreError, match="weights"):
        extract_folder(build_model(model.options).eval(), tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    (tmp_path / "empty").mkdir()
    for folder, words in (
        ("none", "no image folder"),
        ("empty", "no photos in"),
        ("f.h5", "is a file; give the folder"),
    ):
        with pytest.raises(DataError, match=words):
            extract_folder(model, tmp_path / folder, tmp_path / "f.h5", OPTIONS)


def test_masks_by_name(model: PoSFeat, tmp_path: Path) -> None:
    images, masks = tmp_path / "i", tmp_path / "i" / "masks"
    names = good_photos(images, 3)
    left = np.zeros((48, 64), np.uint8)
    left[:, :20] = 255
    for name in (f"{names[0]}.png", "deep/er/x.png"):
        (masks / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(masks / name, left)
    report = extract_folder(model, images, tmp_path / "f.h5", OPTIONS, mask_folder=masks)
    assert (report.num_extracted, report.num_without_mask, report.failures) == (3, 1, ())
    with FeatureStore(tmp_path / "f.h5") as store:
        assert store.names() == names
        assert float(store.read("deep/er/x.PNG").keypoints[:, 0].max()) < 20
        assert float(store.read(names[0]).keypoints[:, 0].max()) < 20
        assert float(store.read("ünï/図.png").keypoints[:, 0].max()) > 40
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"mask of a b\.png is a b\.png\.png"):
        extract_folder(model, images, tmp_path / "g.h5", OPTIONS, mask_folder=tmp_path / "empty")


@pytest.mark.parametrize("at_once", [1, 2])
def test_one_image_is_read_ahead_and_no_more(
    model: PoSFeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    from posfeat.pipeline import extract as pipeline
    from posfeat.pipeline import photo_features as module

    monkeypatch.setattr(pipeline, "MOST_PHOTOS_AT_ONCE", at_once)
    good = good_photos(tmp_path / "i")
    read_ahead: list[int] = []
    started = used = 0
    real_read, real_extract = module.read_pixels, model.extract

    def read(*arguments: Any) -> Any:
        nonlocal started
        started += 1
        assert threading.current_thread().name.startswith("decode")
        return real_read(*arguments)

    def extract(*arguments: Any, **named: Any) -> Features:
        nonlocal used
        used += 1
        time.sleep(0.05)
        read_ahead.append(started - used)
        return real_extract(*arguments, **named)

    monkeypatch.setattr(module, "read_pixels", read)
    monkeypatch.setattr(model, "extract", extract)
    extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    assert len(read_ahead) == len(good)
    assert 1 <= max(read_ahead) <= at_once  # of those at once, the others are waiting for their turn


@pytest.fixture(scope="module")
def features(model: PoSFeat, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("features")
    good_photos(folder / "i")
    extract_folder(model, folder / "i", folder / "f.h5", OPTIONS)
    return folder / "f.h5", list_images(folder / "i")


def test_pairs_are_matched_once_and_resumed(features: tuple[Path, list[str]], tmp_path: Path) -> None:
    path, names = features
    pairs = all_pairs(names)
    assert len(pairs) == 15
    first = match_pairs(path, pairs[:7], tmp_path / "m.h5")
    assert (first.num_matched, first.num_known, first.failures) == (7, 0, ())
    turned = [(b, a) for a, b in pairs]
    report = match_pairs(path, [*turned, *pairs, ("a b.png", "missing.jpg")], tmp_path / "m.h5")
    assert (report.num_matched, report.num_known) == (8, 7)
    assert len(report.failures) == 1
    assert "missing.jpg" in report.failures[0]
    with MatchStore(tmp_path / "m.h5") as store, FeatureStore(path) as feature_store:
        assert len(store) == 15
        assert store.verify() == []
        name0, name1 = pairs[0]
        matches = store.read(name0, name1)
        assert len(matches) > 0
        similarity = (
            feature_store.read(name0).descriptors[matches.indices[:, 0]]
            * feature_store.read(name1).descriptors[matches.indices[:, 1]]
        ).sum(1)
        assert torch.allclose(similarity, matches.scores, atol=2e-3)
    with pytest.raises(StoreError, match=r"matching\.ratio=None, not 0\.9"):
        match_pairs(path, pairs, tmp_path / "m.h5", MatchOptions(ratio=0.9))


def test_names_that_are_one_in_a_match_file_are_refused(model: PoSFeat, tmp_path: Path) -> None:
    (tmp_path / "i" / "a").mkdir(parents=True)
    for name in ("a/b.png", "a-b.png", "c.png"):
        write_image(tmp_path / "i" / name, photo(len(name)))
    extract_folder(model, tmp_path / "i", tmp_path / "f.h5", OPTIONS)
    report = match_pairs(tmp_path / "f.h5", all_pairs(["a/b.png", "c.png", "a-b.png"]), tmp_path / "m.h5")
    assert (report.num_matched, len(report.failures)) == (1, 2)
    assert report.failures[0].startswith("a-b.png cannot be told from a/b.png")
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.pairs() == [("a/b.png", "c.png")]


def test_pair_lists(tmp_path: Path) -> None:
    names = ["a b.jpg", "c.jpg", "d e f.jpg", "c.jpg d", "e.jpg"]
    pairs = [("a b.jpg", "c.jpg"), ("c.jpg", "d e f.jpg"), ("d e f.jpg", "a b.jpg"), ("e.jpg", "c.jpg")]
    write_pairs(tmp_path / "pairs.txt", pairs)
    assert read_pairs(tmp_path / "pairs.txt", names) == pairs
    (tmp_path / "hloc.txt").write_text("# made elsewhere\na b.jpg c.jpg\n\nd e f.jpg   e.jpg\nunknown.jpg other.jpg\n")
    expected = [("a b.jpg", "c.jpg"), ("d e f.jpg", "e.jpg"), ("unknown.jpg", "other.jpg")]
    assert read_pairs(tmp_path / "hloc.txt", names) == expected
    for text, message in (("a b.jpg q.jpg", "line 1"), ("c.jpg", "two names"), ("c.jpg d e.jpg", "2 ways|two names")):
        (tmp_path / "wrong.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            read_pairs(tmp_path / "wrong.txt", [*names, "d e.jpg"])
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "binary.txt", tmp_path / "missing.txt"):
        with pytest.raises(PosfeatError, match="cannot read the pairs"):
            read_pairs(path, names)
