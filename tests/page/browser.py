"""The system's Chromium, driven by Playwright, and a look at a page through a strict reader's eyes."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
# no sandbox: containers and the superuser cannot have it; software rendering: there may be no graphics card
ARGUMENTS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]

# What a person would meet who uses no mouse, enlarges text, or sees colours badly.
AUDIT = """() => {
  const found = [];
  const seen = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && !e.closest('.visually-hidden, .skip');
  for (const e of document.querySelectorAll('input, select, button, a, textarea, canvas[tabindex]')) {
    if (!e.checkVisibility()) continue;
    const name = e.getAttribute('aria-label') || [...(e.labels || [])].map(l => l.textContent).join('') || e.textContent || e.title;
    if (!name.trim()) found.push(`no name: ${e.outerHTML.slice(0, 90)}`);
  }
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !seen(e) || e.closest('svg, [disabled], :disabled, [aria-disabled="true"], option')) continue;
    let ground = e;
    while (ground && !(rgb(getComputedStyle(ground).backgroundColor)[3] !== 0)) ground = ground.parentElement;
    const [a, b] = [getComputedStyle(e).color, ground ? getComputedStyle(ground).backgroundColor : 'rgb(255, 255, 255)'].map(rgb).map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${e.tagName} ${e.textContent.trim().slice(0, 40)}`);
  }
  for (const e of document.querySelectorAll('button, select, input[type=text], .button')) {
    if (!seen(e) || e.matches(':disabled, [aria-disabled="true"]')) continue;
    const style = getComputedStyle(e), wide = parseFloat(style.borderTopWidth);
    let ground = e.parentElement;
    while (ground && rgb(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (wide && ground && ratio(light(rgb(style.borderTopColor)), light(rgb(getComputedStyle(ground).backgroundColor))) < 3) found.push(`faint edge: ${e.outerHTML.slice(0, 90)}`);
  }
  for (const e of document.querySelectorAll('.scroll, .field, .row, figcaption, dl')) if (seen(e) && e.scrollWidth > e.clientWidth + 1) found.push(`cut off: ${e.outerHTML.slice(0, 90)}`);
  if (!document.documentElement.lang || !document.title || !document.querySelector('h1')) found.push('language, title or heading is missing');
  if (document.documentElement.scrollWidth > innerWidth) found.push(`wider than the window: ${document.documentElement.scrollWidth} of ${innerWidth}`);
  return found;
}"""


def find_browser() -> str:
    """Where the browser is, or the reason why these tests are skipped."""
    named = os.environ.get("POSFEAT_BROWSER")
    found = named or next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None and sys.platform == "darwin" and MAC.exists():
        found = str(MAC)
    if found is None:
        pytest.skip("there is no Chromium or Chrome here (POSFEAT_BROWSER names one)")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_browser()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visitor:
    """A page in a window of its own, and everything that went wrong on it."""

    def __init__(
        self,
        browser: Any,
        address: str,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        motion: str = "reduce",
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion=motion
        )
        self.page = self.context.new_page()
        self.address = address
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        self.page.on("request", self._look_at)

    def open(self, path: str) -> Any:
        """Go there and wait until the page says that it is ready."""
        self.page.goto(self.address + path)
        self.page.wait_for_selector("body[data-ready]")
        return self.page

    def drop(self, selector: str, data: bytes, name: str) -> None:
        """Let a file fall onto an element."""
        self.page.evaluate(
            """([selector, data, name]) => {
              const files = new DataTransfer();
              files.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name, { type: 'image/png' }));
              const target = document.querySelector(selector);
              for (const kind of ['dragover', 'drop']) target.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
            }""",
            [selector, base64.b64encode(data).decode(), name],
        )

    def slide(self, selector: str, value: object) -> None:
        """Move a slider."""
        self.page.evaluate(
            "([s, v]) => { const e = document.querySelector(s); e.value = v; e.dispatchEvent(new Event('input')); }",
            [selector, str(value)],
        )

    def close(self) -> None:
        """Close the window; nothing may have gone wrong."""
        self.context.close()
        assert self.problems == []

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.problems.append(f"asked for {request.url}")
