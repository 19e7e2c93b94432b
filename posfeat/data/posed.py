"""Posed photos from a path, whatever layout they come in.

A path is recognised as one scene, or as a folder of scenes, by the files it holds:

- a COLMAP model (``sparse/0``, ``sparse``, ``colmap/sparse/0``, ``dense/sparse`` or the folder itself) beside its pictures;
- nerfstudio's ``transforms.json``; our own ``cameras.txt``;
- CAPS's ``img_cam.txt`` in ``dense*/aligned``; ``scene_info`` files of D2-Net and LoFTR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from posfeat.data.cameras_txt import read_cameras_txt
from posfeat.data.colmap import is_colmap_model, read_colmap
from posfeat.data.megadepth import read_caps, read_caps_pairs, read_scene_info, read_scene_info_pairs
from posfeat.data.nerfstudio import read_transforms
from posfeat.data.pairs import PairOptions, choose_pairs, limit_pairs
from posfeat.types import DataError, Pair, View

Layout = Literal["colmap", "nerfstudio", "cameras.txt", "caps", "scene_info"]
Report = Callable[[str], None]

_MODEL_FOLDERS = ("sparse/0", "sparse", "colmap/sparse/0", "colmap/sparse", "dense/sparse", "dense/0/sparse", ".")
_IMAGE_FOLDERS = ("images", "../images", "../../images", "../../../images", "imgs", ".")
_SHARED_PARTS = ("aligned", "sparse", "0")
_MAX_DEPTH = 4
_SOUGHT = "a COLMAP model in sparse/, transforms.json, cameras.txt, dense*/aligned/img_cam.txt or scene_info/*.npz"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scene:
    """One scene as it lies on disk."""

    name: str
    layout: Layout
    source: Path  # the model's folder, or the file with the cameras
    images: Path  # what the pictures' names are relative to


def read_posed(path: Path | str, scenes: Path | None = None, report: Report | None = None) -> list[View]:
    """Every posed image under a path whose picture is there.

    ``scenes`` is a text file with one scene's name a line: only these are read. ``report`` gets one line about every picture that is
    missing; without it they are logged.
    """
    return [view for scene in find_scenes(Path(path), scenes) for view in read_scene(scene, report or _log.warning)]


def read_pairs(
    path: Path | str, options: PairOptions, scenes: Path | None = None, report: Report | None = None
) -> list[Pair]:
    """Training pairs under a path: those that the data set lists (CAPS, LoFTR), else chosen; the limits hold for both."""
    listed: list[Pair] = []
    unlisted: list[View] = []
    for scene in find_scenes(Path(path), scenes):
        views = read_scene(scene, report or _log.warning)
        pairs = listed_pairs(scene, views)
        if pairs is None:
            unlisted += views
        else:
            listed += pairs
    return limit_pairs(listed, options) + choose_pairs(unlisted, options)


def find_scenes(path: Path, scenes: Path | None = None) -> list[Scene]:
    """The scenes under a path, sorted by name; DataError says what was looked for and what was found instead."""
    if not path.exists():
        raise DataError(f"{path} does not exist; give a folder of posed photos")
    found = sorted(_scenes_below(path, path, _MAX_DEPTH), key=lambda scene: scene.name)
    if not found:
        raise DataError(f"no posed photos in {path}: looked for {_SOUGHT}; {_nearest(path)}")
    if scenes is None:
        return found
    wanted = _scene_list(scenes)
    chosen = [scene for scene in found if _is_listed(scene.name, wanted)]
    unmatched = [name for name in wanted if not any(_is_listed(scene.name, [name]) for scene in chosen)]
    if unmatched:
        raise DataError(
            f"scene {unmatched[0]} of {scenes.name} is not in {path} ({len(unmatched)} of {len(wanted)} missing)"
        )
    return chosen


def _scene_list(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"the list of scenes {path} cannot be read: {error.strerror}") from error
    names = [line.split("#")[0].strip().strip("/") for line in lines]
    return [name for name in names if name]


def _is_listed(name: str, wanted: list[str]) -> bool:
    """A scene is meant by its own name or by that of the folder it lies in (0015 means 0015/dense0 and 0015/dense1)."""
    return any(name == entry or name.startswith(f"{entry}/") for entry in wanted)


def _scenes_below(path: Path, root: Path, depth: int) -> Iterator[Scene]:
    """Scenes at this path, or else below it."""
    here = list(_scenes_at(path, _scene_name(path, root)))
    yield from here
    if here or depth == 0 or not path.is_dir():
        return
    for folder in sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")):
        yield from _scenes_below(folder, root, depth - 1)


def _scene_name(path: Path, root: Path) -> str:
    """The path below the root without the parts that every scene has; the root's own name where nothing is left."""
    parts = [part for part in path.relative_to(root).parts if part not in _SHARED_PARTS]
    own = [part for part in root.resolve().parts if part not in _SHARED_PARTS]
    return "/".join(parts) or (root.stem if root.is_file() else own[-1])


def _scenes_at(path: Path, name: str) -> Iterator[Scene]:
    """What this very path is, if anything; a folder of scene_info files holds many scenes."""
    if path.is_file():
        yield from _scene_of_file(path, name)
        return
    if (path / "img_cam.txt").is_file():
        yield Scene(name, "caps", path, path / "images")
    elif (path / "transforms.json").is_file():
        yield Scene(name, "nerfstudio", path / "transforms.json", path)
    elif (path / "cameras.txt").is_file() and not (path / "images.txt").is_file():
        yield Scene(name, "cameras.txt", path / "cameras.txt", path)
    elif (model := _model_folder(path)) is not None:
        yield Scene(name, "colmap", model, _image_folder(path, model))
    else:
        for file in sorted((path / "scene_info").glob("*.npz")):
            yield Scene(file.stem, "scene_info", file, path)


def _scene_of_file(path: Path, name: str) -> Iterator[Scene]:
    if path.name == "img_cam.txt":
        yield Scene(name, "caps", path.parent, path.parent / "images")
    elif path.suffix == ".json":
        yield Scene(name, "nerfstudio", path, path.parent)
    elif path.suffix == ".npz":
        inside = path.parent.name.startswith("scene_info")
        yield Scene(name, "scene_info", path, path.parent.parent if inside else path.parent)
    elif path.suffix == ".txt":
        yield Scene(name, "cameras.txt", path, path.parent)


def _model_folder(path: Path) -> Path | None:
    """The model of a scene's folder; of several in one sparse folder the one with the largest file of images."""
    for name in _MODEL_FOLDERS:
        if is_colmap_model(path / name):
            siblings = [other for other in (path / name).parent.glob("[0-9]*") if is_colmap_model(other)]
            return max([path / name, *siblings], key=_size_of_images) if name.endswith("/0") else path / name
    return None


def _size_of_images(model: Path) -> int:
    return sum(file.stat().st_size for file in model.glob("images.*"))


def _image_folder(path: Path, model: Path) -> Path:
    """Where a model's pictures lie: the usual places seen from the scene's folder, then from the model's."""
    places = [base / name for base in (path, model) for name in _IMAGE_FOLDERS[:-1]]
    return next((place.resolve() for place in places if place.is_dir()), path)


def read_scene(scene: Scene, report: Report) -> list[View]:
    """One scene's views, named after it, without those whose picture is missing."""
    views = [replace(view, scene=scene.name) for view in _read_layout(scene)]
    present = [view for view in views if view.image_path.is_file()]
    for view in views:
        if not view.image_path.is_file():
            report(f"{scene.name}: picture {view.name} is missing, looked for {view.image_path}")
    if not present:
        raise DataError(
            f"{scene.source} has cameras for {len(views)} pictures, none of which is there; "
            f"looked in {scene.images}, e.g. for {views[0].name if views else 'nothing'}"
        )
    return [_with_mask(view, scene.images) for view in present]


def _read_layout(scene: Scene) -> list[View]:
    if scene.layout == "colmap":
        return read_colmap(scene.source, scene.images)
    if scene.layout == "nerfstudio":
        return read_transforms(scene.source)
    if scene.layout == "cameras.txt":
        return read_cameras_txt(scene.source)
    if scene.layout == "caps":
        return read_caps(scene.source)
    return read_scene_info(scene.source, scene.images)


def _with_mask(view: View, images: Path) -> View:
    """COLMAP's habit: the mask of images/NAME is masks/NAME.png."""
    mask = images.parent / "masks" / f"{view.name}.png"
    return replace(view, mask_path=mask) if view.mask_path is None and mask.is_file() else view


def listed_pairs(scene: Scene, views: list[View]) -> list[Pair] | None:
    """The pairs that the data set itself lists between the given views; None where it lists none."""
    if scene.layout == "caps":
        return read_caps_pairs(scene.source, views)
    if scene.layout == "scene_info":
        return read_scene_info_pairs(scene.source, views)
    return None


def _nearest(path: Path) -> str:
    """What is there that comes closest, in words."""
    if path.is_file():
        return f"{path.name} is none of these"
    for pattern, meaning in (
        ("cameras.*", "cameras of a COLMAP model without its images file"),
        ("images.*", "images of a COLMAP model without its cameras file"),
        ("*.db", "a COLMAP database, which has no poses; run a mapper first"),
        ("*.json", "a file that is not named transforms.json"),
    ):
        match = next((file for depth in ("", "*/", "*/*/") for file in path.glob(depth + pattern)), None)
        if match is not None:
            return f"nearest is {match.relative_to(path)}: {meaning}"
    pictures = sum(1 for file in path.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg", ".png"))
    return f"found {pictures} pictures but no cameras" if pictures else "found neither pictures nor cameras"
