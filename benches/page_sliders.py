"""How long the match page takes from moving a slider to showing the new matches, in a headless Chromium.

    python benches/page_sliders.py a.jpg b.jpg
    python benches/page_sliders.py a.jpg b.jpg --method rootsift --moves 40

Starts ``posfeat serve``, drops both photos onto the page and moves each slider in turn. Says, too, how many of the requests
ran a network: none should. The goal is 300 ms; the last line compares the slowest slider's median with it.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from page_load import start

GOAL_MS = 300
SLIDERS = {"keypoints": (8, 12), "score": (0, 60), "ratio": (0.7, 1), "similarity": (0, 0.8), "threshold": (0.5, 6)}
DROP = """([side, data]) => {
  const files = new DataTransfer();
  files.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], `${side}.jpg`, { type: 'image/jpeg' }));
  const target = document.querySelector(`.pane[data-side="${side}"] canvas`);
  target.dispatchEvent(new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true }));
}"""
# from the slider's event until the page has drawn what the server answered
MOVE = """([id, value]) => new Promise((done) => {
  const summary = document.querySelector('#summary'), start = performance.now();
  const watch = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => { watch.disconnect(); done(performance.now() - start); })));
  watch.observe(summary, { attributes: true, attributeFilter: ['data-ms'] });
  const slider = document.getElementById(id);
  slider.value = value;
  slider.dispatchEvent(new Event('input'));
})"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs=2)
    parser.add_argument("--method", default="", help="as the page lists them; empty: the first")
    parser.add_argument("--moves", type=int, default=20, help="of each slider")
    parser.add_argument("--weights", default="default")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    server, port = start(arguments.weights)
    try:
        with sync_playwright() as driver:
            path = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("there is no Chromium here")
            page = driver.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            measure(page, arguments.photos, arguments.method, arguments.moves)
    finally:
        server.terminate()
        server.wait(20)


def measure(page: Any, photos: list[Path], method: str, moves: int) -> None:
    """Move every slider to and fro."""
    page.wait_for_selector("body[data-ready]")
    if method:
        page.select_option("#method", method)
    for side, photo in enumerate(photos):
        page.evaluate(DROP, [side, base64.b64encode(photo.read_bytes()).decode()])
    page.wait_for_selector("#summary[data-matches]", timeout=300_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    middle = {}
    for name, (low, high) in SLIDERS.items():
        values = np.random.default_rng(0).permutation(np.linspace(low, high, moves))
        times = [page.evaluate(MOVE, [name, float(value)]) for value in values]
        middle[name] = float(np.median(times))
        print(f"{name:>11}: p50 {middle[name]:6.0f} ms   p95 {np.percentile(times, 95):6.0f} ms")
    print(f"{len(asked)} requests, {sum('/api/pair?' not in url for url in asked)} of them not for matches alone")
    print(f"slowest slider: {max(middle.values()) / GOAL_MS:.2f} of the goal of {GOAL_MS} ms")


if __name__ == "__main__":
    main()
