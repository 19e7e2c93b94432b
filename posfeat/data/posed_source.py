"""Posed photos as a source of training pairs: undistorted once, then turned, scaled, cropped and changed in look."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posfeat.data.augment import PhotometricOptions, photometric
from posfeat.data.distortion import is_distorted, undistort_image, undistorted_camera
from posfeat.data.geometric import GeometricOptions, WarpedView, warp_view
from posfeat.data.images import read_image, resize_image
from posfeat.data.pair_sample import PairSample, Pixels
from posfeat.data.photo_source import ImageCache
from posfeat.types import Camera, DataError, Pair, View


class Lens(NamedTuple):
    """A photo's camera, and the pinhole camera that its undistorted photo has."""

    camera: Camera
    target: Camera


class PosedSource:
    """Draws pairs: a scene first, so that no scene drowns the others, then one of its pairs, either way round."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        geometry: GeometricOptions = GeometricOptions(),  # noqa: B008 - frozen
        look: PhotometricOptions = PhotometricOptions(),  # noqa: B008 - frozen
        cache_bytes: int = 1024 * 2**20,
    ) -> None:
        if not pairs:
            raise DataError("no usable pairs of posed photos; `posfeat data check` says why")
        self._lenses = _usable_lenses(pairs)
        scenes: dict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            if pair.view0.image_path in self._lenses and pair.view1.image_path in self._lenses:
                scenes[pair.view0.scene].append(pair)
        if not scenes:
            raise DataError("no pair of posed photos has two usable lenses; `posfeat data check` shows them")
        self.scenes = dict(sorted(scenes.items()))
        self._geometry, self._look = geometry, look
        self._straight = ImageCache(cache_bytes, self._read_straight)

    def draw(self, rng: np.random.Generator, height: int, width: int) -> PairSample:
        """Two posed photos of the given size."""
        scene = list(self.scenes.values())[int(rng.integers(len(self.scenes)))]
        pair = scene[int(rng.integers(len(scene)))]
        views = (pair.view0, pair.view1) if rng.random() < 0.5 else (pair.view1, pair.view0)
        changed = [self._changed(view, height, width, rng) for view in views]
        pose = views[1].cam_from_world @ np.linalg.inv(views[0].cam_from_world)
        pose = changed[1].new_from_old @ pose @ np.linalg.inv(changed[0].new_from_old)
        length = float(np.linalg.norm(pose[:3, 3]))
        has_baseline = pair.has_baseline and length > 0
        pose[:3, 3] *= 1 / length if has_baseline else 0.0  # what is no baseline has no direction to learn from
        other = self._straight.read(views[0].image_path)
        image0, image1 = (photometric(view.image, rng, self._look, other) for view in changed)
        name = f"{views[0].scene}: {views[0].name} {views[1].name}"
        return PairSample(image0, image1, changed[0].intrinsics, changed[1].intrinsics, pose, has_baseline, name=name)

    def _changed(self, view: View, height: int, width: int, rng: np.random.Generator) -> WarpedView:
        image = self._straight.read(view.image_path)
        return warp_view(image, self._lenses[view.image_path].target.matrix, height, width, rng, self._geometry)

    def _read_straight(self, path: Path) -> Pixels:
        """The photo as a pinhole camera sees it."""
        lens = self._lenses[path]
        image = read_image(path)
        if image.shape[:2] != (lens.camera.height, lens.camera.width):
            image = resize_image(image, lens.camera.width, lens.camera.height)
        return undistort_image(image, lens.camera, lens.target) if is_distorted(lens.camera) else image


def _usable_lenses(pairs: Sequence[Pair]) -> dict[Path, Lens]:
    """The lens of every photo; photos whose lens leaves nothing straight are reported and left out."""
    lenses: dict[Path, Lens] = {}
    views = {view.image_path: view for pair in pairs for view in (pair.view0, pair.view1)}
    for path, view in views.items():
        try:
            lenses[path] = Lens(view.camera, undistorted_camera(view.camera))
        except DataError as error:
            logging.getLogger(__name__).warning("%s is left out of training: %s", path.name, error)
    return lenses
