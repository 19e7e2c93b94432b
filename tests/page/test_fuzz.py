"""The interface against its own OpenAPI document: odd requests of every kind, of which every answer must be as described."""

from __future__ import annotations

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

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
EXAMPLES = 10  # of each request and kind
Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def target(weights: Path, album: Path, runs: Path) -> Iterator[Client]:
    with running(services_of(weights, [album, runs], Limits(burst=10**6, requests_per_minute=10**6))) as client:
        yield client


def with_real_things(photos: tuple[bytes, bytes]) -> Change:
    """Changes a request so that what it names is there; all else stays as odd as it is."""
    photo = {"photo": "album/b.jpg", "photo0": "album/b.jpg", "photo1": "album/first day/a.png", "other": ""}
    real = {**photo, "method": "rootsift", "kind": "scores", "keypoint": 3, "name": "0000020_matches_0.jpg"}
    files = {"image": photos[0], "image0": photos[0], "image1": photos[1]}

    def change(case: Any) -> None:
        for name in case.query or {}:
            if name in real:
                case.query[name] = real[name]
            elif name == "path":
                case.query[name] = "runs/first" if "/run" in case.path else "album"
        if isinstance(case.body, dict):
            case.body.update({name: data for name, data in files.items() if name in case.body})
            case.body.update(
                {"method": "rootsift"} if "method" in case.body and "image" in str(case.body.keys()) else {}
            )

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


def test_every_answer_is_as_described(target: Client, photos: tuple[bytes, bytes]) -> None:
    described = schemathesis.openapi.from_url(f"{target.address}/api/openapi.json")
    modes, unchanged = schemathesis.GenerationMode, lambda case: None
    kinds = [(modes.POSITIVE, unchanged), (modes.NEGATIVE, unchanged), (modes.POSITIVE, with_real_things(photos))]
    problems, statuses = [], Counter[int]()
    for result in described.get_all_operations():
        operation = result.ok()
        for mode, change in kinds:
            try:
                try_out(operation, mode, change, statuses)
            except hypothesis.errors.Unsatisfiable:  # what has no parameters cannot be asked wrongly
                continue
            except Exception as error:
                problems.append(f"{operation.label}: {error}")
    print(f"requests by their status: {dict(statuses)}")
    assert problems == []
    assert statuses[200] > 100
    assert target.get("/api/status").status == 200
