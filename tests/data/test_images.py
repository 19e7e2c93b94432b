"""Reading pictures: every kind one way, and one clear line for each that is no use."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from posfeat.data.image_header import read_header
from posfeat.data.images import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    as_rgb,
    decode_image,
    image_size,
    normalise,
    pad_to_multiple,
    read_image,
    read_mask,
    resize_image,
    resize_longest,
    rotate_image,
    write_image,
)
from posfeat.types import ImageError


def photo(height: int = 60, width: int = 90) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rng = np.random.default_rng(0)
    return cv2.GaussianBlur(rng.integers(0, 255, (height, width, 3), dtype=np.uint8), (0, 0), 2)  # type: ignore[return-value]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *extra: bytes) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + pixels + png_chunk(b"IEND", b"")


def encoded(suffix: str, pixels: Any, *parameters: int) -> bytes:
    return cv2.imencode(suffix, pixels, list(parameters))[1].tobytes()


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """The JPEG with an EXIF segment that says how to turn it."""
    entry = struct.pack("<HHII", 0x112, 3, 1, orientation)
    exif = b"Exif\0\0" + b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".tiff", ".webp", ".jpg"])
def test_formats(suffix: str, tmp_path: Path) -> None:
    path, pixels = tmp_path / f"a photo é ü 图{suffix}", photo()
    write_image(path, pixels)
    assert image_size(path) == (90, 60)
    read = read_image(path)
    assert read.dtype == np.uint8
    assert np.array_equal(decode_image(path.read_bytes(), path.name), read)
    if suffix in (".jpg", ".webp"):
        assert np.abs(read.astype(int) - pixels).mean() < 8
    else:
        assert np.array_equal(read, pixels)


def test_orientation_is_ignored_everywhere(tmp_path: Path) -> None:
    plain = encoded(".jpg", photo())
    (tmp_path / "plain.jpg").write_bytes(plain)
    for orientation in range(1, 9):
        path = tmp_path / f"{orientation}.jpg"
        path.write_bytes(with_orientation(plain, orientation))
        assert image_size(path) == (90, 60)
        assert np.array_equal(read_image(path), read_image(tmp_path / "plain.jpg"))


def test_depths_greys_palettes_and_transparency(tmp_path: Path) -> None:
    grey16 = (np.arange(64, dtype=np.uint32).reshape(8, 8) * 1040).astype(np.uint16)
    palette = png_chunk(b"PLTE", bytes([0, 0, 0, 255, 0, 0, 0, 255, 0]))
    files: dict[str, tuple[bytes, list[int]]] = {
        "grey.png": (encoded(".png", np.full((8, 8), 77, np.uint8)), [77, 77, 77]),
        "grey16.png": (encoded(".png", np.full((8, 8), 77 * 257 + 100, np.uint16)), [77, 77, 77]),
        "colour16.png": (encoded(".png", np.full((8, 8, 3), (10 * 257, 20 * 257, 30 * 257), np.uint16)), [30, 20, 10]),
        "opaque.png": (encoded(".png", np.full((8, 8, 4), (10, 20, 30, 255), np.uint8)), [30, 20, 10]),
        "clear.png": (encoded(".png", np.full((8, 8, 4), (10, 20, 30, 0), np.uint8)), [128, 128, 128]),
        "half.png": (encoded(".png", np.full((8, 8, 4), (0, 0, 255, 128), np.uint8)), [192, 64, 64]),
        "palette.png": (png(8, 8, 8, 3, b"\0\1\1\1\1\1\1\1\1" * 8, palette), [255, 0, 0]),
        "one_bit.png": (png(8, 8, 1, 0, b"\0\xff" * 8), [255, 255, 255]),
    }
    for name, (data, expected) in files.items():
        (tmp_path / name).write_bytes(data)
        read = read_image(tmp_path / name)
        assert read.shape == (8, 8, 3), name
        assert read[3, 3].tolist() == expected, name
    (tmp_path / "ramp.png").write_bytes(encoded(".png", grey16))
    assert np.array_equal(read_image(tmp_path / "ramp.png")[..., 0], np.rint(grey16 / 257).astype(np.uint8))


def test_arrays() -> None:
    pixels = photo()
    for same in (pixels, pixels / 255, (pixels / 255).astype(np.float32), pixels.astype(np.uint16) * 257):
        assert np.array_equal(as_rgb(same), pixels)
    assert np.array_equal(as_rgb(pixels[..., 0]), np.repeat(pixels[..., :1], 3, 2))
    assert np.array_equal(as_rgb(np.dstack([pixels, np.full((60, 90), 255, np.uint8)])), pixels)
    wrong = {
        "not finite": np.full((9, 9, 3), np.nan),
        "not finite ": np.where(np.arange(243).reshape(9, 9, 3) == 5, np.inf, 0.5),
        r"scale them into \[0, 1\]": pixels.astype(np.float32),
        "floats from -1": pixels / 255 - 1.0 * (pixels == pixels.min()) - pixels.min() / 255,
        "int64 values": pixels.astype(np.int64),
        "bool values": pixels > 5,
        r"\(height, width, 3\)": pixels[None],
        r"shape \(60, 90, 2\)": pixels[..., :2],
        r"shape \(0, 5, 3\)": pixels[:0, :5],
    }
    for message, array in wrong.items():
        with pytest.raises(ImageError, match=message.strip()) as caught:
            as_rgb(array)
        assert "\n" not in str(caught.value)


def broken_files(folder: Path) -> dict[Path, str]:
    """Files that are no use, and what has to be said of them."""
    jpeg, tall = encoded(".jpg", photo()), encoded(".jpg", photo(300, 200), cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    picture, noisy = encoded(".png", photo()), bytearray(encoded(".png", photo()))
    noisy[len(noisy) // 2] ^= 255
    bomb = png(30_000, 30_000, 8, 2, b"\0" * 1000)
    contents = {
        "empty.jpg": (b"", "empty"),
        "empty.png": (b"", "empty"),
        "text.jpg": (b"this is no picture\n" * 50, "not a whole JPEG, PNG"),
        "page.png": (b"<html><body>404 Not Found</body></html>", "not a whole"),
        "zeros.jpg": (bytes(5000), "not a whole"),
        "bomb.png": (bomb, "30000x30000"),
        "wide.png": (png(2**31 - 1, 1, 8, 0, b"\0"), "pixels"),
        "none.png": (png(0, 10, 8, 0, b"\0"), "0x10"),
        "short_rows.png": (png(100, 100, 8, 2, b"\0" * 1000), "cannot be decoded"),
        "flipped.png": (bytes(noisy), "checksum"),
        "with space é.jpg": (jpeg[:-40], "breaks off"),
        "filled.jpg": (jpeg[: len(jpeg) // 2] + bytes(len(jpeg) // 2), "breaks off"),
        "no_end.webp": (encoded(".webp", photo())[:200], "cannot be decoded"),
        "cut.tiff": (encoded(".tiff", photo())[:300], "not a whole|cannot be decoded"),
    }
    for part in (3, 10, 25, 50, 75, 90, 99):
        for name, data in (("cut.jpg", jpeg), ("progressive.jpg", tall), ("cut.png", picture)):
            contents[f"{part}_{name}"] = (data[: len(data) * part // 100], "breaks off|not a whole")
    if os.name != "nt":
        contents["two\nlines.jpg"] = (b"", "empty")
    expected = {}
    for name, (data, message) in contents.items():
        (folder / name).write_bytes(data)
        expected[folder / name] = message
    expected[folder] = "cannot read"
    expected[folder / "missing.jpg"] = "No such file"
    return expected


def test_each_broken_file_gets_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "some folder"
    folder.mkdir()
    for path, message in broken_files(folder).items():
        with pytest.raises(ImageError, match=message) as caught:
            read_image(folder / ".." / "some folder" / path.name if path != folder else path)
        assert "\n" not in str(caught.value)
        assert path.name.partition("\n")[0] in str(caught.value)
        assert ";" in str(caught.value), "it does not say what to do"
        if path.is_file():
            with pytest.raises(ImageError, match=message):
                decode_image(path.read_bytes(), path.name)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert [line for line in printed.err.splitlines() if "Not enough image data" not in line] == []


def test_colour_profiles_and_trailing_bytes_are_no_problem(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    profile = png_chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(b"no profile at all" * 9))
    (tmp_path / "a.png").write_bytes(png(8, 8, 8, 0, (b"\0" + bytes(range(8))) * 8, profile))
    (tmp_path / "b.jpg").write_bytes(encoded(".jpg", photo()) + b"maker notes of a phone" * 50)
    assert read_image(tmp_path / "a.png").shape == (8, 8, 3)
    assert read_image(tmp_path / "b.jpg").shape == (60, 90, 3)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_permissions(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", photo())
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(ImageError, match="permissions"):
        read_image(tmp_path / "a.png")


def test_a_refused_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    write_image(tmp_path / "a.png", photo())
    monkeypatch.setattr("builtins.open", refuse)
    for function in (read_image, image_size):
        with pytest.raises(ImageError, match=r"cannot read .*a\.png: Permission denied"):
            function(tmp_path / "a.png")


def test_the_limit_on_pixels_can_be_raised(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", photo())
    with pytest.raises(ImageError, match="raise the pixel limit"):
        read_image(tmp_path / "a.png", max_pixels=5000)
    assert read_image(tmp_path / "a.png", max_pixels=5400).shape == (60, 90, 3)


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is for Unix")
def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png(30_000, 30_000, 8, 2, b"\0" * 1000))
    script = (
        "import resource, sys, cv2\nfrom posfeat.data.images import read_image\nfrom posfeat.types import ImageError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_image(sys.argv[1])\nexcept ImageError:\n"
        "    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "bomb.png")], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) < 20


def test_masks_keep_what_is_not_black(tmp_path: Path) -> None:
    mask = np.zeros((20, 30), np.uint8)
    mask[5:, 10:] = 1
    for name, pixels in (("grey.png", mask), ("colour.png", np.dstack([mask * 255, mask * 0, mask * 0]))):
        write_image(tmp_path / name, pixels)
        assert np.array_equal(read_mask(tmp_path / name), mask > 0)


def test_headers_of_tables_that_come_before_the_size() -> None:
    jpeg = encoded(".jpg", photo())
    long = jpeg[:2] + (b"\xff\xe2" + struct.pack(">H", 65_000) + bytes(64_998)) * 3 + b"\xff\xff" + jpeg[2:][1:]
    header = read_header(io.BytesIO(long))
    assert header is not None
    assert header[1:] == (90, 60)
    assert read_header(io.BytesIO(b"P6 # a comment\n90 # another\n60\n255\n"))[1:] == (90, 60)  # type: ignore[index]


def test_normalise_is_imagenets_for_every_layout() -> None:
    pixels = photo()
    expected = (torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255 - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / (
        torch.tensor(IMAGENET_STD).view(3, 1, 1)
    )
    tensor = torch.from_numpy(pixels)
    channels_first = tensor.permute(2, 0, 1)[None]
    for same in (pixels, tensor, tensor[None], channels_first, tensor / 255, channels_first / 255):
        assert torch.allclose(normalise(same), expected, atol=1e-5)
    assert normalise(pixels).is_contiguous(memory_format=torch.channels_last)


def test_resizing_keeps_pixel_centres() -> None:
    """A bright spot lands where (x + 0.5) * scale - 0.5 says."""
    pixels = np.zeros((120, 160, 3), np.uint8)
    rows, columns = np.mgrid[:120, :160]
    pixels[:] = (255 * np.exp(-((columns - 61) ** 2 + (rows - 43) ** 2) / 72))[..., None].round()
    for width, height in ((80, 60), (320, 240), (100, 90)):
        resized = resize_image(pixels, width, height)[..., 0].astype(float)
        y, x = (np.sum(resized * grid) / resized.sum() for grid in np.mgrid[:height, :width])
        assert abs(x - ((61 + 0.5) * width / 160 - 0.5)) < 0.02
        assert abs(y - ((43 + 0.5) * height / 120 - 0.5)) < 0.02
    assert resize_longest(pixels, 80).shape == (60, 80, 3)
    assert resize_longest(pixels, 500) is pixels


@pytest.mark.parametrize("degrees", [90, 180, 270, 360, -90, 33.0, 120.5])
def test_turned_pixels_are_where_the_matrix_says(degrees: float) -> None:
    rows, columns = np.mgrid[:41, :60]
    pixels = np.dstack([columns * 4, rows * 6, np.full((41, 60), 9)]).astype(np.uint8)
    turned, covered, old_from_new = rotate_image(pixels, degrees)
    y, x = np.nonzero(np.ones(turned.shape[:2]) if covered is None else covered)
    old = old_from_new[:2, :2] @ np.stack([x, y]) + old_from_new[:2, 2:]
    values = turned[y, x].astype(float)
    assert np.abs(values[:, 0] / 4 - old[0]).max() < (1e-6 if covered is None else 0.2)
    assert np.abs(values[:, 1] / 6 - old[1]).max() < (1e-6 if covered is None else 0.2)
    assert len(x) > 0.85 * 41 * 60


def test_padding_repeats_the_rim() -> None:
    image = torch.randn(1, 3, 17, 30)
    padded = pad_to_multiple(image, 16)
    assert padded.shape == (1, 3, 32, 32)
    assert torch.equal(padded[..., :17, :30], image)
    assert torch.equal(padded[..., 31, 31], image[..., 16, 29])
    assert pad_to_multiple(padded, 16) is padded
