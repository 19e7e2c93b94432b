"""From the data options to batches for training and for validation: what is held out is never trained on."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posfeat.data.augment import PhotometricOptions
from posfeat.data.geometric import GeometricOptions
from posfeat.data.images import IMAGE_SUFFIXES
from posfeat.data.loader import PairLoader
from posfeat.data.pair_list import read_pair_list
from posfeat.data.pair_sample import PairSource
from posfeat.data.pairs import PairOptions
from posfeat.data.photo_source import PhotoSource
from posfeat.data.posed import read_pairs, read_posed
from posfeat.data.posed_source import PosedSource
from posfeat.data.synthetic import SyntheticOptions
from posfeat.options import check_options, described, nested
from posfeat.training.distributed import Workers
from posfeat.types import DataError, OptionsError, Pair, PairBatch

VALIDATION_SEED = 20_220_619


@dataclass(frozen=True)
class DataOptions:
    """What is trained and validated on."""

    photos: tuple[str, ...] = described((), "folders of plain photos, for rendered pairs")
    posed: tuple[str, ...] = described((), "posed photos: COLMAP models, nerfstudio, MegaDepth, cameras.txt")
    scenes: str | None = described(None, "a file that lists the scenes of the posed photos to use, one a line")
    pair_list: str | None = described(
        None, "the pairs.txt of `posfeat data check`: only these posed pairs are trained on"
    )
    photo_weight: float = described(1.0, "share of rendered pairs, relative to posed_weight", low=0)
    posed_weight: float = described(1.0, "share of posed pairs, relative to photo_weight", low=0)
    height: int = described(480, "height of training images", low=32)
    width: int = described(640, "width of training images", low=32)
    held_out: float = described(
        0.05, "share of the photos, plain or posed, kept for validation; chosen by file name", low=0, high=0.9
    )
    validation_posed: tuple[str, ...] = described(
        (), "posed photos for validation only; where given, none of the posed ones are held out"
    )
    workers: int = described(1, "threads that prepare batches ahead; 0: none", low=0)
    processes: int = described(0, "processes that prepare whole batches, in place of threads: for many cores", low=0)
    rendering: SyntheticOptions = nested(SyntheticOptions, "how a photo becomes two views")
    look: PhotometricOptions = nested(PhotometricOptions, "photometric change")
    geometry: GeometricOptions = nested(GeometricOptions, "crop, scale and turn of posed photos")
    pairs: PairOptions = nested(PairOptions, "choice of posed pairs")

    def __post_init__(self) -> None:
        check_options(self)
        if self.height % 16 or self.width % 16:
            raise OptionsError(f"data.height={self.height} and data.width={self.width} must be multiples of 16")


@dataclass(frozen=True)
class Sources:
    """Where pairs come from, ready to draw."""

    training: list[PairSource]
    weights: list[float]
    rendered_validation: PhotoSource | None
    posed_validation: list[PosedSource]
    fingerprint: dict[str, Any]


def open_sources(options: DataOptions) -> Sources:
    """Find the data; DataError where there is nothing to train on."""
    kept, held_out = _split_photos(options)
    posed, judged = _split_pairs(_posed_pairs(options), 0.0 if options.validation_posed else options.held_out)
    training: list[PairSource] = []
    weights: list[float] = []
    if kept:
        training.append(PhotoSource(kept, options.rendering, options.look))
        weights.append(options.photo_weight)
    if posed:
        training.append(PosedSource(posed, options.geometry, options.look))
        weights.append(options.posed_weight)
    if not training:
        raise DataError("nothing to train on: give folders in data.photos or posed photos in data.posed")
    # without plain photos, views of the held-out posed ones are rendered: there the truth is known at every pixel
    rendered = held_out or _held_out_photos(posed, judged)
    true_look = replace(options.rendering, correspondences=True)
    plain = PhotometricOptions(strength=0.0)
    upright = GeometricOptions(strength=0.0)
    validation = [judged] if judged else [read_pairs(path, options.pairs) for path in options.validation_posed]
    return Sources(
        training,
        weights,
        PhotoSource(rendered, true_look, options.look) if rendered else None,
        [PosedSource(pairs, upright, plain) for pairs in validation],
        {"photos": len(kept), "held_out": len(rendered), "posed_pairs": len(posed), "hash": _fingerprint(kept, posed)},
    )


def training_batches(
    sources: Sources, options: DataOptions, batch_size: int, seed: int, first_step: int, workers: Workers
) -> Iterator[PairBatch]:
    """Batches without end from a step on: this process's share of each."""
    loader = PairLoader(
        sources.training,
        sources.weights,
        batch_size,
        options.height,
        options.width,
        seed,
        first_step,
        workers=options.workers,
        processes=options.processes,
        raw=True,
        rank=workers.rank,
        world_size=workers.world_size,
    )
    return iter(loader)


def validation_batches(
    sources: Sources, options: DataOptions, rendered_pairs: int, posed_pairs: int, batch_size: int
) -> tuple[list[PairBatch], list[PairBatch]]:
    """The same held-out pairs in every run, drawn as fast as training's: rendered ones with their truth, and posed ones."""
    rendered: list[PairBatch] = []
    if sources.rendered_validation is not None:
        rendered = _fixed(sources.rendered_validation, options, rendered_pairs, batch_size)
    posed = [batch for source in sources.posed_validation for batch in _fixed(source, options, posed_pairs, batch_size)]
    return rendered, posed


def _fixed(source: PairSource, options: DataOptions, pairs: int, batch_size: int) -> list[PairBatch]:
    steps = max(1, pairs // batch_size)
    return list(
        PairLoader(
            [source],
            None,
            batch_size,
            options.height,
            options.width,
            VALIDATION_SEED,
            num_steps=steps,
            workers=options.workers,
        )
    )


def _posed_pairs(options: DataOptions) -> list[Pair]:
    """The pairs that a check found usable where its list is given, else chosen from the poses."""
    scenes = None if options.scenes is None else Path(options.scenes)
    if options.pair_list is None:
        return [pair for path in options.posed for pair in read_pairs(path, options.pairs, scenes)]
    return read_pair_list(
        Path(options.pair_list), [view for path in options.posed for view in read_posed(path, scenes)]
    )


def _split_photos(options: DataOptions) -> tuple[list[Path], list[Path]]:
    """Photos to train on and photos held out."""
    paths: list[Path] = []
    for folder in map(Path, options.photos):
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise DataError(f"no photos in {folder}; check data.photos")
        paths += found
    held_out = _held_out({path.name for path in paths}, options.held_out)
    return [p for p in paths if p.name not in held_out], [p for p in paths if p.name in held_out]


def _split_pairs(pairs: list[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Posed pairs to train on, and those that show a photo that is held out."""
    held_out = _held_out({view.name for pair in pairs for view in (pair.view0, pair.view1)}, share)
    judged = [pair for pair in pairs if pair.view0.name in held_out or pair.view1.name in held_out]
    kept = [pair for pair in pairs if not (pair.view0.name in held_out or pair.view1.name in held_out)]
    return (kept, judged) if kept else (pairs, [])


def _held_out_photos(posed: list[Pair], judged: list[Pair]) -> list[Path]:
    """The photos of the judged pairs that no pair trains on."""
    trained = {view.image_path for pair in posed for view in (pair.view0, pair.view1)}
    return sorted({view.image_path for pair in judged for view in (pair.view0, pair.view1)} - trained)


def _held_out(names: set[str], share: float) -> set[str]:
    """The names to hold out: each decides for itself, so that adding photos moves none across; of several at least one."""
    if share == 0 or len(names) < 2:
        return set()
    places = {name: zlib.crc32(name.encode()) / 2**32 for name in names}
    return {name for name, place in places.items() if place < share} or {min(names, key=places.__getitem__)}


def _fingerprint(photos: list[Path], posed: list[Any]) -> str:
    """A hash of the names and sizes of everything trained on."""
    digest = hashlib.sha256()
    for path in photos:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    for pair in posed:
        digest.update(f"{pair.view0.scene} {pair.view0.name} {pair.view1.name}\n".encode())
    return digest.hexdigest()[:16]
