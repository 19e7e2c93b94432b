"""Folders of other programs: what they hold is read here as those programs read it, and comes back as it was."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.data.images import write_image
from posfeat.interop.colmap_text import ColmapTextFolder, quantised
from posfeat.interop.eth import EthFolder
from posfeat.interop.folder_files import FeatureFolder
from posfeat.interop.imc import ImcFolder
from posfeat.interop.npz import AachenFolder, D2NetFolder
from posfeat.types import DataError, Features, Matches, StoreError

SIZE = (640, 480)
FOLDERS = [ColmapTextFolder, EthFolder, ImcFolder, D2NetFolder, AachenFolder]
WITH_MATCHES = [ColmapTextFolder, EthFolder, ImcFolder]


def rootsift_like(seed: int, count: int = 20, dim: int = 128) -> Features:
    generator = torch.Generator().manual_seed(seed)
    xy = torch.rand(count, 2, generator=generator) * torch.tensor([639.0, 479.0])
    descriptors = F.normalize(torch.rand(count, dim, generator=generator) ** 4, dim=1)
    return Features(xy, torch.linspace(1, 0.5, count), descriptors, SIZE)


MATCHES = Matches(torch.tensor([[3, 11], [0, 2], [19, 0]]), torch.tensor([0.9, 0.8, 0.7]))


@pytest.mark.parametrize("kind", FOLDERS)
def test_features_come_back(kind: type[FeatureFolder], tmp_path: Path) -> None:
    features = {"b.png": rootsift_like(1), "a.jpg": rootsift_like(2, count=7), "none.jpg": rootsift_like(3, count=0)}
    folder = kind(tmp_path / "out")
    for name, one in features.items():
        folder.write(name, one)
    folder.close()
    again = ImcFolder(tmp_path / "out", list(features)) if kind is ImcFolder else kind(tmp_path / "out")
    assert again.names() == sorted(features)
    for name, one in features.items():
        read = again.read(name, SIZE)
        assert read.image_size == SIZE
        torch.testing.assert_close(read.keypoints, one.keypoints, atol=1e-4, rtol=0)
        torch.testing.assert_close(read.descriptors, one.descriptors, atol=0.002, rtol=0)
        if kind in (ImcFolder, D2NetFolder):
            torch.testing.assert_close(read.scores, one.scores)
    assert not list((tmp_path / "out").rglob("*.part"))


@pytest.mark.parametrize("kind", WITH_MATCHES)
def test_matches_come_back_in_either_order_of_letters(kind: type[FeatureFolder], tmp_path: Path) -> None:
    folder = kind(tmp_path)
    for name in ("a-1.jpg", "b.jpg", "c.jpg"):
        folder.write(name, rootsift_like(1))
    folder.write_matches("a-1.jpg", "b.jpg", MATCHES)
    folder.write_matches("c.jpg", "b.jpg", MATCHES)
    folder.write_matches("a-1.jpg", "c.jpg", Matches(torch.zeros(0, 2, dtype=torch.long), torch.zeros(0)))
    folder.close()
    again = ImcFolder(tmp_path, ["a-1.jpg", "b.jpg", "c.jpg"]) if kind is ImcFolder else kind(tmp_path)
    assert {frozenset(pair) for pair in again.pairs()} == {
        frozenset(pair) for pair in (("a-1.jpg", "b.jpg"), ("b.jpg", "c.jpg"), ("a-1.jpg", "c.jpg"))
    }
    assert again.read_matches("a-1.jpg", "b.jpg").indices.tolist() == MATCHES.indices.tolist()
    assert again.read_matches("c.jpg", "b.jpg").indices.tolist() == MATCHES.indices.tolist()
    assert len(again.read_matches("a-1.jpg", "c.jpg")) == 0
    again.close()


def test_eth_as_its_reconstruction_script_reads_it(tmp_path: Path) -> None:
    features = rootsift_like(1)
    EthFolder(tmp_path).write("0000.png", features)
    EthFolder(tmp_path).write_matches("0000.png", "0001.png", MATCHES)
    keypoints = _eth_matrix(tmp_path / "keypoints" / "0000.png.bin", np.float32)
    assert keypoints.shape == (20, 4)  # straight into a COLMAP database, where the first pixel's centre is (0.5, 0.5)
    np.testing.assert_allclose(keypoints[:, :2], features.keypoints.numpy() + 0.5, rtol=1e-6)
    assert (keypoints[:, 2:] == [1, 0]).all()
    descriptors = _eth_matrix(tmp_path / "descriptors" / "0000.png.bin", np.float32)
    np.testing.assert_array_equal(descriptors, features.descriptors.numpy())
    matches = _eth_matrix(tmp_path / "matches" / "0000.png---0001.png.bin", np.uint32)
    assert matches.tolist() == MATCHES.indices.tolist()


def _eth_matrix(path: Path, dtype: type) -> np.ndarray:
    with path.open("rb") as file:
        shape = np.fromfile(file, count=2, dtype=np.int32)
        return np.fromfile(file, count=shape[0] * shape[1], dtype=dtype).reshape(shape)


def test_imc_as_its_benchmark_reads_it(tmp_path: Path) -> None:
    features = rootsift_like(1)
    folder = ImcFolder(tmp_path)
    for name in ("1.jpg", "2.png"):
        folder.write(name, features)
    folder.write_matches("1.jpg", "2.png", MATCHES)
    folder.close()
    loaded = {}
    for file in ("keypoints", "descriptors", "scores", "matches"):
        with h5py.File(tmp_path / f"{file}.h5") as h5:
            loaded[file] = {key: h5[key][()] for key in h5}
    assert set(loaded["keypoints"]) == set(loaded["descriptors"]) == {"1", "2"}
    np.testing.assert_array_equal(loaded["keypoints"]["1"], features.keypoints.numpy())  # OpenCV's convention
    assert loaded["descriptors"]["1"].shape == (20, 128)
    assert list(loaded["matches"]) == ["2-1"]  # the later name first, and row 0 belongs to it
    assert loaded["matches"]["2-1"].tolist() == MATCHES.indices[:, [1, 0]].T.tolist()


def test_npz_as_other_scripts_read_it(tmp_path: Path) -> None:
    features = rootsift_like(1)
    D2NetFolder(tmp_path).write("i_dome/1.ppm", features)
    AachenFolder(tmp_path, ".mine").write("db/1.jpg", features)
    d2net, aachen = np.load(tmp_path / "i_dome/1.ppm.d2-net"), np.load(tmp_path / "db/1.jpg.mine")
    assert d2net["keypoints"].shape == (20, 3)
    np.testing.assert_array_equal(d2net["keypoints"][:, :2], features.keypoints.numpy())
    np.testing.assert_allclose(aachen["keypoints"][:, :2], features.keypoints.numpy() + 0.5, rtol=1e-6)
    np.testing.assert_array_equal(aachen["descriptors"], features.descriptors.numpy())


def test_our_benchmarks_read_d2nets_files(tmp_path: Path) -> None:
    from posfeat.benchmarks.feature_sources import NpzFolder

    features = rootsift_like(1)
    write_image(tmp_path / "1.png", np.zeros((480, 640, 3), np.uint8))
    D2NetFolder(tmp_path / "out").write("1.png", features)
    read = NpzFolder(tmp_path / "out", tmp_path).features_of(tmp_path / "1.png")
    torch.testing.assert_close(read.keypoints, features.keypoints)


@pytest.mark.skipif(shutil.which("colmap") is None, reason="COLMAP's own program is not installed")
def test_colmap_imports_text_features_and_matches(tmp_path: Path) -> None:
    """COLMAP itself reads both, and its database then holds positions half a pixel further than ours."""
    images, out, database = tmp_path / "images", tmp_path / "out", tmp_path / "database.db"
    images.mkdir()
    folder, features = ColmapTextFolder(out), {name: rootsift_like(i) for i, name in enumerate(("a.png", "b.png"))}
    for name, one in features.items():
        write_image(images / name, np.zeros((480, 640, 3), np.uint8))
        folder.write(name, one)
    folder.write_matches("a.png", "b.png", MATCHES)
    folder.close()
    _colmap("feature_importer", "--database_path", database, "--image_path", images, "--import_path", out)
    lists = ("--match_list_path", out / "matches.txt", "--match_type", "raw")
    _colmap("matches_importer", "--database_path", database, *lists, "--SiftMatching.use_gpu", "0")
    with sqlite3.connect(database) as connection:
        names = dict(connection.execute("SELECT name, image_id FROM images"))
        rows = dict(connection.execute("SELECT image_id, data FROM keypoints"))
        coded = dict(connection.execute("SELECT image_id, data FROM descriptors"))
        matches = connection.execute("SELECT data FROM matches").fetchall()
    for name, one in features.items():
        xy = np.frombuffer(rows[names[name]], np.float32).reshape(len(one), -1)[:, :2]
        np.testing.assert_allclose(xy, one.keypoints.numpy() + 0.5, rtol=1e-6)
        stored = np.frombuffer(coded[names[name]], np.uint8).reshape(-1, 128)
        np.testing.assert_array_equal(stored, quantised(one.descriptors.numpy()))
    assert np.frombuffer(matches[0][0], np.uint32).reshape(-1, 2).tolist() == MATCHES.indices.tolist()


def _colmap(*words: object) -> None:
    run = subprocess.run(["colmap", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr[-500:]


def test_signed_descriptors_become_zeros_in_colmaps_text() -> None:
    signed = F.normalize(torch.randn(5, 128), dim=1).numpy()
    assert not quantised(signed).any()
    assert not quantised(rootsift_like(1, dim=64).descriptors.numpy()).any()


def test_what_a_format_cannot_hold_is_one_line(tmp_path: Path) -> None:
    features = rootsift_like(1)
    imc = ImcFolder(tmp_path / "imc")
    imc.write("a.jpg", features)
    for action, words in (
        (lambda: EthFolder(tmp_path).write_matches("db/1.jpg", "b.jpg", MATCHES), "db/1.jpg"),
        (lambda: ColmapTextFolder(tmp_path).write_matches("my a.jpg", "b.jpg", MATCHES), "without spaces"),
        (lambda: D2NetFolder(tmp_path).write_matches("a.jpg", "b.jpg", MATCHES), "no format for matches"),
        (lambda: imc.write("a.png", features), "rename one"),
        (lambda: imc.write("db/b.png", features), "one folder"),
        (lambda: D2NetFolder(tmp_path).write("../a.png", features), "leads out"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            action()
        assert "\n" not in str(caught.value)


def test_damaged_files_are_one_line_that_names_them(tmp_path: Path) -> None:
    for folder in (EthFolder(tmp_path), D2NetFolder(tmp_path), ColmapTextFolder(tmp_path)):
        folder.write("a.jpg", rootsift_like(1))
    (tmp_path / "keypoints" / "a.jpg.bin").write_bytes(b"\x05\0\0\0\x04\0\0\0cut off")
    (tmp_path / "a.jpg.d2-net").write_bytes(b"PK no archive")
    (tmp_path / "a.jpg.txt").write_text("3 128\n1 2 3\n")
    (tmp_path / "keypoints.h5").write_bytes(b"no HDF5")
    (tmp_path / "matches.txt").write_text("a.jpg b.jpg\n0 1 2\n")
    for action, name in (
        (lambda: EthFolder(tmp_path).read("a.jpg", SIZE), "a.jpg.bin"),
        (lambda: EthFolder(tmp_path).read("b.jpg", SIZE), "b.jpg.bin"),
        (lambda: D2NetFolder(tmp_path).read("a.jpg", SIZE), "a.jpg.d2-net"),
        (lambda: ColmapTextFolder(tmp_path).read("a.jpg", SIZE), "a.jpg.txt"),
        (lambda: ColmapTextFolder(tmp_path).pairs(), "matches.txt"),
        (lambda: ImcFolder(tmp_path).names(), "keypoints.h5"),
    ):
        with pytest.raises(DataError, match=name) as caught:
            action()
        assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder in (kind(tmp_path / "file") for kind in FOLDERS):
        with pytest.raises(StoreError, match="cannot write"):
            folder.write("a.jpg", rootsift_like(1))
