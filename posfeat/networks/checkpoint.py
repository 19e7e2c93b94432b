"""Weight files: our own checkpoints, the published layout, and ImageNet encoders to start from.

A checkpoint is one safetensors file: the model's tensors, and in its metadata the options that build the network and a
card that says where the weights come from. Reading one executes nothing. The published layout is a folder with
``backbone.pth`` and ``localheader.pth``; these are pickles, read with ``weights_only=True`` so that they can hold
tensors and nothing that runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from posfeat import __version__
from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.detection import PaperDetectionOptions
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.networks.resnet import BLOCKS, EncoderName, StrideConvention
from posfeat.options import options_from_mapping, options_to_mapping
from posfeat.types import CheckpointError, OptionsError

FORMAT = "posfeat-checkpoint-1"
PUBLISHED_FILES = ("backbone.pth", "localheader.pth")
DEFAULT_WEIGHTS = Path(__file__).parents[1] / "weights" / "default.safetensors"


@dataclass(frozen=True)
class ModelCard:
    """Where weights come from and what one may do with them."""

    name: str = ""
    trained: bool = False  # False for weights that no training has touched
    recipe: str = ""  # what reproduces them: configuration and command
    data: str = ""  # what they were trained on
    seed: int | None = None
    licence: str = "Apache-2.0"
    notes: str = ""
    package_version: str = __version__


@dataclass(frozen=True)
class CheckpointHeader:
    """What a checkpoint says about itself, readable without its tensors."""

    options: ModelOptions
    card: ModelCard
    num_parameters: int
    bytes: int


def load(weights: str | Path = "default", device: str | torch.device | None = None) -> PoSFeat:
    """A model ready to extract: ``"default"`` (shipped with the package), a checkpoint, or a folder in the published layout.

    Without a device, or with ``"auto"``, the first of CUDA, Apple's MPS and the CPU that is there is taken.
    """
    path = DEFAULT_WEIGHTS if weights == "default" else Path(weights)
    where = choose_device(device)
    return load_published(path, where) if path.is_dir() else load_checkpoint(path, where)


def choose_device(wanted: str | torch.device | None) -> torch.device:
    """The device of this name, checked to be there; the fastest one for None and ``"auto"``."""
    if wanted is None or wanted == "auto":
        return default_device()
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise OptionsError(f"there is no such device as {wanted!r}; take auto, cpu, cuda or mps") from None
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, True):
        raise OptionsError(f"there is no {device.type} device here; leave the device out, or take cpu")
    return device


def default_device() -> torch.device:
    """The fastest kind of device that is there."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def save_checkpoint(path: str | Path, model: PoSFeat, card: ModelCard, *, half: bool = False) -> None:
    """Write a model in one piece: the file is either the old one or the whole new one, whenever the power fails.

    ``half`` stores convolution weights as 16-bit floats; biases and statistics are few and stay as they are.
    """
    path = Path(path)
    tensors = {key: _stored(tensor, half) for key, tensor in model.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "options": json.dumps(options_to_mapping(model.options)),
        "card": json.dumps(options_to_mapping(card)),
        "licence": card.licence,
    }
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(descriptor)
    try:
        save_file(tensors, part, metadata)
        os.chmod(part, 0o644)  # temporary files are their owner's alone
        with open(part, "rb") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> PoSFeat:
    """The model of a checkpoint, in evaluation mode; weights that were never trained are announced as such."""
    path = Path(path)
    header = read_header(path)
    with _open_safetensors(path) as file:
        state = _tensors(file)
    model = build_model(header.options)
    _load_state(model, state, path)
    if not header.card.trained:
        warnings.warn(f"{path.name} holds untrained weights: its features mean nothing yet", stacklevel=2)
    return model.to(device).eval()


def read_card(path: str | Path) -> ModelCard:
    """Where the weights of a checkpoint come from."""
    return read_header(path).card


def read_header(path: str | Path) -> CheckpointHeader:
    """Everything that a checkpoint says about itself, checked; its tensors are not read."""
    path = Path(path)
    with _open_safetensors(path) as file:
        metadata = file.metadata() or {}
        sizes = [torch.Size(file.get_slice(key).get_shape()).numel() for key in file.keys()]  # noqa: SIM118
    if metadata.get("format") != FORMAT:
        kind = metadata.get("format", "nothing")
        raise CheckpointError(
            f"{path} is no PoSFeat checkpoint: its metadata names {kind!r} and not {FORMAT!r} as format"
        )
    try:
        options = options_from_mapping(ModelOptions, json.loads(metadata["options"]))
        card = options_from_mapping(ModelCard, json.loads(metadata["card"]))
    except (KeyError, ValueError, TypeError, AttributeError, OptionsError) as error:
        raise CheckpointError(
            f"{path} was written by another version of this package or is damaged: {_one_line(error)}"
        ) from error
    return CheckpointHeader(options, card, sum(sizes), path.stat().st_size)


def load_published(
    folder: str | Path, device: str | torch.device = "cpu", encoder_stride: StrideConvention = "conv3x3"
) -> PoSFeat:
    """The paper's model from ``backbone.pth`` and ``localheader.pth``; its sizes are read from the files."""
    folder = Path(folder)
    backbone, header = (_read_pickle(folder / name) for name in PUBLISHED_FILES)
    where = folder / PUBLISHED_FILES[0]
    try:
        description = PaperDescriptionOptions(
            encoder=_encoder_name(backbone, where),
            encoder_stride=encoder_stride,
            dim=backbone["conv_fine.conv.weight"].shape[0],
            coarse="conv_coarse.conv.weight" in backbone,
        )
        detection = PaperDetectionOptions(
            image_channels=header["convimg.weight"].shape[0], hidden_channels=header["conv2.weight"].shape[0]
        )
    except KeyError as error:
        raise CheckpointError(f"{folder} does not hold the published networks: {error.args[0]} is missing") from error
    model = build_model(ModelOptions(architecture="paper", paper_description=description, paper_detection=detection))
    _load_state(model.description, {_from_published(key): value for key, value in backbone.items()}, where)
    _load_state(model.detection, header, folder / PUBLISHED_FILES[1])
    return model.to(device).eval()


def load_imagenet_encoder(path: str | Path, network: PaperDescription) -> None:
    """Start the encoder from ImageNet weights with torchvision's key names (``.safetensors`` or ``.pth``).

    Further layers in the file (layer4, fc) are left out, and statistics beyond the range of a 16-bit file are taken as
    the largest number it can hold: an infinite variance would silence its channel for good. The file does not say which
    convolution carries the stride: weights of the Caffe model want ``encoder_stride="conv1x1"`` in the network's options.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        with _open_safetensors(path) as file:
            state = _tensors(file)
    else:
        state = _read_pickle(path)
    wanted = network.encoder.state_dict()
    _load_state(network.encoder, {key: _within_range(value) for key, value in state.items() if key in wanted}, path)


def weights_digest(model: PoSFeat) -> str:
    """Names the weights of a model by their content."""
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _stored(tensor: Tensor, half: bool) -> Tensor:
    tensor = tensor.detach().cpu().contiguous()
    if not half or tensor.dim() < 2 or tensor.dtype != torch.float32:
        return tensor
    small = tensor.half()
    return small if bool(torch.isfinite(small).all()) else tensor


def _within_range(tensor: Tensor) -> Tensor:
    """A 16-bit tensor's overflows brought back to the end of its range."""
    return tensor.clamp(max=torch.finfo(tensor.dtype).max) if tensor.dtype == torch.float16 else tensor


def _load_state(module: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load tensors that must fit exactly, and say in one line what does not."""
    wanted = module.state_dict()
    missing, foreign = [key for key in wanted if key not in state], [key for key in state if key not in wanted]
    misfit = [key for key in wanted if key in state and state[key].shape != wanted[key].shape]
    for problem, keys in (("lacks", missing), ("has unknown", foreign), ("has the wrong shape for", misfit)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise CheckpointError(f"{path} does not fit the network: it {problem} {keys[0]}{more}")
    broken = [key for key, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise CheckpointError(f"{path} is damaged: {broken[0]} holds values that are not numbers")
    module.load_state_dict({key: tensor.to(wanted[key].dtype) for key, tensor in state.items()})


def _tensors(file: Any) -> dict[str, Tensor]:
    return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping


def _open_safetensors(path: Path) -> Any:
    _require_file(path)
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a safetensors file or is cut short: {_one_line(error)}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    _require_file(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises on foreign bytes is not a closed list
        raise CheckpointError(
            f"{path} is no plain weight file (cut short, foreign, or wanting to run code): {_one_line(error)}"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise CheckpointError(f"{path} holds something other than named tensors")
    return state


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, not a weight file")
    if not path.exists():
        raise CheckpointError(f"weight file {path} does not exist")


def _encoder_name(backbone: Mapping[str, Tensor], path: Path) -> EncoderName:
    """Which encoder the keys of a published backbone belong to."""
    counts = tuple(
        len({match[1] for key in backbone if (match := re.match(rf"layer{stage}\.(\d+)\.", key))})
        for stage in (1, 2, 3)
    )
    if "layer1.0.conv3.weight" in backbone and counts == BLOCKS["resnet50"]:
        return "resnet50"
    if counts == BLOCKS["resnet34"]:
        return "resnet34"
    if counts == BLOCKS["resnet18"]:
        return "resnet18"
    raise CheckpointError(f"{path} has {counts} residual blocks a stage: not a ResNet-18, -34 or -50")


def _from_published(key: str) -> str:
    """Our name of a published backbone key."""
    key = re.sub(r"^(upconv\d)\.conv\.", r"\1.", key)
    key = re.sub(r"^first(conv|bn)\.", r"encoder.\g<1>1.", key)
    return re.sub(r"^layer", "encoder.layer", key)


def _one_line(error: BaseException) -> str:
    """The gist of somebody else's error message."""
    text = " ".join(str(error).split())
    return text[:160] or type(error).__name__
