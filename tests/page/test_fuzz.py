"""The interface against its own OpenAPI document: odd requests of every kind, of which every answer must be as described."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.errors
import pytest

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from posfeat.page.limits import Limits  # noqa: E402
from tests.page.running_server import Client, running, services_of  # noqa: E402
from tests.pipeline.conftest import GalleryPhotos  # noqa: E402

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
EXAMPLES = 8  # of each request and kind
Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def target(
    weights: Path, album: Path, runs: Path, gallery_map: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    limits = Limits(burst=10**6, requests_per_minute=10**6, waiting_reconstructions=10**6)
    output = tmp_path_factory.mktemp("output") / "made"
    with running(services_of(weights, [album, runs, gallery_map], limits, output)) as client:
        yield client


def with_real_things(target: Client, photos: tuple[bytes, bytes], view: bytes) -> Change:
    """Changes a request so that what it names is there; all else stays as odd as it is."""
    (scene,) = (found["path"] for found in target.get("/api/scenes").json)
    asked = {"photos": "album/first day", "method": "rootsift"}
    started = target.request("POST", "/api/reconstructions", json.dumps(asked), {"Content-Type": "application/json"})
    job = started.json["job"]
    target.request("DELETE", f"/api/reconstructions/{job}")  # the next one has its place
    photo = {"photo": "album/b.jpg", "photo0": "album/b.jpg", "photo1": "album/first day/a.png", "other": ""}
    real = {
        **photo,
        **{
            "method": "rootsift",
            "kind": "scores",
            "keypoint": 3,
            "name": "0000020_matches_0.jpg",
            "photos": asked["photos"],
        },
        **{"image": photos[0], "image0": photos[0], "image1": photos[1], "scene": scene, "camera": 2, "point": 5},
    }

    def change(case: Any) -> None:
        paths = {"/api/run": "runs/first", "/api/scene": scene, "/api/folder": "album"}
        here = real | {"path": next((paths[start] for start in paths if case.path.startswith(start)), "album")}
        here |= {"image": view, "intrinsics": ""} if case.path == "/api/localize" else {}
        for values in (case.query, case.body):
            if isinstance(values, dict):
                values.update({name: here[name] for name in values if name in here})
        if case.path_parameters:
            case.path_parameters["job"] = job

    return change


def try_out(operation: Any, mode: Any, change: Change, statuses: Counter[int]) -> None:
    """Odd requests of one kind."""

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy(mode))
    def one(case: Any) -> None:
        change(case)
        statuses[case.call_and_validate(checks=CHECKS, timeout=30).status_code] += 1

    one()


def test_every_answer_is_as_described(target: Client, photos: tuple[bytes, bytes], gallery: GalleryPhotos) -> None:
    real = with_real_things(target, photos, gallery.views[3].image_path.read_bytes())
    described = schemathesis.openapi.from_url(f"{target.address}/api/openapi.json")
    modes, unchanged = schemathesis.GenerationMode, lambda case: None
    kinds = [(modes.POSITIVE, unchanged), (modes.NEGATIVE, unchanged), (modes.POSITIVE, real)]
    problems, by_operation = [], {}
    for result in described.get_all_operations():
        operation = result.ok()
        statuses = by_operation[operation.label] = Counter[int]()
        for mode, change in kinds:
            try:
                try_out(operation, mode, change, statuses)
            except hypothesis.errors.Unsatisfiable:  # what has no parameters cannot be asked wrongly
                continue
            except Exception as error:
                problems.append(f"{operation.label}: {error}")
    print(
        f"\n{sum(sum(counts.values()) for counts in by_operation.values())} requests of {len(by_operation)} kinds: {by_operation}"
    )
    assert problems == []
    assert len(by_operation) == sum(len(methods) for methods in target.get("/api/openapi.json").json["paths"].values())
    assert [label for label, counts in by_operation.items() if counts[200] == 0] == [], "each was granted at times"
    assert target.get("/api/status").status == 200
