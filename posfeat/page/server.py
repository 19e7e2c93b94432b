"""Run the application: uvicorn with a time limit for headers, and the lines that say where to look."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
import socket
from typing import Any, NoReturn

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from posfeat.page.app import build_app
from posfeat.page.guard import Access, is_local
from posfeat.page.limits import Limits
from posfeat.page.services import Services
from posfeat.types import OptionsError

_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")


def protocol_with_time_limits(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol, but connections are closed where no whole header comes, or the answer is not read, in time."""

    class Protocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _reading_ends: asyncio.TimerHandle | None = None

        def pause_writing(self) -> None:
            super().pause_writing()
            seconds = limits.body_seconds + self.transport.get_write_buffer_size() / (limits.slowest_kb * 1024)
            self._reading_ends = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._reading_ends is not None:
                self._reading_ends.cancel()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_header()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._stop_waiting()
            elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
                self._wait_for_header()  # the first bytes of the next request

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            if self._reading_ends is not None:
                self._reading_ends.cancel()
            super().connection_lost(exc)

        def _wait_for_header(self) -> None:
            self._deadline = self.loop.call_later(limits.header_seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Protocol


def build_server(services: Services, access: Access, limits: Limits) -> uvicorn.Server:
    """The server, not yet running."""
    config: dict[str, Any] = {
        "http": protocol_with_time_limits(limits),
        "ws": "none",
        "loop": "asyncio",
        "lifespan": "off",
        "limit_concurrency": limits.connections,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 3,
        "server_header": False,
        "proxy_headers": False,
        "access_log": False,
        "log_level": "warning",
    }
    return uvicorn.Server(uvicorn.Config(build_app(services, access), **config))


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # whoever reads the link may come at once
    except OSError as error:
        listening.close()
        raise OptionsError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port") from None
    return listening


def address(host: str, port: int, access: Access) -> str:
    """The link to open."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={access.token}" if access.token else "")


def access_for(host: str, token: str | None) -> Access:
    """Whoever can reach more than this machine's own address needs a token."""
    if token and not _TOKEN.fullmatch(token):
        raise OptionsError("--token takes 8 or more letters, digits, - and _, so that it fits into a link")
    return Access(token or (None if is_local(host) else secrets.token_urlsafe(24)))


def end_orderly(number: int, _: object) -> NoReturn:
    """A signal ends the process, but not before its reconstructions are stopped."""
    raise SystemExit(128 + number)


def serve(services: Services, host: str, port: int, token: str | None) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    access = access_for(host, token)
    listening = open_socket(host, port)
    logging.basicConfig(format="posfeat: %(levelname)s: %(message)s", level=logging.WARNING)
    print(f"posfeat: {address(host, listening.getsockname()[1], access)}", flush=True)
    if not is_local(host):
        print("posfeat: whoever has this link can use the server and see the folders given to it", flush=True)
    signal.signal(signal.SIGTERM, end_orderly)  # uvicorn raises it again when it has said goodbye to its clients
    try:
        build_server(services, access, services.limits).run(sockets=[listening])
    finally:
        services.close()
        listening.close()
