"""The pages in a real browser: photos are dropped, sliders moved, keypoints and cameras picked, a reconstruction followed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pycolmap")

from posfeat.page.limits import Limits
from tests.page.browser import AUDIT, Visitor, chromium
from tests.page.running_server import Client, running, services_of
from tests.pipeline.conftest import GalleryPhotos

Visit = Callable[..., Visitor]
WIDTH, HEIGHT = 480, 360  # of the photos
# a point that a click on it picks: no camera and no other point is before it
POINT_TO_CLICK = """() => {
  for (let i = 0; i < viewer.positions.length / 3; i += 1) {
    const at = viewer.project(viewer.pointAt(i));
    if (!at || at[0] < 20 || at[1] < 20 || at[0] > viewer.canvas.clientWidth - 20 || at[1] > viewer.canvas.clientHeight - 20) continue;
    const found = viewer.pick(Math.round(at[0]), Math.round(at[1]));
    if (found.camera < 0 && found.point === i) return [i, Math.round(at[0]), Math.round(at[1])];
  }
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(
    weights: Path,
    album: Path,
    runs: Path,
    gallery: GalleryPhotos,
    gallery_map: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    """A server with everything to look at, which forgets photos at once."""
    folders = [album, runs, gallery.folder, gallery_map]
    services = services_of(weights, folders, Limits(photo_minutes=0.05), tmp_path_factory.mktemp("output") / "made")
    with running(services) as client:
        yield client


@pytest.fixture
def visit(browser: Any, site: Client) -> Iterator[Visit]:
    visitors: list[Visitor] = []

    def new(**options: Any) -> Visitor:
        visitors.append(Visitor(browser, site.address, **options))
        return visitors[-1]

    yield new
    for visitor in visitors:
        visitor.close()


def drop_both(visitor: Visitor, photos: tuple[bytes, bytes]) -> Any:
    """The match page with both photos, matched by SIFT."""
    page = visitor.open("/")
    page.select_option("#method", "rootsift")
    for side, photo in enumerate(photos):
        visitor.drop(f'.pane[data-side="{side}"] canvas', photo, f"wall {side}.png")
    page.wait_for_selector("#summary[data-matches]")
    return page


def number_of_matches(page: Any) -> int:
    return int(page.get_attribute("#summary", "data-matches"))


def wait_for_change(page: Any, before: int) -> int:
    page.wait_for_function("n => Number(document.querySelector('#summary').dataset.matches) !== n", arg=before)
    return number_of_matches(page)


def test_two_photos_are_dropped_and_the_sliders_move(visit: Visit, photos: tuple[bytes, bytes]) -> None:
    visitor = visit()
    page = drop_both(visitor, photos)
    assert "agree with one epipolar geometry" in page.inner_text("#summary")
    everything = number_of_matches(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    visitor.slide("#keypoints", 6)
    fewer = wait_for_change(page, everything)
    assert "64 and 64 keypoints" in page.inner_text("#summary")
    visitor.slide("#keypoints", 11)
    assert wait_for_change(page, fewer) == everything
    for control, value in (("#ratio", 0.6), ("#score", 95)):
        before = number_of_matches(page)
        visitor.slide(control, value)
        assert wait_for_change(page, before) < before
    print(f"the last slider took {page.get_attribute('#summary', 'data-ms')} ms")
    assert int(page.get_attribute("#summary", "data-ms")) < 3000  # 300 on a machine that does nothing else
    page.select_option("#geometry", "homography")
    page.wait_for_function("() => document.querySelector('#summary').textContent.includes('one homography')")
    assert len(asked) == 5
    assert all("/api/pair?" in url for url in asked), "no network runs again"


def test_a_keypoint_is_clicked(visit: Visit, photos: tuple[bytes, bytes], site: Client) -> None:
    page = drop_both(visit(), photos)
    reference = re.search(r"photo0=([0-9a-f]{32})", page.url)
    assert reference is not None
    keypoints = site.get("/api/photo/features", photo=reference[1], method="rootsift").json["keypoints"]
    box = page.locator('.pane[data-side="0"] canvas').bounding_box()
    scale = box["width"] / WIDTH
    # alone among its neighbours, so that the click is clear
    x, y = next(
        (x, y)
        for x, y in keypoints[:100]
        if sum(abs(x - u) + abs(y - v) < 12 for u, v in keypoints) == 1 and 20 < x < WIDTH - 20 and 20 < y < HEIGHT - 20
    )
    page.mouse.click(box["x"] + (x + 0.5) * scale, box["y"] + (y + 0.5) * scale)
    page.wait_for_selector("#selected:not([hidden]) tbody tr")
    assert f"At ({x:.1f}, {y:.1f})" in page.inner_text("#selected-text")
    assert page.locator("#candidates tr").count() == 5
    page.keyboard.press("Escape")
    page.wait_for_selector("#selected", state="hidden")


def test_the_keyboard_walks_and_a_link_restores(visit: Visit, photos: tuple[bytes, bytes]) -> None:
    visitor = visit()
    page = drop_both(visitor, photos)
    page.focus('.pane[data-side="1"] canvas')
    for key in ("Enter", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_selector("#selected:not([hidden]) tbody tr")
    chosen = page.inner_text("#selected-title")
    assert chosen.endswith("of the second photo")
    everything = number_of_matches(page)
    visitor.slide("#ratio", 0.6)
    wait_for_change(page, everything)
    page.get_by_role("button", name="Compare untrained").click()
    page.wait_for_selector('#rows tr[data-method="untrained"] td:nth-child(5)')
    assert page.evaluate("document.activeElement.closest('tr').dataset.method") == "untrained", "the focus stays"
    page.uncheck("#show-bad")
    before, link = page.inner_text("#summary"), page.url
    page.goto("about:blank")
    page.wait_for_timeout(3500)  # the server forgets the photos; the browser that sent them does not
    page.goto(link)
    page.wait_for_selector("#selected:not([hidden]) tbody tr")
    assert (page.inner_text("#summary"), page.inner_text("#selected-title")) == (before, chosen)
    assert not page.is_checked("#show-bad")
    visitor.problems = [problem for problem in visitor.problems if "404" not in problem]  # the browser notes them all


def test_another_link_in_the_same_window_and_the_skip_link(visit: Visit) -> None:
    page = visit().open("/#ratio=0.7")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#ratio=0.7")
    with page.expect_navigation():
        page.evaluate("location.href = '/#ratio=0.8'")
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#ratio") == "0.8"


def test_a_click_on_an_empty_place_chooses(visit: Visit, album: Path) -> None:
    page = visit().open("/")
    with page.expect_file_chooser() as clicked:
        page.click('.pane[data-side="1"] canvas')
    clicked.value.set_files([album / "b.jpg", album / "first day" / "a.png"])
    page.wait_for_selector("#summary[data-matches]")


def test_overlays_and_files(visit: Visit, photos: tuple[bytes, bytes]) -> None:
    visitor = visit()
    page = drop_both(visitor, photos)
    page.select_option("#method", "untrained")
    for kind in ("scores", "descriptors"):
        with page.expect_response(lambda answer: "/api/photo/overlay" in answer.url) as answer:
            page.select_option("#overlay", kind)
        assert answer.value.status == 200
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("x0,y0,x1,y1,score,verified")


def test_a_photo_from_the_server_and_one_that_is_none(visit: Visit) -> None:
    visitor = visit(width=390, height=844)
    page = visitor.open("/")
    page.locator('.pane[data-side="0"] .from-server').click()
    page.get_by_role("button", name="album/").click()
    page.get_by_role("button", name="b.jpg").click()
    page.wait_for_function("() => document.querySelector('.pane .name').textContent === 'b.jpg'")
    visitor.drop('.pane[data-side="1"] canvas', b"no photo at all", "broken.png")
    page.wait_for_selector("#message:not([hidden])")
    assert "broken.png is not a whole" in page.inner_text("#message")
    visitor.problems.clear()  # the refused upload


def test_a_model_is_opened(visit: Visit, gallery: GalleryPhotos) -> None:
    page = visit().open("/model")
    assert page.inner_text("#summary").startswith(f"{len(gallery.views)} photos, ")
    assert page.evaluate("() => viewer.gl !== null"), "drawn by WebGL"
    at = page.evaluate("() => viewer.project(viewer.frustum(viewer.cameras[2]).centre)")
    box = page.locator("#world").bounding_box()
    page.mouse.click(box["x"] + at[0], box["y"] + at[1])
    page.wait_for_selector("#photo-card:not([hidden])")
    name = page.inner_text("#photo-title")
    assert name in [view.name for view in gallery.views]
    page.focus("#photo")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#track button")
    assert page.locator("#track button").count() >= 2
    page.keyboard.press("Escape")
    page.wait_for_selector("#track-card", state="hidden")
    page.focus("#world")
    before = page.evaluate("() => ({ ...viewer.view })")
    for key in ("ArrowLeft", "ArrowUp", "+", "n"):
        page.keyboard.press(key)
    page.wait_for_selector("#photo-card:not([hidden])")
    assert page.evaluate("() => viewer.view.yaw") != before["yaw"]


def test_the_mouse_turns_the_model_and_picks_a_point(visit: Visit) -> None:
    page = visit().open("/model")
    box = page.locator("#world").bounding_box()
    before = page.evaluate("() => ({ ...viewer.view })")
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 230, steps=4)
    page.mouse.up()
    after = page.evaluate("() => ({ ...viewer.view })")
    assert abs(after["yaw"] - before["yaw"]) > 0.1
    assert (after["distance"], after["target"]) == (before["distance"], before["target"])
    page.mouse.wheel(0, -200)
    page.wait_for_function("d => viewer.view.distance < d", arg=before["distance"])
    point, x, y = page.evaluate(POINT_TO_CLICK)
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.wait_for_selector("#track-card:not([hidden]) button")
    assert page.url.endswith(f"point={point}")
    assert page.evaluate("() => viewer.rays.length") == page.locator("#track button").count() >= 2
    page.locator("#track button").first.click()
    page.wait_for_selector("#photo-card:not([hidden])")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#photo-card:not([hidden])")


def test_flights_are_slow_unless_motion_is_unwanted(visit: Visit) -> None:
    for motion, at_once in (("reduce", True), ("no-preference", False)):
        page = visit(motion=motion).open("/model")
        moved = page.evaluate(
            "() => { const before = viewer.view.yaw; viewer.flyToCamera(0); return viewer.view.yaw !== before; }"
        )
        assert moved == at_once
        page.evaluate("() => { document.body.insertAdjacentHTML('beforeend', '<i class=busy></i>'); }")
        turning = page.evaluate("() => getComputedStyle(document.querySelector('.busy')).animationName")
        assert (turning == "none") == at_once


def test_the_model_is_drawn_without_webgl_too(visit: Visit) -> None:
    page = visit().open("/model")
    shown = page.evaluate(
        """async () => {
          const { SceneViewer } = await import('/static/scene_viewer.js');
          const canvas = document.body.appendChild(document.createElement('canvas'));
          canvas.style.cssText = 'width: 300px; height: 200px; display: block';
          const flat = new SceneViewer(canvas, { webgl: false });
          flat.setScene({ positions: viewer.positions, colours: viewer.pointColours, cameras: viewer.cameras });
          await new Promise((done) => setTimeout(done, 200));
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          return [flat.frames, new Set(pixels).size];
        }"""
    )
    assert shown[0] >= 1
    assert shown[1] > 5


def test_a_photo_is_found_in_the_model(visit: Visit, gallery: GalleryPhotos, photos: tuple[bytes, bytes]) -> None:
    visitor = visit()
    page = visitor.open("/model")
    visitor.drop("#drop", gallery.views[3].image_path.read_bytes(), "mine.png")
    page.wait_for_selector("#found dl")
    assert "mine.png" in page.inner_text("#found")
    off = page.evaluate(
        "() => { const [a, b] = [viewer.located, viewer.cameras[3]].map(c => [3, 7, 11].map(i => c.world_from_cam[i])); return Math.hypot(...a.map((v, i) => v - b[i])) / viewer.extent; }"
    )
    assert off < 0.02
    assert page.inner_text("#photo-title") == "mine.png"
    page.get_by_role("button", name="Forget").click()
    page.wait_for_selector("#photo-card", state="hidden")
    visitor.drop("#drop", photos[0], "elsewhere.png")
    page.wait_for_function("() => document.querySelector('#found').textContent.includes('is not localized')")
    visitor.problems.clear()  # the refusal


def test_a_reconstruction_is_followed_to_its_end(visit: Visit, gallery: GalleryPhotos) -> None:
    page = visit().open("/model")
    page.click("#choose-photos")
    page.get_by_role("button", name=f"{gallery.folder.name}/").click()
    page.get_by_role("button", name="Choose this folder").click()
    page.click("#reconstruct summary")
    page.select_option("#method", "rootsift")
    page.click("#start")
    page.wait_for_selector('.job[data-state="running"] progress')
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector('.job[data-state="cancelled"]')
    page.click("#start")
    page.wait_for_selector('.job[data-state="running"] progress')
    page.wait_for_selector('.job[data-state="done"]', timeout=180_000)
    assert f"{len(gallery.views)} of {len(gallery.views)} photos placed" in page.inner_text('.job[data-state="done"]')
    page.wait_for_function("() => document.querySelector('#scene').value.startsWith('made/')")
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("#summary").startswith(f"{len(gallery.views)} photos, ")


def test_two_runs_side_by_side(visit: Visit) -> None:
    visitor = visit()
    page = visitor.open("/training")
    page.select_option("#run-a", "runs/first")
    page.select_option("#run-b", "runs/second")
    page.wait_for_function("() => document.querySelectorAll('#validation .curve').length === 2")
    assert page.inner_text("#validation .readout") == "first 0.5 · second 0.75"
    page.focus("#validation svg")
    page.keyboard.press("Home")
    assert page.inner_text("#validation .readout") == "step 20: first 0.25 · second 0.5"
    assert page.locator("#training .curve.faint").count() == 2, "smoothed, with the numbers themselves behind"
    sources = page.locator("#both img").evaluate_all("images => images.map(i => i.src)")
    assert [re.findall(r"path=runs%2F(\w+)&name=0+(\d+)_", source)[0] for source in sources] == [
        ("first", "40"),
        ("second", "40"),
    ]
    visitor.slide("#moment", 0)
    page.wait_for_function(
        "() => [...document.querySelectorAll('#both img')].every(i => i.src.includes('0000020') && i.naturalWidth)"
    )
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready]")
    assert (page.input_value("#run-b"), page.input_value("#moment")) == ("runs/second", "0")


def test_the_interface_describes_itself(visit: Visit, site: Client) -> None:
    page = visit().open("/api")
    described = site.get("/api/openapi.json").json["paths"]
    shown = page.locator("#paths h2").all_inner_texts()
    assert shown == [f"{method.upper()} {path}" for path, methods in described.items() for method in methods]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_names_contrast_and_width(visit: Visit, photos: tuple[bytes, bytes], width: int, scheme: str) -> None:
    visitor = visit(width=width, height=844, scheme=scheme)
    for path in ("/model", "/training", "/api"):
        page = visitor.open(path)
        if path == "/model":
            page.locator("#cameras button").first.click()
            page.wait_for_selector("#photo-card:not([hidden])")
        assert page.evaluate(AUDIT) == []
    page = drop_both(visitor, photos)
    page.focus('.pane[data-side="0"] canvas')
    page.keyboard.press("Enter")
    page.wait_for_selector("#selected:not([hidden]) tbody tr")
    assert page.evaluate(AUDIT) == []


def test_one_colour_scheme_can_be_chosen(visit: Visit) -> None:
    page = visit(scheme="light").open("/api")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.select_option("#theme", "dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(ground) == dark
