"""One server for most tests: an untrained network beside SIFT, two photos of one wall, and a training run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")

from posfeat.data.images import encode_image, resize_image, write_image
from tests.page.running_server import Client, running, services_of
from tests.pipeline.conftest import GalleryPhotos, gallery

__all__ = ["gallery"]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of small networks that nothing has trained."""
    from posfeat.networks.checkpoint import ModelCard, save_checkpoint
    from posfeat.networks.posfeat import ModelOptions, build_model

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "untrained.safetensors"
    save_checkpoint(path, build_model(ModelOptions()), ModelCard(name="untrained"))
    return path


@pytest.fixture(scope="session")
def wall() -> np.ndarray:
    """Texture of several sizes, of which photos are parts."""
    rng = np.random.default_rng(1)
    layers = [resize_image(rng.integers(0, 256, (480 // s, 640 // s, 3), dtype=np.uint8), 640, 480) for s in (32, 8, 3)]
    return np.mean(layers, axis=0).astype(np.uint8)


@pytest.fixture(scope="session")
def photos(wall: np.ndarray) -> tuple[bytes, bytes]:
    """Two photos as PNG: the second shows the wall 40 px further right and 24 px further down."""
    return encode_image(wall[:360, :480], ".png"), encode_image(wall[24:384, 40:520], ".png")


@pytest.fixture(scope="session")
def album(tmp_path_factory: pytest.TempPathFactory, wall: np.ndarray) -> Path:
    """A root with photos, and with things that must not be seen from outside."""
    folder = tmp_path_factory.mktemp("roots") / "album"
    (folder / "first day").mkdir(parents=True)
    write_image(folder / "first day" / "a.png", wall[:360, :480])
    write_image(folder / "b.jpg", wall[24:384, 40:520])
    (folder / ".hidden").mkdir()
    write_image(folder / ".hidden" / "c.png", wall[:64, :64])
    write_image(folder.parent / "outside.png", wall[:64, :64])
    (folder / "notes.txt").write_text("no photo")
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, wall: np.ndarray) -> Path:
    """A root with two training runs, the second one still being written."""
    folder = tmp_path_factory.mktemp("training") / "runs"
    for number, name in enumerate(("first", "second")):
        (folder / name / "pictures").mkdir(parents=True)
        lines = [{"step": s, "kind": "training", "time": 1.0, "loss": 9 / (s + number)} for s in range(1, 41)]
        lines += [{"step": s, "kind": "validation", "time": 1.0, "mma": number / 4 + s / 80} for s in (20, 40)]
        (folder / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / name / "config.yaml").write_text(f"seed: {number}\n")
        for step in (20, 40):
            write_image(folder / name / "pictures" / f"{step:07d}_matches_0.jpg", wall[: 2 * step + 40, :160])
    with (folder / "second" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 41, "kind": "training", "loss": NaN}\n{"step": 42, "kind": "trai')
    return folder


@pytest.fixture(scope="session")
def server(weights: Path, album: Path, runs: Path) -> Iterator[Client]:
    """A server with the default limits."""
    with running(services_of(weights, [album, runs])) as client:
        yield client


@pytest.fixture(scope="session")
def gallery_map(gallery: GalleryPhotos, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What posfeat reconstruct makes of the gallery with RootSIFT."""
    pytest.importorskip("pycolmap")
    from posfeat.pipeline.extract import RootSiftExtractor
    from posfeat.pipeline.reconstruct import reconstruct

    folder = tmp_path_factory.mktemp("maps") / "gallery map"
    reconstruct(RootSiftExtractor(1000), gallery.folder, folder, formats=())
    return folder
