"""Many photos and a map -> a list of poses. Goes on where it stopped; a photo that is not found costs itself only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posfeat.data.images import shown
from posfeat.interop.visual_localization import listed_names, require_no_space, write_poses
from posfeat.options import options_to_mapping
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.localize import Localization, Localizer
from posfeat.types import Camera, PosfeatError, StoreError

Progress = Callable[[int, int], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class LocalizationReport:
    """How many photos were found; ``failures`` holds a line for each that was not."""

    num_photos: int
    num_localized: int
    num_known: int  # done before, and not again
    failures: tuple[str, ...]


def localize_photos(
    localizer: Localizer,
    queries: Mapping[str, Camera | None],
    image_folder: Path,
    output: Path,
    *,
    query_features: Path | None = None,
    details: Path | None = None,
    full_names: bool = False,
    progress: Progress | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> LocalizationReport:
    """Write the poses of photos, by their names below ``image_folder``, to ``output``.

    ``query_features`` is a feature file to take instead of the photos themselves. ``details`` gets a line of JSON for each
    photo: pose, camera, how many matches support it, how certain it is, or why there is none.
    """
    listed = listed_names(queries, full_names)
    settings = {**_settings(localizer, query_features), "full_names": full_names}
    journal = _Journal(output.with_name(output.name + ".unfinished"), settings)
    known = sum(name in journal.rows for name in queries)
    store = None if query_features is None else FeatureStore(query_features)
    try:
        for done, (name, camera) in enumerate(queries.items(), start=1):
            if name not in journal.rows:
                row = _localize(localizer, name, listed[name], camera, image_folder, store)
                journal.add(row)
                if on_failure and "failure" in row:
                    on_failure(row["failure"])
            if progress:
                progress(done, len(queries))
    finally:
        journal.close()
        if store is not None:
            store.close()
    rows = [journal.rows[name] for name in queries]
    if details is not None:
        _write_lines(details, rows)
    found = {row["name"]: np.array(row["cam_from_world"]) for row in rows if "cam_from_world" in row}
    write_poses(output, found, full_names)
    journal.remove()
    failures = tuple(row["failure"] for row in rows if "failure" in row)
    return LocalizationReport(len(rows), len(found), known, failures)


def _localize(
    localizer: Localizer, name: str, listed: str, camera: Camera | None, folder: Path, store: FeatureStore | None
) -> Row:
    try:
        require_no_space(listed)
        if store is None:
            return {"name": name, **_plain(localizer.localize(folder / name, camera))}
        return {"name": name, **_plain(localizer.localize_features(store.read(name), camera, name=name))}
    except PosfeatError as error:
        return {"name": name, "failure": str(error)}


def _plain(found: Localization) -> Row:
    camera = found.camera
    return {
        "cam_from_world": found.cam_from_world.tolist(),
        "camera": {
            "model": camera.model,
            "size": [camera.width, camera.height],
            "matrix": camera.matrix.tolist(),
            "distortion": list(camera.distortion),
        },
        "num_matches": found.num_matches,
        "num_inliers": found.num_inliers,
        "reprojection_error_px": found.reprojection_error_px,
        "centre_deviation": found.centre_deviation,
        "covariance": found.covariance.tolist(),
        "images": list(found.images),
    }


def _settings(localizer: Localizer, query_features: Path | None) -> Row:
    """What a result depends on, so that unfinished work is gone on with only where all of it is the same."""
    size = {path.name: path.stat().st_size for path in sorted(localizer.map.folder.glob("points3D.*"))}
    return {
        "map": str(localizer.map.folder.resolve()),
        "points": size,
        "features": localizer.map.store.settings,
        "query_features": None if query_features is None else str(query_features.resolve()),
        "options": options_to_mapping(localizer.options),
    }


class _Journal:
    """A line of JSON for each photo that is done, after one that says with what settings."""

    def __init__(self, path: Path, settings: Row) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        head = json.dumps(settings, sort_keys=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if lines and lines[0] == head:
            for line in lines[1:]:
                try:
                    row = json.loads(line)
                except ValueError:  # the last line of a process that was killed
                    break
                self.rows[row["name"]] = row
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
            self._write([head, *(json.dumps(row) for row in self.rows.values())])
        except OSError as error:
            raise StoreError(f"cannot write {shown(path)}: {error.strerror}; choose another place") from None

    def add(self, row: Row) -> None:
        """Keep a result."""
        self.rows[row["name"]] = row
        try:
            self._write([json.dumps(row)])
        except OSError as error:
            raise StoreError(f"cannot write {shown(self.path)}: {error.strerror}; make room") from None

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def remove(self) -> None:
        """All is done."""
        self.path.unlink(missing_ok=True)

    def _write(self, lines: list[str]) -> None:
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()


def _write_lines(path: Path, rows: list[Row]) -> None:
    try:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {shown(path)}: {error.strerror}; choose another place") from None
