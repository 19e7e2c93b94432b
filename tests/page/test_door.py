"""Who may come in, how much, how fast; and what a busy server says."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from posfeat.page.bounded_cache import BoundedCache
from posfeat.page.compute_queue import ComputeQueue
from posfeat.page.guard import Access, Rates
from posfeat.page.limits import Limits, RefusedError
from posfeat.page.server import access_for, address, open_socket, protocol_with_time_limits, serve
from posfeat.types import OptionsError
from tests.page.running_server import Client, multipart, running, services_of

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def strict(weights: Path, album: Path) -> Iterator[Client]:
    """A server with a token and the smallest limits."""
    limits = Limits(
        upload_mb=1,
        megapixels=0.2,
        header_seconds=0.5,
        silence_seconds=0.5,
        body_seconds=1,
        slowest_kb=1000,
        burst=10_000,
    )
    with running(services_of(weights, [album], limits), Access(TOKEN)) as client:
        yield client


def with_token(**more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", **more}


def test_without_the_token_nothing_is_seen(strict: Client) -> None:
    for path in ("/", "/api/status", "/static/page.css", "/api/openapi.json", "/nowhere", "/?token=wrong"):
        answer = strict.get(path)
        assert answer.status == 401
        assert "Authorization: Bearer" in answer.detail
    assert strict.request("GET", "/api/status", headers={"Authorization": "Bearer wrong"}).status == 401
    assert strict.request("GET", "/api/status", headers={"Cookie": "posfeat_token=wrong"}).status == 401


def test_the_token_opens_by_header_link_and_cookie(strict: Client) -> None:
    assert strict.request("GET", "/api/status", headers=with_token()).status == 200
    first = strict.get("/training", token=TOKEN, a="1")
    assert (first.status, first.headers["location"]) == (303, "/training?a=1")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert strict.request("GET", "/api/status", headers={"Cookie": cookie.partition(";")[0]}).status == 200
    assert strict.get("//evil.example/x", token=TOKEN).headers["location"] == "/evil.example/x"


def test_addresses_that_others_reach_get_a_token() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.0.1"):
        assert access_for(host, None).token is None
    for host in ("0.0.0.0", "::", "192.168.1.5", "myhost"):
        token = access_for(host, None).token
        assert token is not None
        assert len(token) >= 32
        assert address(host, 80, Access(token)).endswith(f":80/?token={token}")
    assert access_for("127.0.0.1", "mine-alone").token == "mine-alone"
    for short in ("mine", "with a space", "wörter-und-mehr"):
        with pytest.raises(OptionsError, match="--token"):
            access_for("127.0.0.1", short)


def test_a_port_that_is_taken_is_one_line() -> None:
    with open_socket("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OptionsError, match="choose another --port"):
            open_socket("127.0.0.1", taken.getsockname()[1])


def test_a_server_that_is_told_to_end_stops_its_reconstructions(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = services_of(weights, [])
    told = SimpleNamespace(run=lambda sockets: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("posfeat.page.server.build_server", lambda *_: told)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="143"):
            serve(services, "127.0.0.1", 0, None)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert services.reconstructions._closed


def test_other_names_for_this_machine_are_refused(server: Client) -> None:
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert server.request("GET", "/api/status", headers={"Host": host}).status == 403
    for host in ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000"):
        assert server.request("GET", "/api/status", headers={"Host": host}).status == 200


def test_pages_of_other_sites_are_refused(server: Client) -> None:
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert server.request("GET", "/api/status", headers=headers).status == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert server.request("POST", "/api/photos", b"", {"Origin": origin}).status == 403
    assert server.request("POST", "/api/photos", b"", {"Origin": server.address}).status == 422


def test_answers_tell_browsers_to_run_nothing_foreign(server: Client) -> None:
    for path in ("/", "/api/status", "/nowhere"):
        headers = server.get(path).headers
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_too_large(strict: Client) -> None:
    body, headers = multipart({"image": b"x" * 1_100_000}, {})
    announced = strict.request("POST", "/api/photos", headers=with_token(**headers, **{"Content-Length": "9" * 12}))
    assert announced.status == 413
    chunked = strict.request("POST", "/api/photos", iter([body[:1000], body[1000:]]), with_token(**headers))
    assert (chunked.status, "1 MiB" in chunked.detail) == (413, True)


def test_too_many_pixels(strict: Client, photos: tuple[bytes, bytes]) -> None:
    import numpy as np

    from posfeat.data.images import encode_image
    from tests.data.test_images import png

    large = encode_image(np.zeros((500, 500, 3), np.uint8), ".png")
    bomb = png(60_000, 60_000, 8, 0, b"")
    for data in (large, bomb):
        body, headers = multipart({"image": data}, {})
        answer = strict.request("POST", "/api/photos", body, with_token(**headers))
        assert answer.status == 422
        assert "more than the 0.2 million allowed" in answer.detail


def open_connection(client: Client) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=10)
    return connection


def test_slow_headers_are_given_up(strict: Client) -> None:
    with open_connection(strict) as connection:
        start = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert connection.recv(100) == b""
        assert time.monotonic() - start < 5


def test_slow_headers_of_a_second_request_are_given_up(strict: Client) -> None:
    with open_connection(strict) as connection:
        connection.sendall(
            f"GET /api/reconstructions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
        connection.sendall(b"G")
        start = time.monotonic()
        while connection.recv(1000):
            pass
        assert time.monotonic() - start < 3, "before the five seconds after which a silent connection is closed"


def test_answers_that_nobody_reads_are_given_up() -> None:
    async def much(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 * 2**20)})

    limits = Limits(body_seconds=0.2, slowest_kb=2**16)
    config = uvicorn.Config(much, http=protocol_with_time_limits(limits), lifespan="off", log_level="critical")
    server, listening = uvicorn.Server(config), open_socket("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    with socket.create_connection(listening.getsockname(), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while not server.server_state.connections:
            time.sleep(0.01)
        start = time.monotonic()
        while server.server_state.connections and time.monotonic() - start < 10:
            time.sleep(0.02)
        assert not server.server_state.connections
    server.should_exit = True
    thread.join(10)
    listening.close()


@pytest.mark.parametrize("pause", [0.05, 1.0])
def test_slow_bodies_are_given_up(strict: Client, pause: float) -> None:
    """One drips steadily, one falls silent."""
    body, headers = multipart({"image": b"x" * 50_000}, {})
    head = "".join(
        f"{k}: {v}\r\n" for k, v in with_token(**headers, Host="x", **{"Content-Length": str(len(body))}).items()
    )
    with open_connection(strict) as connection:
        connection.sendall(b"POST /api/photos HTTP/1.1\r\n" + head.encode() + b"\r\n")
        connection.settimeout(pause)
        start, answer, sent = time.monotonic(), b"", 0
        while not answer and time.monotonic() - start < 8:
            connection.sendall(body[sent : sent + 10])
            sent += 10
            try:
                answer = connection.recv(10_000)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408")


def test_too_many_requests(weights: Path) -> None:
    with running(services_of(weights, [], Limits(requests_per_minute=60, burst=5))) as client:
        answers = [client.get("/api/status") for _ in range(12)]
        assert {answer.status for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.headers["retry-after"] == "1"
        assert client.get("/").status == 200, "pages are not counted"


def test_rates_fill_again_and_forget_old_clients() -> None:
    rates = Rates(per_minute=60, burst=2)
    assert [rates.wait_seconds("a", 0.0) for _ in range(2)] == [0, 0]
    assert rates.wait_seconds("a", 0.0) == pytest.approx(1)
    assert rates.wait_seconds("b", 0.0) == 0
    assert rates.wait_seconds("a", 1.01) == 0


def test_a_full_queue_says_when_to_come_back(weights: Path, photos: tuple[bytes, bytes]) -> None:
    services = services_of(weights, [], Limits(waiting_jobs=1))
    held, release = threading.Event(), threading.Event()
    original = services.methods.extract

    def slow(*arguments: object) -> object:
        held.set()
        release.wait(20)
        return original(*arguments)  # type: ignore[arg-type]

    services.methods.extract = slow  # type: ignore[method-assign, assignment]
    with running(services) as client:
        statuses: list[int] = []
        asking = [
            threading.Thread(
                target=lambda: statuses.append(
                    client.post("/api/extract", {"image": photos[0]}, method="rootsift").status
                )
            )
        ]
        asking[0].start()
        assert held.wait(20)
        asking.append(
            threading.Thread(
                target=lambda: statuses.append(
                    client.post("/api/extract", {"image": photos[0]}, method="rootsift").status
                )
            )
        )
        asking[1].start()
        while client.get("/api/status").json["waiting"] < 2:
            time.sleep(0.02)
        busy = client.post("/api/extract", {"image": photos[0]}, method="rootsift")
        assert busy.status == 503
        assert int(busy.headers["retry-after"]) >= 1
        assert busy.detail.startswith("busy: ")
        release.set()
        for thread in asking:
            thread.join(20)
        assert statuses == [200, 200]


def test_a_job_whose_client_is_gone_is_not_begun() -> None:
    queue, done = ComputeQueue("test", 3), []

    async def gone() -> bool:
        return True

    async def ask() -> None:
        assert await queue.run(lambda: done.append(1)) is None
        with pytest.raises(RefusedError):
            await queue.run(lambda: done.append(2), gone)

    asyncio.run(ask())
    queue.close()
    assert (done, queue.unfinished) == ([1], 0)


def test_caches_stay_small_and_forget() -> None:
    cache: BoundedCache[str] = BoundedCache(10, seconds=0.2)
    for key in "abc":
        cache.put(key, key, 4)
    assert (cache.get("a"), cache.get("b"), cache.num_bytes) == (None, "b", 8)
    cache.put("large", "large", 99)
    assert (cache.get("large"), len(cache)) == ("large", 1)
    time.sleep(0.25)
    assert (cache.get("large"), cache.num_bytes) == (None, 0)
