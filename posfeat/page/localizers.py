"""Models that photos are searched in, kept open while they are in use. One thread only: it is that of the network."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from posfeat.data.images import RGB
from posfeat.networks.posfeat import PoSFeat
from posfeat.page.methods import Methods
from posfeat.page.scene_files import frustum_json, version_of
from posfeat.pipeline.extract import weights_digest
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.localization_map import find_features
from posfeat.pipeline.localize import Localization, Localizer
from posfeat.pipeline.rootsift import NAME as ROOTSIFT
from posfeat.types import Camera, OptionsError

MOST_OPEN = 2


class Localizers:
    """Localizers by the folder of their model, the last few of them."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._open: OrderedDict[tuple[Path, float], Localizer] = OrderedDict()

    def localize(self, folder: Path, rgb: RGB, camera: Camera | None, name: str) -> Localization:
        """Where a photo was taken."""
        localizer = self._localizer(folder)
        return localizer.localize_features(localizer.extractor.extract(rgb, None), camera, name=name)

    def _localizer(self, folder: Path) -> Localizer:
        key = (folder, version_of(folder))
        if key not in self._open:
            self._open[key] = Localizer(folder, self._network_of(folder))
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(key)
        return self._open[key]

    def _network_of(self, folder: Path) -> PoSFeat | None:
        """The network that the model's features come from, out of those that the server has; None for RootSIFT."""
        with FeatureStore(find_features(folder)) as store:
            made_with = str(store.settings.get("weights", ""))
        if made_with.startswith(ROOTSIFT):
            return None
        for name in self._methods.networks():
            model = self._methods.model(name)
            if weights_digest(model) == made_with:
                return model
        raise OptionsError(
            "the model's features come from weights that this server does not have; start posfeat serve with --weights"
        )


def known_camera(intrinsics: str, width: int, height: int) -> Camera | None:
    """A pinhole camera of the text fx,fy,cx,cy; None where nothing is known."""
    if not intrinsics:
        return None
    fx, fy, cx, cy = map(float, intrinsics.split(","))
    if fx <= 0 or fy <= 0:
        raise OptionsError("intrinsics: focal lengths are above 0")
    return Camera(width, height, np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]))


def localization_json(found: Localization) -> dict[str, Any]:
    """A pose for a client."""
    deviation = found.centre_deviation
    return {
        "cam_from_world": found.cam_from_world.ravel().tolist(),
        "centre": found.centre.tolist(),
        **frustum_json(found.camera, found.cam_from_world),
        "focal_px": float(found.camera.matrix[0, 0]),
        "num_inliers": found.num_inliers,
        "num_matches": found.num_matches,
        "reprojection_error_px": found.reprojection_error_px,
        "centre_deviation": deviation if math.isfinite(deviation) else None,
        "keypoints": np.round(found.keypoints, 2).tolist(),
        "images": list(found.images),
    }
