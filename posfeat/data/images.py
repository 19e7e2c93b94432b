"""Pictures in and out: read, check, resize, pad, normalise. Training and extraction go through this one file.

- Pixels stay as they are stored. An EXIF orientation is ignored everywhere, as COLMAP and hloc do, so that positions mean
  the same in every tool.
- Every picture becomes 8-bit RGB: 16-bit values are divided by 257 and rounded, grey is repeated, palettes are looked up,
  transparency is laid over mid-grey (the ground with the weakest edges).
- Float arrays hold values in [0, 1].
- Masks follow COLMAP: black is masked, anything else is kept.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.data.image_header import KNOWN_FORMATS, ImageHeader, read_header
from posfeat.types import ImageError

RGB = npt.NDArray[np.uint8]

MAX_PIXELS = 2**28  # 16384 x 16384; 200-megapixel phones fit
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .png .tif .tiff .webp .bmp .gif .ppm .pgm .pbm .pnm".split()  # noqa: SIM905
)
_MID_GREY = 128
_PNG_CHUNKS_WITH_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
_JPEG_MARKER_IN_SCAN = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def read_image(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> RGB:
    """The picture in a file as RGB (H, W, 3); a damaged, cut off or over-large file is an ImageError."""
    return as_rgb(_decode(path, max_pixels), shown(path))


def decode_image(data: bytes, name: str, max_pixels: int = MAX_PIXELS) -> RGB:
    """The picture in the bytes of a file, as read_image; messages call it ``name``."""
    header = _checked_header(read_header(io.BytesIO(data)), name, len(data))
    _check_size(header, len(data), name, max_pixels)
    return as_rgb(_decode_bytes(data, header, name), shown(name))


def read_mask(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.bool_]:
    """The mask in a picture file."""
    return as_mask(_decode(path, max_pixels))


def as_mask(pixels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """A mask (H, W) of grey or RGB(A) pixels: False where they are black and nothing may be detected, True elsewhere."""
    allowed: npt.NDArray[np.bool_] = pixels > 0
    return np.asarray(allowed[..., :3].any(axis=-1)) if allowed.ndim == 3 else allowed


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Width and height of the picture in a file, as stored, from its header alone."""
    try:
        with open(path, "rb") as file:
            return _checked_header(read_header(file), path, file.seek(0, os.SEEK_END))[1:]
    except OSError as error:
        raise _unreadable(path, error) from None


def write_image(path: str | os.PathLike[str], rgb: RGB) -> None:
    """Write RGB pixels (H, W, 3) or grey ones (H, W) in the format that the name's ending says; all or nothing."""
    path = Path(path)
    require_picture_name(path)
    encoded = encode_image(rgb, path.suffix or ".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(encoded)
    os.replace(part, path)


def require_picture_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name whose ending is no format that write_image knows."""
    import cv2

    suffix = Path(path).suffix or ".png"
    if not cv2.haveImageWriter(f"picture{suffix}"):
        raise ImageError(f"cannot write {shown(path)}: no picture format ends in {suffix}; use .png or .jpg")


def encode_image(rgb: RGB, suffix: str) -> bytes:
    """The bytes of a picture file, in the format of this ending, for RGB pixels (H, W, 3) or grey ones (H, W)."""
    import cv2

    return cv2.imencode(suffix, rgb[..., ::-1] if rgb.ndim == 3 else rgb)[1].tobytes()


def as_rgb(pixels: Any, name: str = "the image") -> RGB:
    """An array (H, W), (H, W, 1), (H, W, 3) RGB or (H, W, 4) RGBA of uint8, uint16 or floats in [0, 1], as 8-bit RGB."""
    pixels = np.asarray(pixels)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or 0 in pixels.shape:
        raise ImageError(f"{name} has shape {pixels.shape}; give pixels as (height, width, 3)")
    pixels = _eight_bit(pixels, name)
    if pixels.shape[2] == 4:
        alpha = pixels[..., 3:].astype(np.float32) / 255
        pixels = np.rint(pixels[..., :3] * alpha + _MID_GREY * (1 - alpha)).astype(np.uint8)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)


def as_rgb_tensor(image: Tensor, name: str = "the image") -> RGB:
    """A tensor (3, H, W), (1, 3, H, W) or (H, W, 3) of uint8 or floats in [0, 1], as 8-bit RGB."""
    pixels = image.detach().cpu()
    if pixels.ndim == 4 and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4) and pixels.shape[2] not in (3, 4):
        pixels = pixels.permute(1, 2, 0)
    return as_rgb((pixels.float() if pixels.dtype in (torch.bfloat16, torch.float16) else pixels).numpy(), name)


def normalise(image: RGB | Tensor) -> Annotated[Tensor, "batch 3 height width"]:
    """Network input: float32, less the ImageNet mean, over its standard deviation.

    Takes uint8 pixels (H, W, 3), (B, H, W, 3) or (B, 3, H, W), or floats in [0, 1] in one of these shapes.
    """
    pixels = image if isinstance(image, Tensor) else torch.from_numpy(np.require(image, requirements=["C", "W"]))
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(0)
    if pixels.shape[-1] != 3:
        pixels = pixels.permute(0, 2, 3, 1)
    batch, height, width, _ = pixels.shape
    factor, shift = _normalisation(width, pixels.is_floating_point(), pixels.device)
    rows = torch.addcmul(shift, pixels.reshape(batch, height, width * 3).to(torch.float32), factor)
    return rows.view(batch, height, width, 3).permute(0, 3, 1, 2)  # channels-last memory, which the networks want


@lru_cache(maxsize=16)
def _normalisation(width: int, is_float: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """What a row of x, y, z, x, y, z ... is multiplied with, and what is added then.

    Whole rows, since a broadcast over runs of 3 would be ten times slower; kept, since making them would wait for a GPU.
    """
    mean, std = (torch.tensor(values).repeat(width) for values in (IMAGENET_MEAN, IMAGENET_STD))
    factor, shift = 1 / ((1.0 if is_float else 255.0) * std), -mean / std
    return factor.to(device), shift.to(device)


def denormalise(image: Annotated[Tensor, "batch 3 height width"]) -> npt.NDArray[np.uint8]:
    """The pictures (batch, height, width, 3) of a network's input: the inverse of normalise."""
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    pixels = (image.detach().cpu().permute(0, 2, 3, 1) * std + mean) * 255
    return pixels.round().clamp(0, 255).to(torch.uint8).numpy()


def pad_to_multiple(
    image: Annotated[Tensor, "batch channels height width"], multiple: int
) -> Annotated[Tensor, "batch channels padded_height padded_width"]:
    """Repeat the last column and row until both sides are multiples; nothing moves, as the top left stays in place."""
    height, width = image.shape[-2:]
    right, bottom = -width % multiple, -height % multiple
    return F.pad(image, (0, right, 0, bottom), mode="replicate") if right or bottom else image


def resize_image(rgb: RGB, width: int, height: int) -> RGB:
    """Resize; pixels average over their area when shrinking. Positions move as geometry.pixels.rescale_pixels says."""
    import cv2

    shrinks = width * height < rgb.shape[0] * rgb.shape[1]
    resized = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return np.asarray(resized, dtype=np.uint8)


def resize_longest(rgb: RGB, longest_px: int) -> RGB:
    """Shrink until the longer side has ``longest_px`` pixels; smaller pictures stay as they are."""
    height, width = rgb.shape[:2]
    scale = longest_px / max(height, width)
    if scale >= 1:
        return rgb
    return resize_image(rgb, max(1, round(width * scale)), max(1, round(height * scale)))


def rotate_image(pixels: RGB, degrees: float) -> tuple[RGB, npt.NDArray[np.bool_] | None, npt.NDArray[np.float64]]:
    """Turn counter-clockwise on a canvas that holds all of the image.

    Gives the turned pixels, where they show the image (None: everywhere), and the 3x3 matrix of old positions from new
    ones. Multiples of 90 degrees move whole pixels; other angles interpolate, over mid-grey.
    """
    import cv2

    height, width = pixels.shape[:2]
    quarters, rest = divmod(degrees / 90, 1)
    radians = np.deg2rad(degrees)
    cosine, sine = (round(v) if rest == 0 else v for v in (np.cos(radians), np.sin(radians)))
    new_width = math.ceil(abs(width * cosine) + abs(height * sine) - 1e-6)
    new_height = math.ceil(abs(width * sine) + abs(height * cosine) - 1e-6)
    old_middle, new_middle = np.array([width - 1, height - 1]) / 2, np.array([new_width - 1, new_height - 1]) / 2
    turn = np.array([[cosine, -sine], [sine, cosine]], dtype=np.float64)  # y points down
    old_from_new = np.eye(3)
    old_from_new[:2, :2], old_from_new[:2, 2] = turn, old_middle - turn @ new_middle
    if rest == 0:
        return np.ascontiguousarray(np.rot90(pixels, int(quarters))), None, old_from_new
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    grey = (_MID_GREY,) * 3 if pixels.ndim == 3 else (0,)
    turned = cv2.warpAffine(pixels, old_from_new[:2], (new_width, new_height), flags=flags, borderValue=grey)
    whole = np.full((height, width), 255, np.uint8)
    covered = cv2.warpAffine(whole, old_from_new[:2], (new_width, new_height), flags=flags, borderValue=0)
    return np.asarray(turned, dtype=np.uint8), covered == 255, old_from_new


def shown(path: str | os.PathLike[str]) -> str:
    """A path as it can stand in a one-line message, whatever bytes the name is made of."""
    text = os.fspath(path)
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _eight_bit(pixels: npt.NDArray[Any], name: str) -> RGB:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.uint16:
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if pixels.dtype.kind != "f":
        raise ImageError(f"{name} holds {pixels.dtype} values; give uint8, uint16, or floats in [0, 1]")
    low, high = float(pixels.min()), float(pixels.max())  # either is NaN when any value is
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ImageError(f"{name} holds values that are not finite (NaN or infinity); replace them before extraction")
    if low < 0 or high > 1:
        raise ImageError(f"{name} holds floats from {low:.4g} to {high:.4g}; scale them into [0, 1] first")
    return np.rint(pixels * 255).astype(np.uint8)


def _decode(path: str | os.PathLike[str], max_pixels: int) -> npt.NDArray[Any]:
    """Pixels as stored, channels in RGB(A) order."""
    return _decode_bytes(*_load(path, max_pixels), path)


def _decode_bytes(data: bytes, header: ImageHeader, path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    if header.format == "PNG":
        data = _png_pixels_only(data, path)
    if header.format == "JPEG" and not _jpeg_is_whole(data):
        raise _cut_off(path)
    pixels = _opencv_decode(data)
    if pixels is None:
        raise ImageError(f"{shown(path)} is a damaged {header.format} file that cannot be decoded; get a fresh copy")
    if pixels.ndim == 3:
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if pixels.shape[2] >= 3 else pixels[..., :1]
    return pixels


def _load(path: str | os.PathLike[str], max_pixels: int) -> tuple[bytes, ImageHeader]:
    try:
        with open(path, "rb") as file:
            header, length = read_header(file), file.seek(0, os.SEEK_END)
            header = _checked_header(header, path, length)
            _check_size(header, length, path, max_pixels)
            file.seek(0)
            return file.read(), header
    except OSError as error:
        raise _unreadable(path, error) from None


def _checked_header(header: ImageHeader | None, path: str | os.PathLike[str], length: int) -> ImageHeader:
    if header is None:
        if length == 0:
            raise ImageError(f"{shown(path)} is empty (0 bytes); get a fresh copy or remove it")
        raise ImageError(f"{shown(path)} is not a whole {KNOWN_FORMATS} picture; convert it or remove it")
    if header.width <= 0 or header.height <= 0:
        raise ImageError(f"{shown(path)} says that it has {header.width}x{header.height} pixels; get a fresh copy")
    return header


def _check_size(header: ImageHeader, length: int, path: str | os.PathLike[str], max_pixels: int) -> None:
    if header.width * header.height > max_pixels or length > 16 * max_pixels:
        raise ImageError(
            f"{shown(path)} has {header.width}x{header.height} pixels in {length / 2**20:.0f} MiB, more than the "
            f"{round(max_pixels / 1e6, 1):g} million allowed; shrink it or raise the pixel limit"
        )


def _unreadable(path: str | os.PathLike[str], error: OSError) -> ImageError:
    return ImageError(f"cannot read {shown(path)}: {error.strerror}; check the name and its permissions")


def _cut_off(path: str | os.PathLike[str]) -> ImageError:
    return ImageError(f"{shown(path)} breaks off before its end (an incomplete download or copy?); get a fresh copy")


def _jpeg_is_whole(data: bytes) -> bool:
    """Whether the end-of-image marker follows the scans. Decoders fill a missing rest with grey, each in its own way."""
    position = 2
    while True:
        marker = _JPEG_MARKER_IN_SCAN.search(data, position)  # skips entropy-coded bytes, or nothing between segments
        if marker is None or marker[1] == b"\xd9":
            return marker is not None
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")


def _png_pixels_only(data: bytes, path: str | os.PathLike[str]) -> bytes:
    """The file without colour profiles, texts and animation: libpng warns about them on the terminal. Checksums hold."""
    kept, position = [data[:8]], 8
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        if kind in _PNG_CHUNKS_WITH_PIXELS:
            if zlib.crc32(data[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
                raise ImageError(f"{shown(path)} is damaged (a PNG checksum is wrong); get a fresh copy")
            kept.append(data[position:end])
        if kind == b"IEND":
            return b"".join(kept)
        position = end
    raise _cut_off(path)


def _opencv_decode(data: bytes) -> npt.NDArray[Any] | None:
    import cv2

    logging = cv2.utils.logging
    level = logging.getLogLevel()
    logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        # UNCHANGED keeps the stored depth, the alpha channel and the stored orientation
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    finally:
        logging.setLogLevel(level)
