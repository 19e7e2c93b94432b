"""What kind of picture a file is and how large, from its first bytes: nothing is decoded and no pixel memory is taken.

A header can promise any size, so the size is known, and can be refused, before a decoder sees the file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

KNOWN_FORMATS = "JPEG, PNG, TIFF, WebP, BMP, GIF or PNM"
_JPEG_WITHOUT_SIZE = {0xC4, 0xC8, 0xCC}  # in the range of the frame headers, but tables and extensions
_JPEG_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}


class ImageHeader(NamedTuple):
    """A picture's format and size in pixels."""

    format: str
    width: int
    height: int


def read_header(file: BinaryIO) -> ImageHeader | None:
    """Format and size of the picture in a seekable file; None where it is no known picture or breaks off too early."""
    start = file.read(32)
    for signature, name, reader in _READERS:
        if re.match(signature, start, re.DOTALL):
            try:
                width, height = reader(file, start)
            except (struct.error, ValueError, IndexError):
                return None
            return ImageHeader(name, width, height)
    return None


def _png(file: BinaryIO, start: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", start, 16)
    return width, height


def _jpeg(file: BinaryIO, start: bytes) -> tuple[int, int]:
    file.seek(2)
    while True:
        marker = file.read(2)
        while marker[1] == 0xFF:  # fill bytes before a marker
            marker = marker[1:] + file.read(1)
        if marker[0] != 0xFF:
            raise ValueError
        if marker[1] in _JPEG_WITHOUT_LENGTH:
            continue
        (length,) = struct.unpack(">H", file.read(2))
        if 0xC0 <= marker[1] <= 0xCF and marker[1] not in _JPEG_WITHOUT_SIZE:
            height, width = struct.unpack_from(">HH", file.read(5), 1)
            return width, height
        file.seek(length - 2, 1)


def _bmp(file: BinaryIO, start: bytes) -> tuple[int, int]:
    (header_length,) = struct.unpack_from("<I", start, 14)
    width, height = struct.unpack_from("<HH" if header_length == 12 else "<ii", start, 18)
    return width, abs(height)  # a negative height says that rows run downwards


def _gif(file: BinaryIO, start: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", start, 6)
    return width, height


def _webp(file: BinaryIO, start: bytes) -> tuple[int, int]:
    kind = start[12:16]
    if kind == b"VP8X":
        return int.from_bytes(start[24:27], "little") + 1, int.from_bytes(start[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(start[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", start, 26)
    return width & 0x3FFF, height & 0x3FFF


def _tiff(file: BinaryIO, start: bytes) -> tuple[int, int]:
    order = "<" if start[:2] == b"II" else ">"
    big = struct.unpack_from(order + "H", start, 2)[0] == 43
    offset = struct.unpack_from(order + ("Q" if big else "I"), start, 8 if big else 4)[0]
    entry_length, count_format = (20, "Q") if big else (12, "H")
    file.seek(offset)
    (count,) = struct.unpack(order + count_format, file.read(struct.calcsize(count_format)))
    size: dict[int, int] = {}
    for _ in range(min(count, 1000)):
        entry = file.read(entry_length)
        tag, kind = struct.unpack_from(order + "HH", entry)
        if tag in (256, 257):
            size[tag] = struct.unpack_from(
                order + ("H" if kind == 3 else "I"), entry, entry_length - (8 if big else 4)
            )[0]
    return size.get(256, 0), size.get(257, 0)


def _pnm(file: BinaryIO, start: bytes) -> tuple[int, int]:
    file.seek(2)
    numbers = re.sub(rb"#[^\n]*\n?", b" ", file.read(4096)).split()
    return int(numbers[0]), int(numbers[1])


_READERS: tuple[tuple[bytes, str, Callable[[BinaryIO, bytes], tuple[int, int]]], ...] = (
    (rb"\x89PNG\r\n\x1a\n....IHDR", "PNG", _png),
    (rb"\xff\xd8\xff", "JPEG", _jpeg),
    (rb"BM", "BMP", _bmp),
    (rb"GIF8[79]a", "GIF", _gif),
    (rb"RIFF....WEBPVP8[ LX]", "WebP", _webp),
    (rb"II[*+]\0|MM\0[*+]", "TIFF", _tiff),
    (rb"P[1-6]\s", "PNM", _pnm),
)
