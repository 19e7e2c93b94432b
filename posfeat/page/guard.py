"""The door of the server: who may come in, how much may be carried in, how fast, and what browsers may do with answers."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from posfeat.page.limits import Limits, RefusedError

COOKIE = "posfeat_token"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
MOST_CLIENTS = 10_000  # whose rates are remembered
READING = ("GET", "HEAD", "OPTIONS")
ANSWER_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """Who may come in: with a token anybody who has it, without one only who calls this machine by its own names."""

    token: str | None = None


class Rates:
    """A bucket of requests for each client, which fills again steadily."""

    def __init__(self, per_minute: int, burst: int) -> None:
        self._per_second, self._burst = per_minute / 60, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> requests left, and when

    def wait_seconds(self, client: str, now: float) -> float:
        """0 where a request is granted (and counted), else when to come again."""
        left, before = self._left.pop(client, (float(self._burst), now))
        left = min(self._burst, left + (now - before) * self._per_second)
        granted = left >= 1
        self._left[client] = (left - 1 if granted else left, now)
        while len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if granted else (1 - left) / self._per_second


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._rates = Rates(limits.requests_per_minute, limits.burst)
        self._open_bodies = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets here: closing is the answer
        headers = Headers(scope=scope)
        try:
            refusal = self._entered(scope, headers) or self._admitted(scope, headers)
        except RefusedError as error:
            refusal = refused(error)
        if refusal is not None:
            await refusal(scope, receive, with_headers(send, closing=True))
            return
        has_body = int(headers.get("content-length") or 0) > 0 or "transfer-encoding" in headers
        self._open_bodies += has_body
        try:
            await self._app(scope, self._bounded(receive) if has_body else receive, with_headers(send))
        finally:
            self._open_bodies -= has_body

    def _entered(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a client that has no token, or shows it for the first time."""
        if self._access.token is None:
            if host_name(headers.get("host", "")) not in LOCAL_NAMES:  # a foreign name that leads to this machine
                raise RefusedError(403, "this server answers to 127.0.0.1 and localhost only; see posfeat serve --host")
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        shown = query.pop("token", [""])[0]
        if shown and scope["method"] == "GET" and self._fits(shown):
            rest = urlencode(query, doseq=True)
            path = "/" + scope["path"].lstrip("/")  # two slashes would lead to another server
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
            answer.set_cookie(COOKIE, shown, httponly=True, samesite="strict")
            return answer
        bearer = headers.get("authorization", "")
        if self._fits(bearer.removeprefix("Bearer ").strip()) or self._fits(cookie(headers)):
            return None
        raise RefusedError(401, "open the link that posfeat serve printed, or send its token as Authorization: Bearer")

    def _admitted(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuses what other sites' pages ask for, and what is too much."""
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise RefusedError(403, "other sites' pages may not ask this server")
        origin = headers.get("origin")
        if scope["method"] not in READING and origin and origin.partition("://")[2] != headers.get("host"):
            raise RefusedError(403, "other sites' pages may not ask this server")
        if scope["path"].startswith("/api/"):
            wait = self._rates.wait_seconds(client_of(scope), time.monotonic())
            if wait:
                raise RefusedError(429, f"too many requests; try again in {max(1, round(wait))} s", max(1, round(wait)))
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._limits.upload_bytes:
            raise self._too_large()
        if self._open_bodies >= self._limits.open_bodies:
            raise RefusedError(503, "busy: too many uploads are under way; try again in 2 s", 2)
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """The body, as long as it is small enough and comes fast enough."""
        limits, begun = self._limits, time.monotonic()
        received, complete = 0, False

        async def bounded() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            left = begun + limits.body_seconds + received / (limits.slowest_kb * 1024) - time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, min(left, limits.silence_seconds)))
            except asyncio.TimeoutError:
                raise too_slow() from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > limits.upload_bytes:
                raise HTTPException(413, str(self._too_large()), {"Connection": "close"})
            return message

        return bounded

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"a request may hold {self._limits.upload_mb:g} MiB; send smaller photos")

    def _fits(self, shown: str) -> bool:
        assert self._access.token is not None
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._access.token.encode())


def too_slow() -> HTTPException:
    """The answer to a body that does not come."""
    return HTTPException(408, "the body came too slowly; send it again", {"Connection": "close"})


def refused(error: RefusedError) -> Response:
    """The answer to a request that is not granted."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"detail": str(error)}, status_code=error.status, headers=headers)


def with_headers(send: Send, closing: bool = False) -> Send:
    """Sending that adds what every answer says to browsers; a refused body is not waited for."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ANSWER_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if closing:
                headers["Connection"] = "close"
        await send(message)

    return sending


def client_of(scope: Scope) -> str:
    """Who asks."""
    return str((scope.get("client") or ("unknown",))[0])


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host


def cookie(headers: Headers) -> str:
    """The token that a browser keeps."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
