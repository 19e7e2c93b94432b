"""Change an image without untruth about its camera: photometric change of the pixels, geometric change with the camera kept exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from posfeat.data.pair_sample import Pixels
from posfeat.options import check_options, described
from posfeat.types import Array, Array32

_JITTERED_HUE = 0.4  # largest turn of the hue in the paper's training, of the whole circle


@dataclass(frozen=True)
class PhotometricOptions:
    """How strongly, and how often, the look of an image changes. Shares are of images; strength scales every change."""

    kind: Literal["varied", "colour_jitter"] = described(
        "varied", "all that follows, or the paper's random brightness, contrast, saturation and hue alone"
    )
    strength: float = described(1.0, "scales every change; 0 changes nothing", low=0)
    tone_share: float = described(0.9, "gamma, contrast and brightness", low=0, high=1)
    harsh_tone_share: float = described(0.15, "night, glare and backlight: strong tone curves", low=0, high=1)
    colour_share: float = described(0.8, "white balance, saturation and hue", low=0, high=1)
    grey_share: float = described(0.05, "no colour at all", low=0, high=1)
    shade_share: float = described(0.4, "shadows, glare and vignetting", low=0, high=1)
    occlusion_share: float = described(0.15, "patches of something else in front", low=0, high=1)
    blur_share: float = described(0.35, "out-of-focus or motion blur", low=0, high=1)
    noise_share: float = described(0.5, "sensor noise", low=0, high=1)
    jpeg_share: float = described(0.5, "JPEG compression", low=0, high=1)

    def __post_init__(self) -> None:
        check_options(self)


def photometric(
    image: Pixels,
    rng: np.random.Generator,
    options: PhotometricOptions = PhotometricOptions(),
    other: Pixels | None = None,
) -> Pixels:
    """The image (H, W, 3) as another camera, light or file would show it; ``other`` is what occluding patches are cut from."""
    strength = options.strength
    if strength == 0:
        return image
    if options.kind == "colour_jitter":
        return colour_jitter(image, rng, strength)
    if rng.random() < options.occlusion_share:
        image = _occluded(image, rng, other, strength)
    if rng.random() < options.shade_share:
        image = _shaded(image, rng, strength)
    image = _toned_and_coloured(image, rng, options)
    if rng.random() < options.blur_share:
        image = _blurred(image, rng, strength)
    if rng.random() < options.noise_share:
        image = _noisy(image, rng, strength)
    if rng.random() < options.jpeg_share:
        image = _compressed(image, rng, strength)
    return image


def colour_jitter(image: Pixels, rng: np.random.Generator, strength: float) -> Pixels:
    """What the paper's training does to colours: four changes in random order, each from none to all or twice as much."""
    factors = rng.uniform(max(0.0, 1 - strength), 1 + strength, 3).astype(np.float32)
    turn = float(rng.uniform(-1, 1)) * min(0.5, _JITTERED_HUE * strength)
    changed = image.astype(np.float32)
    for change in rng.permutation(4):
        if change == 0:
            changed = changed * factors[0]
        elif change == 1:
            changed = factors[1] * changed + (1 - factors[1]) * _luminance(changed).mean()
        elif change == 2:
            changed = factors[2] * changed + (1 - factors[2]) * _luminance(changed)
        else:
            changed = _hue_turned(changed, turn)
        changed = changed.clip(0, 255)
    return np.asarray(changed + 0.5, dtype=np.uint8)


def _luminance(image: Array32) -> Array32:
    return image @ np.array([[0.299], [0.587], [0.114]], dtype=np.float32)


def _hue_turned(image: Array32, turn: float) -> Array32:
    """Hues moved along the colour circle by this share of it; saturation and value stay."""
    hsv = cv2.cvtColor(image / 255, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0] + 360 * turn) % 360
    return np.asarray(255 * cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), dtype=np.float32)


def _toned_and_coloured(image: Pixels, rng: np.random.Generator, options: PhotometricOptions) -> Pixels:
    """One look-up table per channel for tone and white balance, one 3x3 matrix for saturation and hue."""
    strength = options.strength
    level = np.linspace(0, 1, 256)
    gamma, contrast, brightness = 1.0, 1.0, 0.0
    if rng.random() < options.tone_share:
        gamma = np.exp(rng.normal(0, 0.3 * strength))
        contrast = np.exp(rng.normal(0, 0.25 * strength))
        brightness = rng.normal(0, 0.1 * strength)
    if rng.random() < options.harsh_tone_share:
        darker = rng.choice([-1.0, 1.0])
        gamma *= np.exp(darker * rng.uniform(0.5, 1.1) * strength)
        brightness += darker * rng.uniform(-0.05, 0.2) * strength  # the other way, lest nothing be left
    balance, saturation, hue = np.ones(3), 1.0, 0.0
    if rng.random() < options.colour_share:
        balance = np.exp(rng.normal(0, 0.1 * strength, 3))
        saturation = np.exp(rng.normal(0, 0.3 * strength))
        hue = rng.normal(0, 0.15 * strength)
    if rng.random() < options.grey_share * min(strength, 1):
        saturation = 0.0
    curve = (level**gamma - 0.5) * contrast + 0.5 + brightness
    table = np.clip(255 * curve[:, None] * balance + 0.5, 0, 255).astype(np.uint8)
    image = np.asarray(cv2.LUT(image, table[None]), dtype=np.uint8)
    if saturation != 1.0 or hue != 0.0:
        image = np.asarray(cv2.transform(image, _colour_matrix(saturation, hue)), dtype=np.uint8)
    return image


def _colour_matrix(saturation: float, hue: float) -> Array:
    """Colours turned by ``hue`` radians about the grey axis and stretched away from grey; greys stay as they are."""
    cosine, sine = np.cos(hue), np.sin(hue)
    grey = np.full((3, 3), 1 / 3)
    axis = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
    return grey + saturation * (cosine * (np.eye(3) - grey) + sine * axis)


def _shaded(image: Pixels, rng: np.random.Generator, strength: float) -> Pixels:
    """Multiplied by a smooth field of light: vignetting, broad shadows and glare, or the shadow of an edge."""
    height, width = image.shape[:2]
    y, x = np.meshgrid(np.linspace(-1, 1, 24), np.linspace(-1, 1, 32), indexing="ij")
    kind = rng.integers(3)
    if kind == 0:
        darkness = rng.uniform(0.1, 0.45) * ((x - rng.normal(0, 0.2)) ** 2 + (y - rng.normal(0, 0.2)) ** 2)
    else:
        direction = rng.uniform(0, 2 * np.pi)
        across = np.cos(direction) * x + np.sin(direction) * y + rng.uniform(-0.6, 0.6)
        softness = rng.uniform(0.05, 0.2) if kind == 1 else rng.uniform(0.4, 1.2)
        darkness = rng.uniform(0.2, 0.9) / (1 + np.exp(-across / softness))
    light = np.exp(-darkness * strength * rng.choice([1.0, 1.0, -0.7])).astype(np.float32)
    field = cv2.resize(light, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.multiply(image, cv2.merge([field, field, field]), dtype=cv2.CV_8U), dtype=np.uint8)


def _occluded(image: Pixels, rng: np.random.Generator, other: Pixels | None, strength: float) -> Pixels:
    """A few ellipses or quadrilaterals filled from another photo, or with one colour, cover part of the image."""
    height, width = image.shape[:2]
    mask = np.zeros((height, width), np.uint8)
    for _ in range(int(rng.integers(1, 4))):
        centre = rng.uniform(0, 1, 2) * [width, height]
        radius = rng.uniform(0.04, 0.16, 2) * min(height, width) * min(strength, 2)
        angle = rng.uniform(0, 2 * np.pi)
        if rng.random() < 0.5:
            cv2.ellipse(
                mask, (tuple(map(float, centre)), tuple(map(float, 2 * radius)), float(np.degrees(angle))), 255, -1
            )
        else:
            corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * radius * rng.uniform(0.7, 1.3, (4, 2))
            turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            cv2.fillConvexPoly(mask, np.round(corners @ turn + centre).astype(np.int32), 255)
    if other is None:
        filling = np.broadcast_to(rng.integers(0, 256, 3).astype(np.uint8), image.shape)
    else:
        filling = np.asarray(cv2.resize(other, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return np.where(mask[..., None] > 0, filling, image)


def _blurred(image: Pixels, rng: np.random.Generator, strength: float) -> Pixels:
    """Gaussian, or along a line: kernels are symmetric about their centre, so nothing moves."""
    if rng.random() < 0.6:
        sigma = float(np.exp(rng.uniform(np.log(0.4), np.log(1.0 + 2.0 * strength))))
        return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REFLECT), dtype=np.uint8)
    return np.asarray(
        cv2.filter2D(
            image,
            -1,
            _motion_kernel(rng.uniform(2, 2 + 6 * strength), rng.uniform(0, np.pi)),
            borderType=cv2.BORDER_REFLECT,
        ),
        dtype=np.uint8,
    )


def _motion_kernel(length: float, angle: float) -> Array32:
    radius = int(np.ceil(length / 2)) + 1
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    along = np.abs(np.cos(angle) * x + np.sin(angle) * y)
    across = np.abs(-np.sin(angle) * x + np.cos(angle) * y)
    kernel = np.clip(length / 2 + 0.5 - along, 0, 1) * np.clip(1 - across, 0, 1)
    return (kernel / kernel.sum()).astype(np.float32)


def _noisy(image: Pixels, rng: np.random.Generator, strength: float) -> Pixels:
    """Gaussian noise, of all channels together or of each."""
    height, width = image.shape[:2]
    sigma = np.exp(rng.uniform(np.log(1.0), np.log(2.0 + 12 * strength)))
    channels = 3 if rng.random() < 0.4 else 1
    noise = sigma * rng.standard_normal((height, width, channels), dtype=np.float32)
    if channels == 1:
        noise = cv2.merge([noise, noise, noise])
    return np.asarray(cv2.add(image, noise, dtype=cv2.CV_8U), dtype=np.uint8)


def _compressed(image: Pixels, rng: np.random.Generator, strength: float) -> Pixels:
    lowest = max(5.0, 90 - 80 * strength)
    quality = int(np.exp(rng.uniform(np.log(lowest), np.log(95))))
    encoded = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    decoded = np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR), dtype=np.uint8)
    return np.ascontiguousarray(decoded[..., ::-1])
