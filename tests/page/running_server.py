"""A server of ours in a thread of the test, and a client that can be as rude as a test needs."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from posfeat.page.guard import Access
from posfeat.page.limits import Limits
from posfeat.page.methods import Methods
from posfeat.page.roots import Roots
from posfeat.page.server import build_server, open_socket
from posfeat.page.services import Services, build_services

BOUNDARY = "a boundary that no photo holds"


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        return str(self.json["detail"])


class Client:
    """Requests to one server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"http://127.0.0.1:{port}"

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 60
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, /, **query: Any) -> Answer:
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, files: dict[str, bytes], /, **fields: Any) -> Answer:
        body, headers = multipart(files, fields)
        return self.request("POST", path, body, headers)


def multipart(files: dict[str, bytes], fields: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The body of a form and its headers."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.png"\r\n'
        f"Content-Type: image/png\r\n\r\n".encode()
        + data
        + b"\r\n"
        for name, data in files.items()
    ]
    parts += [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}


@contextmanager
def running(services: Services, access: Access | None = None) -> Iterator[Client]:
    """The server on a free port, until the block ends."""
    listening = open_socket("127.0.0.1", 0)
    server = build_server(services, access or Access(), services.limits)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
        services.close()
        listening.close()
        assert not thread.is_alive()


def services_of(
    weights: Path, folders: list[Path], limits: Limits | None = None, output: Path | None = None
) -> Services:
    """Everything a server has, with these weights and roots."""
    output = output or weights.parent / "reconstructions"
    return build_services(limits or Limits(), Roots(folders), Methods([str(weights)]), output)
