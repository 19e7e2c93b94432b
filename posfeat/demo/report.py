"""What the demo tells: report.html, one page that needs no other file and no network, and results.json."""

from __future__ import annotations

import base64
import html
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posfeat.data.images import encode_image, read_image, resize_longest
from posfeat.data.random_views import PosedCamera
from posfeat.demo.figures import pair_grid, plan
from posfeat.demo.page_style import STYLE
from posfeat.demo.rebuilt import Rebuilt
from posfeat.demo.run import RIGHT_PX, STEREO_RIGHT_PX, DemoResults, Gallery, GalleryPair, RealPair

_ANGLES_DEG = (0, 10, 20, 35, 50, 90)
_THUMBNAIL_PX = 360
_ON_YOUR_PHOTOS = """posfeat match a.jpg b.jpg -o matches.png
posfeat extract photos/ -o features.h5
posfeat match features.h5 -o matches.h5
posfeat reconstruct photos/ -o scene/"""


def write_report(folder: Path, results: DemoResults, origin: Mapping[str, str], warning: str = "") -> None:
    """Write results.json and report.html, each all or nothing. ``origin``: weights, machine, versions, in words."""
    _replace(folder / "results.json", json.dumps({**summary(results), "origin": dict(origin)}, indent=1) + "\n")
    _replace(folder / "report.html", page(results, origin, warning))


def summary(results: DemoResults) -> dict[str, Any]:
    """The numbers of the demo."""
    real, gallery = results.real, results.gallery
    return {
        "real_pair": {
            "keypoints": list(real.num_keypoints),
            "matches": real.num_matches,
            "on_one_epipolar_geometry": real.num_verified,
            f"share_within_{STEREO_RIGHT_PX:g}px": round(real.right_share, 4),
        },
        "gallery": {
            "views": len(gallery.views),
            "keypoints": gallery.num_keypoints,
            "pairs": len(gallery.pairs),
            "matches": gallery.num_matches,
            f"share_within_{RIGHT_PX:g}px": round(gallery.right_share, 4),
        },
        "reconstruction": rebuilt_numbers(results.rebuilt),
        "seconds": {step: round(seconds, 2) for step, seconds in results.seconds.items()},
    }


def rebuilt_numbers(rebuilt: Rebuilt | str) -> dict[str, Any]:
    """The reconstruction in numbers."""
    if isinstance(rebuilt, str):
        return {"failure": rebuilt}
    return {
        "views": rebuilt.model.num_images,
        "points": rebuilt.model.num_points,
        "track_length": round(rebuilt.model.mean_track_length, 3),
        "reprojection_error_px": round(rebuilt.model.mean_reprojection_error_px, 3),
        "mean_centre_error_percent": round(rebuilt.errors.mean_centre_percent, 4),
        "mean_rotation_error_deg": round(rebuilt.errors.mean_rotation_deg, 4),
        "focal_px": round(rebuilt.focal_px, 2),
        "true_focal_px": round(rebuilt.true_focal_px, 2),
    }


def page(results: DemoResults, origin: Mapping[str, str], warning: str = "") -> str:
    """The page as HTML."""
    title, total = "PoSFeat at work", sum(results.seconds.values())
    intro = (
        f"Two real photos and {len(results.gallery.views)} rendered ones, matched on this machine in {total:.0f} s. "
        "For all of them it is known exactly which pixels show the same spot, so every match can be judged."
    )
    parts = [f"<h1>{title}</h1>", f'<p class="soft">{intro}</p>']
    if warning:
        parts.append(f'<p class="warning">{html.escape(warning)}</p>')
    parts += [_facts(results), _real_section(results.real), _gallery_section(results.gallery)]
    parts += [
        _pairs_section(results.gallery),
        rebuilt_section(results.rebuilt, results.gallery.cameras),
        _commands_section(),
        _origin_section(results.seconds, origin),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n'


def _facts(results: DemoResults) -> str:
    real, gallery = results.real, results.gallery
    facts = (
        (f"{real.num_matches:,}", "matches between the two real photos"),
        (f"{real.right_share:.0%}", f"of them within {STEREO_RIGHT_PX:g} px of the measured truth"),
        (f"{gallery.num_matches:,}", f"matches in {len(gallery.pairs)} pairs of the gallery"),
        (f"{gallery.right_share:.0%}", f"of them within {RIGHT_PX:g} px of the exact truth"),
    )
    return _tiles(facts)


def _tiles(facts: Sequence[tuple[str, str]]) -> str:
    tiles = "".join(f"<div><b>{number}</b><span>{html.escape(words)}</span></div>" for number, words in facts)
    return f'<div class="facts">{tiles}</div>'


def _real_section(real: RealPair) -> str:
    text = (
        "The motorcycle of Middlebury's stereo data. For most pixels of the left photo it was measured where the right one "
        "shows the same spot. The lines below are an even choice of all mutual nearest neighbours, before any geometry "
        f"sorts them. {_colours(STEREO_RIGHT_PX)}"
    )
    keypoints = " and ".join(f"{count:,}" for count in real.num_keypoints)
    caption = (
        f"{keypoints} keypoints, {real.num_matches:,} matches; {real.num_verified:,} of them agree on one epipolar "
        "geometry, which is found from the matches alone."
    )
    return _section("Two real photos", text, _figure(real.picture.read_bytes(), caption))


def _gallery_section(gallery: Gallery) -> str:
    text = (
        "Seven photos hang at different distances before a bulging wall; the views are rendered with cameras that are "
        "known to the last digit (<code>gallery/cameras.txt</code>)."
    )
    photos = (encode_image(resize_longest(read_image(v.image_path), _THUMBNAIL_PX), ".jpg") for v in gallery.views)
    thumbnails = "".join(
        f'<div><img src="{_embedded(photo)}" alt="view {number}"><span>{number}</span></div>'
        for number, photo in enumerate(photos, start=1)
    )
    above = '<p class="soft" style="margin-top:1.2rem">The same from above, with the numbers of the views:</p>'
    return _section("A rendered gallery", text, f'<div class="sheet">{thumbnails}</div>{above}{plan(gallery.cameras)}')


def _pairs_section(gallery: Gallery) -> str:
    text = f"All {len(gallery.pairs)} pairs of views, matched by mutual nearest neighbours. {_colours(RIGHT_PX)}"
    pictures = "".join(_figure(path.read_bytes(), _pair_caption(pair)) for pair, path in gallery.pictures)
    grid = (
        '<p class="soft" style="margin-top:1.4rem">How many matches are right, for every pair of views:</p>'
        + pair_grid(gallery.pairs, len(gallery.views))
    )
    return _section("Matches in the gallery", text, pictures + _angle_table(gallery.pairs) + grid)


def _angle_table(pairs: Sequence[GalleryPair]) -> str:
    rows = []
    for low, high in itertools.pairwise(_ANGLES_DEG):
        chosen = [pair for pair in pairs if low <= pair.angle_deg < high]
        if chosen:
            errors = np.concatenate([pair.errors_px for pair in chosen])
            right = errors[errors <= RIGHT_PX]
            middle = f"{np.median(right):.2f} px" if len(right) else "-"
            share = f"{len(right) / len(errors):.0%}" if len(errors) else "-"
            rows.append((f"{low} to {high}°", str(len(chosen)), f"{len(errors) / len(chosen):.0f}", share, middle))
    header = ("angle between the views", "pairs", "matches a pair", "right", "median error of these")
    return _table(header, rows)


def rebuilt_section(rebuilt: Rebuilt | str, cameras: Sequence[PosedCamera]) -> str:
    """What was reconstructed, beside the true cameras, with the 3D view."""
    title = "The gallery in 3D"
    if isinstance(rebuilt, str):
        return _section(title, "", f'<p class="warning">It could not be reconstructed: {html.escape(rebuilt)}</p>')
    text = (
        "Where the cameras stood and what they saw, computed from the photos alone; neither cameras nor focal length were "
        "told. The errors are what remains when the camera centres are laid over the true ones; the largest distance "
        "between two cameras is the scene's size."
    )
    model, errors = rebuilt.model, rebuilt.errors
    facts = (
        (f"{model.num_images} of {errors.num_true}", "views have a camera"),
        (f"{errors.mean_centre_percent:.3f} %", f"of {errors.size:.2f} m: mean error of the camera centres"),
        (f"{errors.mean_rotation_deg:.3f}°", "mean error of the rotations"),
        (f"{rebuilt.focal_px:.1f} px", f"focal length found; {rebuilt.true_focal_px:.1f} px is true"),
        (f"{model.num_points:,}", f"points, each seen by {model.mean_track_length:.1f} views on average"),
    )
    scene = html.escape(rebuilt.page.read_text(encoding="utf-8"), quote=True)
    frame = f'<iframe class="scene" title="The gallery in 3D" srcdoc="{scene}"></iframe>'
    above = '<p class="soft">From above, with a ring where the reconstruction puts each camera:</p>'
    return _section(title, text, _tiles(facts) + frame + above + plan(cameras, errors.centres))


def _commands_section() -> str:
    return _section("On your own photos", "", f"<pre>{html.escape(_ON_YOUR_PHOTOS)}</pre>")


def _origin_section(seconds: Mapping[str, float], origin: Mapping[str, str]) -> str:
    steps = ", ".join(f"{step} {value:.1f} s" for step, value in seconds.items())
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
        for name, value in {"time": steps, **origin}.items()
        if value
    )
    return _section("Where this comes from", "", f'<table class="origin"><tbody>{rows}</tbody></table>')


def _pair_caption(pair: GalleryPair) -> str:
    return (
        f"Views {pair.view0 + 1} and {pair.view1 + 1}, {pair.angle_deg:.0f}° apart: "
        f"{pair.num_right:,} of {len(pair.errors_px):,} matches are right."
    )


def _colours(within_px: float) -> str:
    return f'<span class="right">Green</span> matches are right to {within_px:g} px, <span class="wrong">red</span> ones are not.'


def _section(title: str, text: str, content: str) -> str:
    words = f'<p class="soft">{text}</p>' if text else ""
    return f"<section><h2>{title}</h2>{words}{content}</section>"


def _figure(picture: bytes, caption: str) -> str:
    words = html.escape(caption)
    return f'<figure><img src="{_embedded(picture)}" alt="{words}"><figcaption>{words}</figcaption></figure>'


def _embedded(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
