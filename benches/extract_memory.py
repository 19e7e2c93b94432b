"""Memory and time of extracting a long folder: resident memory against photos done, as a slope for each 1000 photos.

    python benches/extract_memory.py --photos 5000 --threads 2
    python benches/extract_memory.py --photos 20000 --resume-only

The first makes photos in a temporary folder and extracts them. The second makes photos and a store that holds all of
them, and measures what a restart of a finished job costs: listing the folder and asking the store.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch
from in_turn import Row

from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import NetworkExtractor, extract_folder
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Features

PHOTOS = 5000
WARM_UP = 1500  # photos after which the slope begins: until then HDF5's cache of a file's structure fills
FLAT = 1.02  # of the memory after the warm-up
PAGE_MB = 4096 / 2**20


def resident_mb() -> float:
    """Memory of this process that is in RAM, without pages of files."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * PAGE_MB


def make_photos(folder: Path, count: int, width: int = 320, height: int = 240) -> None:
    """JPEGs of blurred noise, each another cut of one large picture, a hundred in a folder."""
    noise = np.random.default_rng(0).integers(0, 255, (height * 4, width * 4, 3), dtype=np.uint8)
    picture = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 2), None, 0, 255, cv2.NORM_MINMAX)  # type: ignore[call-overload]
    places = np.random.default_rng(1).integers(0, [height * 3, width * 3], (count, 2))
    for number, (top, left) in enumerate(places):
        parent = folder / f"{number // 100:04d}"
        parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(parent / f"{number:06d}.jpg"), picture[top : top + height, left : left + width])


class MemoryLog:
    """Resident memory and the number of photos done, several times a second."""

    def __init__(self) -> None:
        self.done = 0
        self.rows: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryLog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.rows.append((self.done, resident_mb()))

    def progress(self, done: int, total: int) -> None:
        """What the extraction reports to."""
        self.done = done

    def settled(self) -> npt.NDArray[np.float64]:
        """Rows (photos done, MB) after the warm-up."""
        rows = np.array(self.rows)
        return rows[rows[:, 0] >= min(WARM_UP, self.done / 2)]


class Course(NamedTuple):
    """How a long extraction went; memory at its beginning and end is that of a straight line through all of it."""

    photos: int
    seconds: float
    first_mb: float  # when the warm-up was over
    last_mb: float
    slope_mb: float  # for each 1000 photos
    peak_mb: float


def measure_extraction(extractor: NetworkExtractor, photos: Path, store: Path) -> Course:
    """Extract, and watch the memory."""
    with MemoryLog() as log:
        start = time.perf_counter()
        report = extract_folder(extractor, photos, store, progress=log.progress)
        seconds = time.perf_counter() - start
    done, mb = log.settled().T
    slope, offset = np.polyfit(done, mb, 1)
    first, last = (float(slope * at + offset) for at in (done[0], done[-1]))
    return Course(report.num_extracted, seconds, first, last, float(slope) * 1000, max(mb for _, mb in log.rows))


def print_course(course: Course, store: Path) -> None:
    """All that was measured."""
    photos, seconds, first, last, slope, peak = course
    print(f"extracted {photos} photos in {seconds:.0f} s: {seconds / photos * 1e3:.1f} ms a photo")
    print(f"resident memory: {first:.0f} MB after the first photos, {last:.0f} MB at the end, {peak:.0f} MB at most")
    print(f"slope: {slope:+.2f} MB for each 1000 photos")
    print(f"store: {store.stat().st_size / photos / 1e3:.1f} kB a photo")


def make_extractor(keypoints: int = 2048) -> NetworkExtractor:
    """The default model."""
    return NetworkExtractor(load("default"), ExtractionOptions(SelectionOptions(max_keypoints=keypoints)))


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        photos, store = Path(folder, "photos"), Path(folder, "features.h5")
        make_photos(photos, PHOTOS)
        course = measure_extraction(make_extractor(), photos, store)
    return [Row(f"memory after {PHOTOS} photos", f"after {WARM_UP}", course.last_mb, course.first_mb, "MB", FLAT)]


def measure_resume(extractor: NetworkExtractor, photos: Path, store: Path) -> None:
    """Fill a store with small features under the names of all photos, and print what a restart costs."""
    small = Features(torch.zeros(4, 2), torch.zeros(4), torch.zeros(4, 128), (320, 240))
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg"))
    with FeatureStore(store, "a", extractor.settings) as writer:
        for start in range(0, len(names), 1000):
            writer.write_all([(name, small) for name in names[start : start + 1000]])
    begin, before = time.perf_counter(), resident_mb()
    report = extract_folder(extractor, photos, store)
    seconds = time.perf_counter() - begin
    print(
        f"restart with {report.num_known} of {len(names)} photos done: {seconds:.2f} s, {resident_mb() - before:+.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=int, default=PHOTOS)
    parser.add_argument("--keypoints", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume-only", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    extractor = make_extractor(arguments.keypoints)
    with tempfile.TemporaryDirectory() as folder:
        photos, store = Path(folder, "photos"), Path(folder, "features.h5")
        make_photos(photos, arguments.photos)
        if arguments.resume_only:
            measure_resume(extractor, photos, store)
        else:
            print_course(measure_extraction(extractor, photos, store), store)


if __name__ == "__main__":
    main()
