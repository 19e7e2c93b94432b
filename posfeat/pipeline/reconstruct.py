"""Photos -> cameras and 3D points: extract, choose pairs, match, verify, map, export, and one page on how it went.

Every step is a function of its own from files to files, and goes on where it stopped; this puts them in a row.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from posfeat.data.images import shown
from posfeat.interop.colmap import load_pycolmap, read_model, registered_images
from posfeat.interop.colmap_database import ColmapDatabase
from posfeat.interop.colmap_mapping import MappingOptions, VerificationOptions
from posfeat.matching import MatchOptions
from posfeat.options import check_options, nested
from posfeat.pipeline.choose_cameras import CameraOptions
from posfeat.pipeline.diagnose import doubts, why_left_out
from posfeat.pipeline.export import UNDISTORTED, Format, export_model
from posfeat.pipeline.extract import Extractor, extract_folder, list_images, require_masks
from posfeat.pipeline.known_cameras import known_views
from posfeat.pipeline.map import MapReport, ModelSummary, map_scene, model_folders
from posfeat.pipeline.match import match_pairs, read_pairs
from posfeat.pipeline.scene_report import write_scene_report
from posfeat.pipeline.select_pairs import PairSelectionOptions, select_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import DataError, ReconstructionError

Progress = Callable[[int, int], None]
ProgressBars = Callable[[str], AbstractContextManager[Progress | None]]


@dataclass(frozen=True)
class ReconstructionOptions:
    """The options of all steps after extraction; ``matching`` of None leaves it to the features."""

    pairs: PairSelectionOptions = nested(PairSelectionOptions, "which pairs are matched")
    matching: MatchOptions | None = None
    cameras: CameraOptions = nested(CameraOptions, "what is known of the cameras")
    verification: VerificationOptions = nested(VerificationOptions, "which matches are trusted")
    mapping: MappingOptions = nested(MappingOptions, "how cameras and points are computed")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class ReconstructionSummary:
    """How it went."""

    num_photos: int  # picture files in the folder
    num_pairs: int
    num_verified_pairs: int
    models: tuple[ModelSummary, ...]  # the largest first
    seconds: dict[str, float]  # of each step, in this run
    left_out: dict[str, str]  # photos that are not in the largest model, and why
    doubts: tuple[str, ...]  # what speaks against the largest model
    failures: tuple[str, ...]  # other lines that were said on the way

    @property
    def model(self) -> ModelSummary:
        """The largest model."""
        return self.models[0]


def _silent(title: str) -> AbstractContextManager[None]:
    return nullcontext()


def reconstruct(
    extractor: Extractor,
    image_folder: Path,
    output: Path,
    options: ReconstructionOptions | None = None,
    *,
    mask_folder: Path | None = None,
    cameras: Path | None = None,
    pair_list: Path | None = None,
    formats: Sequence[Format] = ("ply", "nerfstudio", "undistorted"),
    progress_bar: ProgressBars = _silent,
    on_failure: Callable[[str], None] | None = None,
) -> ReconstructionSummary:
    """Reconstruct the photos below a folder; everything that is made lies in ``output``.

    ``cameras`` are posed photos: their intrinsics are taken as known, and their poses or points may choose the pairs.
    """
    options = options or ReconstructionOptions()
    load_pycolmap()  # what is missing is better said now than after an hour
    run = _Run(output, progress_bar, on_failure)
    names = _photos(image_folder, mask_folder, run)
    known = known_views(cameras, set(names)) if cameras else {}
    features, pairs, matches, database = (
        output / name for name in ("features.h5", "pairs.txt", "matches.h5", "database.db")
    )
    with run.step("extract") as progress:
        extract_folder(
            extractor,
            image_folder,
            features,
            names=names,
            mask_folder=mask_folder,
            progress=progress,
            on_failure=run.failed,
        )
    with run.step("pairs") as progress:
        select_pairs(
            features, pairs, options.pairs, images=set(names), cameras=cameras, pair_list=pair_list, progress=progress
        )
        chosen = read_pairs(pairs, names)
    with run.step("match") as progress:
        matching = options.matching or extractor.own_matching
        match_pairs(features, chosen, matches, matching, progress=progress, on_failure=run.failed)
    with run.step("verify") as progress:
        verified = verify_pairs(
            features,
            matches,
            image_folder,
            database,
            options.verification,
            options.cameras,
            images=set(names),
            known_cameras={name: view.camera for name, view in known.items()},
            pairs=chosen,
            progress=progress,
            on_failure=run.failed,
        )
    with run.step("map") as progress:
        mapped = map_scene(database, image_folder, output / "sparse", options.mapping, progress=progress)
    return _finish(run, image_folder, names, formats, verified.num_verified, len(chosen), mapped)


class _Run:
    """What a run gathers on its way: the time of each step, and lines on what could not be used."""

    def __init__(self, output: Path, progress_bar: ProgressBars, on_failure: Callable[[str], None] | None) -> None:
        self.output, self.progress_bar, self.on_failure = output, progress_bar, on_failure
        self.seconds: dict[str, float] = {}
        self.failures: list[str] = []
        try:
            output.mkdir(parents=True, exist_ok=True)
            probe = output / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ReconstructionError(f"cannot write to {output}: {error.strerror}; choose another place") from None

    def failed(self, line: str) -> None:
        self.failures.append(line)
        if self.on_failure:
            self.on_failure(line)

    @contextmanager
    def step(self, name: str) -> Iterator[Progress | None]:
        start = time.perf_counter()
        with self.progress_bar(name) as progress:
            yield progress
        self.seconds[name] = time.perf_counter() - start


def _photos(image_folder: Path, mask_folder: Path | None, run: _Run) -> list[str]:
    """The photos below the folder, without those that an earlier run has written there, if its output lies there too."""
    names = list_images(image_folder, mask_folder, run.failed)
    root, output = image_folder.resolve(), run.output.resolve()
    if output.is_relative_to(root):
        written = (output / UNDISTORTED).relative_to(root).as_posix()
        names = [name for name in names if not name.startswith((f"{written}/", f"{written}.part/"))]
    if not names:
        raise DataError(f"there are no photos in {image_folder}; check the name of the folder")
    if mask_folder is not None:
        require_masks(mask_folder, names)
    return names


def _finish(
    run: _Run,
    image_folder: Path,
    names: Sequence[str],
    formats: Sequence[Format],
    num_verified: int,
    num_pairs: int,
    mapped: MapReport,
) -> ReconstructionSummary:
    """Export the largest model, and write the report and the summary."""
    folder = model_folders(run.output / "sparse")[0]
    with run.step("export") as progress:
        export_model(folder, image_folder, run.output, formats, progress=progress, on_failure=run.failed)
    model = read_model(folder)
    registered = {str(image.name) for image in registered_images(model)}
    with ColmapDatabase(run.output / "database.db") as database:
        left_out = why_left_out(database, registered)
        unread = [name for name in names if name not in {*left_out, *registered}]
        left_out |= {name: _why_unread(image_folder / name, run.failures) for name in unread}
        summary = ReconstructionSummary(
            num_photos=len(names),
            num_pairs=num_pairs,
            num_verified_pairs=num_verified,
            models=mapped.models,
            seconds=run.seconds,
            left_out=left_out,
            doubts=tuple(doubts(database, model)),
            failures=tuple(run.failures),
        )
        with run.step("report"):
            write_scene_report(run.output / "report.html", model, database, image_folder, summary)
    _write_json(run.output / "summary.json", summary)
    return summary


def _why_unread(path: Path, failures: Sequence[str]) -> str:
    """What was said of a photo when its features were to be extracted."""
    said = f"{shown(path)} "
    return next((line.removeprefix(said) for line in failures if line.startswith(said)), "no features were found")


def _write_json(path: Path, summary: ReconstructionSummary) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(dataclasses.asdict(summary), indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
