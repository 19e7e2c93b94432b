"""A model on one page that needs no other file: points and cameras in 3D, the match graph, the photos that went wrong and why."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from posfeat import __version__
from posfeat.data.images import encode_image, read_image, resize_longest
from posfeat.interop.colmap import Model, point_rows, views_of_model
from posfeat.interop.colmap_database import ColmapDatabase, PairSummary
from posfeat.pipeline.image_quality import ImageQuality, image_qualities, weakest
from posfeat.types import PosfeatError, View

if TYPE_CHECKING:
    from posfeat.pipeline.reconstruct import ReconstructionSummary

MOST_POINTS = 200_000  # those seen by the most photos
MOST_THUMBNAILS = 250
THUMBNAIL_PX = 160
_HERE = Path(__file__).parent


def write_scene_report(
    path: Path, model: Model, database: ColmapDatabase, image_folder: Path, summary: ReconstructionSummary
) -> None:
    """Write the page."""
    pairs = database.pairs()
    views, qualities = views_of_model(model, image_folder), image_qualities(model, pairs)
    weak = weakest(qualities)
    names = [*(view.name for view in views), *sorted(summary.left_out)]
    first = [*list(summary.left_out)[: MOST_THUMBNAILS // 2], *weak]
    content = {
        "summary": _rows(summary),
        "steps": [[step, seconds] for step, seconds in summary.seconds.items()],
        "doubts": list(summary.doubts),
        "failures": [line for line in summary.failures if not line.endswith(tuple(summary.left_out.values()))],
        "points": _points(model),
        "cameras": [_camera(view, quality) for view, quality in zip(views, qualities, strict=True)],
        "names": names,
        "pairs": _pairs(pairs, names),
        "left_out": summary.left_out,
        "weak": weak,
        "thumbnails": _thumbnails(image_folder, _first_of((*first, *names), MOST_THUMBNAILS)),
        "version": __version__,
    }
    page = (_HERE / "scene_report.html").read_text(encoding="utf-8")
    viewer = (_HERE / "scene_viewer.js").read_text(encoding="utf-8").replace("export class", "class")
    script = (_HERE / "scene_report.js").read_text(encoding="utf-8")
    data = json.dumps(content, allow_nan=False).replace("</", "<\\/")
    parts = {
        "TITLE": html.escape("/".join(image_folder.resolve().parts[-2:])),
        "VIEWER": viewer,
        "SCRIPT": script,
        "DATA": data,
    }
    for key, text in parts.items():  # what photos are called comes last: it is not looked into
        page = page.replace(f"[[{key}]]", text)
    part = path.with_name(path.name + ".part")
    part.write_text(page, encoding="utf-8")
    os.replace(part, path)


def _rows(summary: ReconstructionSummary) -> list[list[str]]:
    """What the head of the page says."""
    model = summary.model
    rows = [
        ["photos in the model", f"{model.num_images} of {summary.num_photos}"],
        ["points", f"{model.num_points:,}"],
        ["track length", f"{model.mean_track_length:.2f} photos see a point"],
        ["reprojection error", f"{model.mean_reprojection_error_px:.2f} px"],
        ["verified pairs", f"{summary.num_verified_pairs:,} of {summary.num_pairs:,}"],
        ["cameras", f"{model.num_cameras}"],
    ]
    if len(summary.models) > 1:
        rows.append(["other models", ", ".join(f"{other.num_images} photos" for other in summary.models[1:])])
    return rows


def _points(model: Model) -> dict[str, Any]:
    ids, positions, colours = point_rows(model)
    if len(ids) > MOST_POINTS:
        lengths = np.array([model.point3D(number).track.length() for number in ids.tolist()])
        kept = np.sort(np.argsort(-lengths, kind="stable")[:MOST_POINTS])
        positions, colours = positions[kept], colours[kept]
    return {
        "total": len(ids),
        "positions": _base64(positions.astype("<f4").tobytes()),
        "colours": _base64(colours.tobytes()),
    }


def _camera(view: View, quality: ImageQuality) -> dict[str, Any]:
    camera, world_from_cam = view.camera, np.linalg.inv(view.cam_from_world)
    return {
        "name": view.name,
        "world_from_cam": _short(world_from_cam),
        "tan_x": round(camera.width / 2 / float(camera.matrix[0, 0]), 5),
        "tan_y": round(camera.height / 2 / float(camera.matrix[1, 1]), 5),
        **{key: value for key, value in dataclasses.asdict(quality).items() if key != "name"},
    }


def _pairs(pairs: Sequence[PairSummary], names: Sequence[str]) -> list[list[int]]:
    """Rows of the names, matches and verified matches of each pair."""
    row = {name: number for number, name in enumerate(names)}
    known = [pair for pair in pairs if pair.name0 in row and pair.name1 in row]
    return [[row[pair.name0], row[pair.name1], pair.num_matches, pair.num_inliers] for pair in known]


def _thumbnails(image_folder: Path, names: Iterable[str]) -> Mapping[str, str]:
    found = {}
    for name in names:
        try:
            photo = read_image(image_folder / name)
        except PosfeatError:
            continue
        found[name] = _base64(encode_image(resize_longest(photo, THUMBNAIL_PX), ".jpg"))
    return found


def _first_of(names: Sequence[str], most: int) -> list[str]:
    return list(dict.fromkeys(names))[:most]


def _short(matrix: npt.NDArray[Any]) -> list[float]:
    return [float(f"{value:.7g}") for value in matrix.ravel()]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
