"""Weight files: what is written comes back, and nothing but a weight file is accepted or executed."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from posfeat.networks.checkpoint import (
    ModelCard,
    load,
    load_checkpoint,
    load_imagenet_encoder,
    load_published,
    read_card,
    read_header,
    save_checkpoint,
)
from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.types import CheckpointError, OptionsError

SMALL = ModelOptions(
    architecture="paper", paper_description=PaperDescriptionOptions(encoder="resnet18", dim=16, coarse=True)
)
UNREADABLE = ("empty", "text", "cut", "header", "pickle", "foreign", "options", "unknown_option", "json")
UNFIT = ("missing", "extra", "shape", "nan")
CARD = ModelCard(name="small", trained=True, recipe="none", data="nothing", seed=7, notes="für Tests")


@pytest.fixture(scope="module")
def model() -> PoSFeat:
    return build_model(SMALL).eval()


@pytest.fixture
def saved(model: PoSFeat, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, model, CARD)
    return path


def assert_one_line(error: pytest.ExceptionInfo[CheckpointError], name: str) -> None:
    text = str(error.value)
    assert name in text
    assert "\n" not in text
    assert len(text) < 500


def test_round_trip(model: PoSFeat, saved: Path) -> None:
    loaded = load_checkpoint(saved)
    assert loaded.options == SMALL
    assert not loaded.training
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[key]), key
    assert read_card(saved) == CARD
    header = read_header(saved)
    assert header.num_parameters == sum(t.numel() for t in model.state_dict().values())
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_half_precision_storage(model: PoSFeat, saved: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.safetensors"
    save_checkpoint(half, model, CARD, half=True)
    assert half.stat().st_size < 0.51 * saved.stat().st_size
    loaded = load_checkpoint(half).state_dict()
    for key, tensor in model.state_dict().items():
        assert loaded[key].dtype == tensor.dtype
        if tensor.dim() > 1:
            torch.testing.assert_close(loaded[key], tensor, rtol=1e-3, atol=1e-6)
        else:
            assert torch.equal(loaded[key], tensor)


def test_a_failed_write_leaves_the_old_file(model: PoSFeat, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def power_cut(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, model, ModelCard())
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_untrained_weights_say_so(model: PoSFeat, saved: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(saved)
    fresh = tmp_path / "fresh.safetensors"
    save_checkpoint(fresh, model, ModelCard())
    with pytest.warns(UserWarning, match=r"fresh\.safetensors holds untrained weights"):
        load(fresh)


def test_devices_by_name(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    for name in (None, "auto", "cpu", torch.device("cpu")):
        assert load(saved, name).device == torch.device("cpu")
    for name, words in (("cuda", "no cuda device here"), ("cuda:1", "no cuda device"), ("mps", "no mps device")):
        with pytest.raises(OptionsError, match=words):
            load(saved, device=name)
    with pytest.raises(OptionsError, match="no such device as 'gpu'; take auto, cpu, cuda or mps"):
        load(saved, device="gpu")


def damaged(kind: str, saved: Path) -> Path:
    """A file that is no checkpoint of ours in one way or another."""
    path = saved.with_name(f"{kind}.safetensors")
    whole = saved.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not weights at all")
    elif kind == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "header":
        path.write_bytes(b"\xff" * 8 + whole[8:])
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"a": 1}))
    elif kind == "foreign":
        save_file({"x": torch.zeros(3)}, path)
    elif kind == "options":
        save_file(load_file(saved), path, changed_metadata(saved, options=json.dumps({"architecture": "huge"})))
    elif kind == "unknown_option":
        save_file(load_file(saved), path, changed_metadata(saved, options=json.dumps({"archtecture": "paper"})))
    elif kind == "json":
        save_file(load_file(saved), path, changed_metadata(saved, card="{"))
    elif kind == "missing":
        state = load_file(saved)
        state.pop("description.conv_fine.conv.weight")
        save_file(state, path, changed_metadata(saved))
    elif kind == "extra":
        save_file({**load_file(saved), "more": torch.zeros(2)}, path, changed_metadata(saved))
    elif kind == "shape":
        state = load_file(saved)
        state["description.conv_fine.conv.bias"] = torch.zeros(3)
        save_file(state, path, changed_metadata(saved))
    elif kind == "nan":
        state = load_file(saved)
        state["description.conv_fine.conv.bias"][0] = float("nan")
        save_file(state, path, changed_metadata(saved))
    return path


def changed_metadata(saved: Path, **changes: str) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(str(saved), framework="pt") as file:
        return {**file.metadata(), **changes}


@pytest.mark.parametrize("kind", [*UNREADABLE, *UNFIT, "absent"])
def test_damaged_and_foreign_files_get_one_line(kind: str, saved: Path) -> None:
    path = damaged(kind, saved)
    with pytest.raises(CheckpointError) as error:
        load(path)
    assert_one_line(error, path.name)


def test_a_folder_without_the_published_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        load(tmp_path)
    assert_one_line(error, "backbone.pth")


class Malicious:
    """Unpickled, this would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("zipped", [True, False])
def test_no_pickle_is_executed(zipped: bool, tmp_path: Path) -> None:
    target = tmp_path / "executed"
    path = tmp_path / "backbone.pth"
    torch.save({"firstconv.weight": Malicious(target)}, path, _use_new_zipfile_serialization=zipped)
    torch.save({}, tmp_path / "localheader.pth")
    for read in (load_published, load):
        with pytest.raises(CheckpointError) as error:
            read(tmp_path)
        assert_one_line(error, "backbone.pth")
    network = PaperDescription(SMALL.paper_description)
    with pytest.raises(CheckpointError):
        load_imagenet_encoder(path, network)
    assert not target.exists()


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut", pickle.dumps([1, 2])])
def test_published_files_that_are_none(content: bytes, tmp_path: Path) -> None:
    for name in ("backbone.pth", "localheader.pth"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        load_published(tmp_path)
    assert_one_line(error, "backbone.pth")


def test_published_files_of_another_network(tmp_path: Path) -> None:
    torch.save({"layer1.0.conv1.weight": torch.zeros(2)}, tmp_path / "backbone.pth")
    torch.save({"conv1.weight": torch.zeros(2)}, tmp_path / "localheader.pth")
    with pytest.raises(CheckpointError) as error:
        load_published(tmp_path)
    assert_one_line(error, "not a ResNet")


def test_published_layout_of_a_smaller_encoder(model: PoSFeat, tmp_path: Path) -> None:
    """The published code allows ResNet-18 and -34; which one it is shows in the keys."""
    names = {"encoder.conv1": "firstconv", "encoder.bn1": "firstbn", "encoder.layer": "layer"}
    names |= {"upconv3": "upconv3.conv", "upconv2": "upconv2.conv"}
    backbone = {}
    for key, tensor in model.description.state_dict().items():
        prefix = next((ours for ours in names if key.startswith(ours)), None)
        backbone[names[prefix] + key[len(prefix) :] if prefix else key] = tensor
    torch.save(backbone, tmp_path / "backbone.pth")
    torch.save(model.detection.state_dict(), tmp_path / "localheader.pth")
    loaded = load_published(tmp_path)
    assert loaded.options == SMALL
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded.dense(image).scores, model.dense(image).scores)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_imagenet_encoder(suffix: str, tmp_path: Path) -> None:
    source, network = (PaperDescription(SMALL.paper_description) for _ in range(2))
    state = {key: value.half() for key, value in source.encoder.state_dict().items()}
    state |= {"fc.weight": torch.zeros(2, 2), "layer4.0.conv1.weight": torch.zeros(1)}
    state["bn1.running_var"][3] = float("inf")  # a variance above 65504 in a 16-bit file
    path = tmp_path / f"resnet18{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    decoder = network.conv_fine.conv.weight.clone()
    load_imagenet_encoder(path, network)
    torch.testing.assert_close(
        network.encoder.layer3[1].conv2.weight, source.encoder.layer3[1].conv2.weight, atol=1e-3, rtol=1e-2
    )
    assert network.encoder.conv1.weight.dtype == torch.float32
    assert float(network.encoder.bn1.running_var[3]) == 65504
    assert torch.equal(network.conv_fine.conv.weight, decoder)


def test_imagenet_encoder_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.safetensors"
    save_file(PaperDescription(SMALL.paper_description).encoder.state_dict(), path)
    with pytest.raises(CheckpointError) as error:
        load_imagenet_encoder(path, PaperDescription(PaperDescriptionOptions(encoder="resnet50")))
    assert_one_line(error, path.name)
