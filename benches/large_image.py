"""A photo of 50 megapixels: the most memory of a whole process that extracts it.

    python benches/large_image.py --megapixels 50

Tiles bound the memory; what grows with the photo is the photo itself, three bytes a pixel.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from in_turn import Row, peak_mb, photo

from posfeat.data.images import read_image, resize_image, write_image
from posfeat.networks.checkpoint import load

LIMIT_MB = 2048
WIDTH, HEIGHT = 8660, 5774


def make_photo(path: Path, megapixels: float) -> None:
    """A JPEG of that size."""
    factor = (megapixels / 50) ** 0.5
    write_image(path, np.ascontiguousarray(resize_image(photo(), round(WIDTH * factor), round(HEIGHT * factor))))


def peak_of_a_fresh_process(path: Path) -> float:
    """Peak memory in MB of a process that reads a photo and extracts its features."""
    command = [sys.executable, __file__, "--extract", str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jpg"
        make_photo(path, 50)
        return [Row("peak memory, 50 megapixels", "limit", peak_of_a_fresh_process(path), LIMIT_MB, "MB", 1.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megapixels", type=float, default=50)
    parser.add_argument("--extract", type=Path, help="a photo to extract here, to print the memory in MB")
    arguments = parser.parse_args()
    if arguments.extract:
        assert len(load("default", "cpu").extract(read_image(arguments.extract)))
        print(peak_mb())
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jpg"
        make_photo(path, arguments.megapixels)
        print(f"{arguments.megapixels:g} megapixels: {peak_of_a_fresh_process(path):.0f} MB at most")


if __name__ == "__main__":
    main()
