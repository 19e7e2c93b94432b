"""How long ``POST /api/match`` takes when several clients ask at once, beside one client alone, and what memory that takes.

    python benches/page_load.py a.jpg b.jpg
    python benches/page_load.py a.jpg b.jpg --clients 8 --requests 80 --method rootsift

Starts ``posfeat serve`` in a process of its own. The photos are shrunk to --longest-px first; each client sends both of
them again and again, and comes back after as long as the server asks for when it is busy. That waiting counts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from posfeat.data.images import encode_image, read_image, resize_longest

BOUNDARY = "a boundary that no photo holds"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=80, help="of all clients together")
    parser.add_argument("--method", default="", help="as /api/status lists them; empty: the first")
    parser.add_argument("--longest-px", type=int, default=640)
    parser.add_argument("--weights", default="default")
    arguments = parser.parse_args()
    photos = [encode_image(resize_longest(read_image(path), arguments.longest_px), ".jpg") for path in arguments.photos]
    body = form({"image0": photos[0], "image1": photos[1]}, {"method": arguments.method, "max_keypoints": "1024"})
    server, port = start(arguments.weights)
    try:
        for _ in range(3):
            one_request(port, body)  # weights and libraries are loaded
        before = memory_mb(server.pid)
        alone = [one_request(port, body) for _ in range(max(10, arguments.requests // 4))]
        begun = time.perf_counter()
        with ThreadPoolExecutor(arguments.clients) as clients:
            together = list(clients.map(lambda _: one_request(port, body), range(arguments.requests)))
        seconds = time.perf_counter() - begun
        report(alone, together, arguments.clients, seconds)
        print(f"memory of the server: {before:.0f} MB before, {memory_mb(server.pid):.0f} MB after")
    finally:
        server.terminate()
        server.wait(20)


def start(weights: str) -> tuple[subprocess.Popen[str], int]:
    """A server on a free port, without a limit of requests a minute."""
    command = [sys.executable, "-m", "posfeat", "serve", "--port", "0", "--weights", weights]
    command += ["--set", "burst=1000000", "--set", "requests_per_minute=1000000"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    link = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
    if link is None:
        sys.exit("the server did not start")
    return server, int(link[1])


def form(files: dict[str, bytes], fields: dict[str, str]) -> bytes:
    """The body of a multipart form."""
    head = "--{0}\r\nContent-Disposition: form-data; name={1}"
    parts = [head.format(BOUNDARY, f'"{n}"; filename="{n}.jpg"\r\n\r\n').encode() + d for n, d in files.items()]
    parts += [head.format(BOUNDARY, f'"{name}"\r\n\r\n{value}').encode() for name, value in fields.items()]
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def one_request(port: int, body: bytes) -> tuple[float, int]:
    """Seconds until the matches are there, and how often the server was busy."""
    begun, busy = time.perf_counter(), 0
    headers = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", "/api/match", body, headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        if answer.status == 200:
            return time.perf_counter() - begun, busy
        if answer.status != 503:
            sys.exit(f"the server answered {answer.status}: {told['detail']}")
        busy += 1
        time.sleep(float(answer.getheader("Retry-After") or 1))


def report(alone: list[tuple[float, int]], together: list[tuple[float, int]], clients: int, seconds: float) -> None:
    """The middle and the 95th percentile of both, and how they compare."""
    rows = {"1 client": alone, f"{clients} clients": together}
    shown = {name: np.percentile([1000 * s for s, _ in results], [50, 95]) for name, results in rows.items()}
    for name, (middle, most) in shown.items():
        print(f"{name:>11}: p50 {middle:7.0f} ms   p95 {most:7.0f} ms")
    one, many = shown.values()
    print(f"      ratio: p50 {many[0] / one[0]:7.2f}      p95 {many[1] / one[1]:7.2f}")
    print(f"{len(together) / seconds:.2f} pairs a second, {sum(busy for _, busy in together)} times told to come again")


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(told.stdout) / 1024


if __name__ == "__main__":
    main()
