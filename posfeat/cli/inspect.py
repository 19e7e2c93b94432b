"""``posfeat inspect``: what is this file?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posfeat.cli.progress import progress_bar

if TYPE_CHECKING:
    from posfeat.pipeline.feature_store import FeatureStore

EXAMPLES = """\b
Examples:
  posfeat inspect default
  posfeat inspect model.safetensors
  posfeat inspect features.h5
  posfeat inspect matches.h5 --verify
"""
DAMAGED = 1


def inspect(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A checkpoint, a folder in the published layout, features or matches."),
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Read all of it, and say what is damaged.")] = False,
) -> None:
    """Say what a checkpoint, feature file or match file holds."""
    from posfeat.pipeline.shards import is_shard_folder
    from posfeat.types import StoreError

    if str(path) == "default" and not path.exists():
        from posfeat.networks.checkpoint import DEFAULT_WEIGHTS

        path = DEFAULT_WEIGHTS
    if path.name in ("backbone.pth", "localheader.pth"):
        path = path.parent  # half of a model; the folder holds all of it
    if not path.exists():
        raise StoreError(f"there is no file {path}; check the name")
    if path.suffix == ".safetensors":
        lines, problems = _checkpoint(path, verify)
    elif path.is_dir() and not is_shard_folder(path):
        lines, problems = _published(path)
    else:
        lines, problems = _store(path, verify)
    for line in lines:
        print(line)
    if verify:
        for problem in problems:
            print(f"damaged: {problem}")
        print(f"{len(problems)} damaged" if problems else "all of it is sound")
        raise typer.Exit(DAMAGED if problems else 0)


def _checkpoint(path: Path, verify: bool) -> tuple[list[str], list[str]]:
    import dataclasses

    from posfeat.networks.checkpoint import load_checkpoint, read_header

    header = read_header(path)
    if verify:
        load_checkpoint(path)  # raises where tensors are missing, foreign, cut off or not finite
    lines = [
        f"checkpoint of the {header.options.architecture} networks",
        f"{header.num_parameters / 1e6:.2f} million numbers in {header.bytes / 1e6:.1f} MB",
    ]
    card = {field.name: getattr(header.card, field.name) for field in dataclasses.fields(header.card)}
    return lines + [f"{key}: {value}" for key, value in card.items() if value not in ("", None)], []


def _published(path: Path) -> tuple[list[str], list[str]]:
    from posfeat.networks.checkpoint import load_published

    model = load_published(path)  # all of it is read, so it is sound
    encoder = model.options.paper_description.encoder
    count = sum(tensor.numel() for tensor in model.state_dict().values())
    return [
        f"the paper's networks in the published layout, encoder {encoder}",
        f"{count / 1e6:.2f} million numbers",
    ], []


def _store(path: Path, verify: bool) -> tuple[list[str], list[str]]:
    from posfeat.pipeline.feature_store import FeatureStore, MatchStore, store_kind
    from posfeat.types import StoreError

    kind = store_kind(path)
    if kind is None:
        raise StoreError(f"{path} is an HDF5 file, but holds neither features nor matches in hloc's layout")
    with (FeatureStore if kind == "feature" else MatchStore)(path) as store, progress_bar("reading") as progress:
        lines = _feature_lines(store) if isinstance(store, FeatureStore) else [f"matches of {len(store)} pairs"]
        lines += [f"{key}: {value}" for key, value in store.settings.items()]
        return lines, store.verify(progress) if verify else []


def _feature_lines(store: FeatureStore) -> list[str]:
    names = store.names()
    counts = [store.num_keypoints(name) for name in names]
    if not counts:
        return ["features of 0 images"]
    dim = store.read(names[0]).descriptors.shape[1]
    mean = sum(counts) / len(counts)
    return [
        f"features of {len(names)} images, descriptors of {dim} dimensions",
        f"keypoints: {sum(counts)} in all, {min(counts)} to {max(counts)} an image, {mean:.0f} on average",
    ]
