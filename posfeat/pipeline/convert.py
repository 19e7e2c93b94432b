"""Feature and match stores -> other programs' folders, and back. An image or pair that does not fit costs itself only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from posfeat.data.images import image_size
from posfeat.interop.colmap_text import ColmapTextFolder
from posfeat.interop.eth import EthFolder
from posfeat.interop.folder_files import FeatureFolder, has_no_matches
from posfeat.interop.imc import ImcFolder
from posfeat.interop.npz import AACHEN_ENDING, D2NET_ENDING, AachenFolder, D2NetFolder
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.write_batch import WriteBatch
from posfeat.types import DataError, Features, ImageError, Matches

Format = Literal["colmap-text", "eth", "imc", "d2net", "aachen"]
Progress = Callable[[int, int], None]
Failed = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class ConversionReport:
    """How many images and pairs were converted, and how many were not; a line was said for each of these."""

    num_images: int
    num_pairs: int
    num_failures: int


def open_folder(kind: Format, folder: Path, ending: str | None = None, images: Sequence[str] = ()) -> FeatureFolder:
    """A folder in another program's format; ``images`` are the names it is to be read into, where it abbreviates them."""
    if kind == "colmap-text":
        return ColmapTextFolder(folder)
    if kind == "eth":
        return EthFolder(folder)
    if kind == "imc":
        return ImcFolder(folder, images)
    if kind == "d2net":
        return D2NetFolder(folder, ending or D2NET_ENDING)
    return AachenFolder(folder, ending or AACHEN_ENDING)


def export_stores(
    features_path: Path, matches_path: Path | None, folder: FeatureFolder, progress: Progress, on_failure: Failed
) -> ConversionReport:
    """Write all features of a store, and all matches of another if there is one, into a folder."""
    if matches_path is not None and not folder.holds_matches:
        raise has_no_matches("this program")
    num_images = num_pairs = num_failures = 0
    with FeatureStore(features_path) as features:
        for name in _counted(features.names(), progress):
            try:
                folder.write(name, features.read(name))
                num_images += 1
            except DataError as error:  # a store or a place to write that fails ends the work
                on_failure(str(error))
                num_failures += 1
    if matches_path is not None:
        with MatchStore(matches_path) as matches:
            for name0, name1 in _counted(matches.pairs(), progress):
                try:
                    folder.write_matches(name0, name1, matches.read(name0, name1))
                    num_pairs += 1
                except DataError as error:
                    on_failure(str(error))
                    num_failures += 1
    folder.close()
    return ConversionReport(num_images, num_pairs, num_failures)


def import_folder(
    folder: FeatureFolder,
    image_folder: Path,
    features_path: Path,
    matches_path: Path | None,
    progress: Progress,
    on_failure: Failed,
) -> ConversionReport:
    """Read a folder into a store of features, and its matches into another; the photos tell how large the images are."""
    names = folder.names()
    if not names:
        raise DataError(f"no features of this format in {folder.folder}; check the folder and the format")
    num_images = num_pairs = num_failures = 0
    num_keypoints: dict[str, int] = {}
    with (
        FeatureStore(features_path, "a") as features,
        WriteBatch[tuple[str, Features]](lambda items: features.write_all(items, "float32")) as batch,
    ):
        for name in _counted(names, progress):
            try:
                found = folder.read(name, image_size(image_folder / name))
                batch.add((name, found))
                num_keypoints[name] = len(found)
                num_images += 1
            except (DataError, ImageError) as error:
                on_failure(str(error))
                num_failures += 1
            batch.write_if_due()
    if matches_path is not None:
        with (
            MatchStore(matches_path, "a") as matches,
            WriteBatch[tuple[str, str, Matches, int]](matches.write_all) as match_batch,
        ):
            for name0, name1 in _counted(folder.pairs(), progress):
                try:
                    read = _checked(folder.read_matches(name0, name1), num_keypoints, name0, name1)
                    match_batch.add((name0, name1, read, num_keypoints[name0]))
                    num_pairs += 1
                except DataError as error:
                    on_failure(str(error))
                    num_failures += 1
                match_batch.write_if_due()
    folder.close()
    return ConversionReport(num_images, num_pairs, num_failures)


def _checked(matches: Matches, num_keypoints: dict[str, int], name0: str, name1: str) -> Matches:
    """The matches, whose indices are keypoints of the two images."""
    counts = [num_keypoints.get(name, 0) for name in (name0, name1)]
    if len(matches) and bool(((matches.indices < 0) | (matches.indices >= matches.indices.new_tensor(counts))).any()):
        raise DataError(
            f"matches of {name0} {name1} name keypoints that these images do not have; were both converted?"
        )
    return matches


def _counted(items: Sequence[T], progress: Progress) -> Iterator[T]:
    for done, item in enumerate(items, start=1):
        yield item
        progress(done, len(items))
