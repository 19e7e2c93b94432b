"""Three hundred rude requests to a server in a process of its own: it goes on serving, and its memory stays bounded."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posfeat.data.images import encode_image
from tests.page.running_server import Client, multipart

NUM_REQUESTS = 300
NUM_AT_ONCE = 50
UPLOAD_MB = 8
MOST_GROWTH_MB = (
    400  # caches (32 MiB each, below), a photo of 12 megapixels in several forms, and the allocator's slack
)
OUTSIDE = (
    "../outside.png",
    "album/../../etc/passwd",
    "/etc/passwd",
    "album/%2e%2e/outside.png",
    "album/link.png",
    "..\\..",
)

READ_BY_NAME = (
    *(("/api/photo/preview", "photo"), ("/api/photo/overlay", "photo"), ("/api/folder", "path"), ("/api/run", "path")),
    *(("/api/scene", "path"), ("/api/scene/points", "path")),
)
JSON = {"Content-Type": "application/json"}


class Process:
    """posfeat serve, started as people start it."""

    def __init__(self, weights: Path, album: Path, temporary: Path) -> None:
        limits = (
            f"upload_mb={UPLOAD_MB} megapixels=12 burst=100000 silence_seconds=1 body_seconds=2 header_seconds=2 "
            "photo_memory_mb=32 feature_memory_mb=32 map_memory_mb=32"
        )
        command = [sys.executable, "-m", "posfeat", "serve", str(album), "--weights", str(weights), "--port", "0"]
        command += ["-o", str(temporary / "made"), *(part for limit in limits.split() for part in ("--set", limit))]
        environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        self.running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.running.stdout is not None
        link = re.search(r"http://127\.0\.0\.1:(\d+)/", self.running.stdout.readline())
        assert link is not None
        self.client = Client(int(link[1]))

    def memory_mb(self) -> float:
        """The most it ever had, where the system tells that."""
        status = Path(f"/proc/{self.running.pid}/status")
        if status.exists():
            return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1024
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(self.running.pid)], capture_output=True, text=True)
        return int(told.stdout) / 1024

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.running.pid}/fd").iterdir()))


@pytest.fixture
def process(weights: Path, album: Path, tmp_path: Path) -> Iterator[Process]:
    started = Process(weights, album, tmp_path)
    try:
        yield started
    finally:
        started.running.terminate()
        assert started.running.wait(20) is not None


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_nothing(width: int, height: int, row_bytes: int) -> bytes:
    """A small PNG that unpacks to as much as is asked for."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(row_bytes), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def files(photo: bytes) -> list[bytes]:
    """Bombs, polyglots, fragments, and what is no picture at all."""
    jpeg = encode_image(np.zeros((64, 64, 3), np.uint8), ".jpg")
    tiff_loop = b"II*\0\x08\0\0\0" + struct.pack("<H", 1) + struct.pack("<HHII", 256, 4, 1, 64) + struct.pack("<I", 8)
    return [
        *(png_of_nothing(60_000, 60_000, 10**7), png_of_nothing(3000, 3000, 10), png_of_nothing(0, 0, 10)),
        *(photo[: len(photo) // 2], photo[:33], photo[:8], b"", photo + b"PK\x03\x04 a zip behind a picture"),
        *(b"GIF89a/*" + b"<script>alert(1)</script>*/=0;", jpeg + b"<?php system('id') ?>", b"\xff\xd8\xff\xe0" * 99),
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><x>&b;</x>",
        *(
            tiff_loop,
            b"RIFF\xff\xff\xff\xffWEBPVP8 " + bytes(50),
            b"\x80\x04\x95cos\nsystem\n(S'id'\ntR.",
            b"PK\x03\x04" * 9,
        ),
        *(b"%PDF-1.7\n", b"P6 99999999 99999999 255\n", b"P6 70000 70000 255\n" + bytes(99), os.urandom(20_000)),
        *(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 99999 +X 99999\n", b"v/1\x01" + bytes(400), b"BM" + b"\xff" * 80),
        b"x" * (UPLOAD_MB * 2**20 + 10),
    ]


def wrong_types() -> list[tuple[str, str, Any, dict[str, str]]]:
    """Requests of which nothing fits."""
    nested = b'{"photos":' * 20_000
    return [
        ("POST", "/api/match", b'{"image0": 1}', JSON),
        ("POST", "/api/match", b"no boundary", {"Content-Type": "multipart/form-data"}),
        ("POST", "/api/extract", multipart({}, {"image": "text"})[0], multipart({}, {})[1]),
        ("POST", "/api/reconstructions", nested, JSON),
        ("POST", "/api/reconstructions", b'{"photos": ["album"]}', JSON),
        ("POST", "/api/reconstructions", b'{"photos": "album", "max_keypoints": 1e308}', JSON),
        ("POST", "/api/reconstructions", b'{"photos": "album", "weights": "/etc/passwd"}', JSON),
        (
            "POST",
            "/api/localize",
            multipart({"image": b"x"}, {"scene": "album", "intrinsics": "1e9,1,1,1"})[0],
            multipart({}, {})[1],
        ),
        ("GET", "/api/pair?photo0=a&photo1=b&ratio=nan&threshold_px=inf&max_keypoints=-1", None, {}),
        ("GET", "/api/photo/features?photo=album/b.jpg&method=__class__", None, {}),
        ("GET", "/api/scene?path=album&path=album&x[]=1", None, {}),
        ("GET", "/api/folder?path=" + "a/" * 400, None, {}),
        ("PATCH", "/api/status", b"x", {}),
        ("DELETE", "/api/reconstructions/../../etc", None, {}),
        ("GET", "/" + "a" * 30_000, None, {}),
        ("GET", "/api/status", None, {"X-" + "a" * 100: "b" * 60_000}),
    ]


def rude_socket(port: int, data: bytes) -> str:
    """Send bytes that are no whole request, wait for the server to give up."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as connection:
        try:
            connection.sendall(data)
            while connection.recv(4096):
                pass
        except ConnectionError:
            pass
    return "socket"


def requests(client: Client, photo: bytes) -> list[Any]:
    """Functions that each send one; together they are of every kind."""
    found: list[Any] = []
    for data in files(photo):
        for path in ("/api/photos", "/api/extract", "/api/match", "/api/localize"):
            names = ("image0", "image1") if path.endswith("match") else ("image",)
            fields = {"scene": "album"} if path.endswith("localize") else {}
            found.append(lambda p=path, d=data, n=names, f=fields: client.post(p, dict.fromkeys(n, d), **f).status)
    for reference in OUTSIDE:
        for path, name in READ_BY_NAME:
            found.append(lambda p=path, q={name: reference}: client.get(p, **q).status)
        found.append(lambda r=reference: client.get("/api/run/picture", path="album", name=r).status)
        asked = json.dumps({"photos": reference, "method": "rootsift"})
        found.append(lambda b=asked: client.request("POST", "/api/reconstructions", b, JSON).status)
    for method, path, body, headers in wrong_types():
        found.append(lambda m=method, p=path, b=body, h=headers: client.request(m, p, b, h).status)
    body, headers = multipart({"image": photo}, {})
    head = (
        f"POST /api/photos HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {headers['Content-Type']}\r\nContent-Length: "
    )
    for data in (
        *(head.encode() + b"99999\r\n\r\n" + body[:2000], head.encode() + b"-1\r\n\r\n", head.encode() + b"9" * 40),
        *(b"GET / HTTP/1.1\r\nHost: ", b"\x16\x03\x01" + os.urandom(100), b"GET /" + b"\0" * 99 + b" HTTP/1.1\r\n\r\n"),
        head.replace("Content-Length", "Transfer-Encoding").encode() + b"chunked\r\n\r\nffffffff\r\n" + body[:999],
    ):
        found += [lambda d=data: rude_socket(client.port, d)] * 4
    while len(found) < NUM_REQUESTS:
        found.append(found[(7 * len(found)) % 150])
    return found


def test_three_hundred_rude_requests(process: Process, photos: tuple[bytes, bytes], tmp_path: Path) -> None:
    client, both = process.client, {"image0": photos[0], "image1": photos[1]}

    def proper() -> Any:
        answer = client.post("/api/match", both, method="rootsift", max_keypoints=500)
        assert answer.status == 200
        return answer.json["matches"]

    client.post("/api/extract", {"image": photos[0]})  # the network is loaded from here on
    expected = proper()
    has_ps, has_proc = shutil.which("ps") is not None, Path("/proc/self/fd").is_dir()
    memory, handles = process.memory_mb() if has_ps else 0, process.open_files() if has_proc else 0

    busy = 0

    def one(request: Any) -> object:
        nonlocal busy
        try:
            while (outcome := request()) == 503:  # come again, so that each is really tried
                busy += 1
                time.sleep(0.3)
        except (ConnectionError, HTTPException):  # the server closes on bodies that it does not want
            return "closed"
        return outcome

    all_requests = requests(client, photos[0])
    with ThreadPoolExecutor(NUM_AT_ONCE) as clients:
        outcomes = Counter(clients.map(one, all_requests))
    print(f"{len(all_requests)} requests: {dict(outcomes)}, told {busy} times to come again")
    assert len(all_requests) >= NUM_REQUESTS
    assert not any(isinstance(status, int) and status >= 500 for status in outcomes), outcomes
    assert busy > 0, "fifty at once are too many"
    assert proper() == expected
    if has_ps:
        print(f"memory: {memory:.0f} MB before, {process.memory_mb():.0f} MB after")
        assert process.memory_mb() < memory + MOST_GROWTH_MB
    if has_proc:
        assert process.open_files() <= handles + 2, "temporary files and connections are closed"
    assert [path.name for path in tmp_path.iterdir() if path.name != "made"] == [], "nothing is left behind"
