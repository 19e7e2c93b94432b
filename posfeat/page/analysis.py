"""Features and dense maps of photos, worked out once and kept while there is room."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from posfeat.data.images import RGB, resize_longest
from posfeat.geometry.pixels import rescale_pixels
from posfeat.page.bounded_cache import BoundedCache
from posfeat.page.limits import Limits
from posfeat.page.methods import DenseMaps, Methods
from posfeat.page.photos import Photos
from posfeat.types import Features

MOST_KEYPOINTS = 8192


class Looked(NamedTuple):
    """A photo as a method looks at it."""

    photo: str
    method: str
    longest_px: int


@dataclass(frozen=True)
class ScaledMaps:
    """Dense maps, and the size of the photo that they belong to."""

    maps: DenseMaps
    width: int
    height: int


class Analysis:
    """What is known of photos. The functions run for a while; call them from a queue."""

    def __init__(self, photos: Photos, methods: Methods, limits: Limits) -> None:
        self._photos, self._methods = photos, methods
        self._features: BoundedCache[Features] = BoundedCache(limits.feature_memory_mb * 2**20)
        self._maps: BoundedCache[ScaledMaps] = BoundedCache(limits.map_memory_mb * 2**20)

    def known_features(self, looked: Looked) -> Features | None:
        """The features if they need no work."""
        return self._features.get(looked)

    def features(self, looked: Looked) -> Features:
        """Keypoints in the photo's own pixels, as many as anybody may ask for."""
        known = self._features.get(looked)
        if known is not None:
            return known
        rgb = self._photos.pixels(looked.photo)
        features = extract_scaled(self._methods, looked.method, rgb, looked.longest_px, MOST_KEYPOINTS)
        self._features.put(looked, features, sum(t.numel() * 4 for t in (features.keypoints, features.descriptors)))
        return features

    def known_maps(self, looked: Looked) -> ScaledMaps | None:
        """The maps if they need no work."""
        return self._maps.get(looked)

    def maps(self, looked: Looked) -> ScaledMaps:
        """Dense maps at the size at which the network looked."""
        known = self._maps.get(looked)
        if known is not None:
            return known
        rgb = self._photos.pixels(looked.photo)
        height, width = rgb.shape[:2]
        maps = ScaledMaps(self._methods.maps(looked.method, resize_longest(rgb, looked.longest_px)), width, height)
        self._maps.put(looked, maps, maps.maps.num_bytes)
        return maps


def extract_scaled(methods: Methods, method: str, rgb: RGB, longest_px: int, max_keypoints: int) -> Features:
    """Features of a photo looked at no larger than ``longest_px``, in the photo's own pixels."""
    height, width = rgb.shape[:2]
    small = resize_longest(rgb, longest_px)
    features = methods.extract(method, small, max_keypoints)
    keypoints = rescale_pixels(features.keypoints, width / small.shape[1], height / small.shape[0])
    return replace(features, keypoints=keypoints, image_size=(width, height))


def first(features: Features, max_keypoints: int, min_score: float) -> Features:
    """The best keypoints: at most so many, with at least this score. Rows come best first."""
    count = min(max_keypoints, int((features.scores >= min_score).sum()), len(features))
    return replace(
        features,
        keypoints=features.keypoints[:count],
        scores=features.scores[:count],
        descriptors=features.descriptors[:count],
    )
