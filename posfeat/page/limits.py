"""What the server gives to all its clients together and to each of them, and how it says no."""

from __future__ import annotations

from dataclasses import dataclass

from posfeat.options import check_options, described
from posfeat.types import PosfeatError


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients can ask for: memory and waiting stay finite whatever they send."""

    upload_mb: float = described(64, "largest body of a request, in MiB", low=0.01)
    megapixels: float = described(50, "largest photo, in millions of pixels", low=0.01)
    requests_per_minute: int = described(1200, "requests of one client a minute, on average", low=1)
    burst: int = described(240, "requests of one client at once", low=1)
    waiting_jobs: int = described(8, "jobs that wait for the network before further ones are told to come back", low=0)
    waiting_matches: int = described(32, "matchings of known features that wait before further ones are refused", low=0)
    open_bodies: int = described(16, "requests whose bodies are being received at a time", low=1)
    connections: int = described(256, "connections at a time", low=1)
    header_seconds: float = described(10, "a request's header must be there after this time", low=0.1)
    silence_seconds: float = described(10, "a body that nothing comes of for this long is given up", low=0.1)
    body_seconds: float = described(
        20, "a body, or an answer read, must be there after this time and a second for every slowest_kb", low=0.1
    )
    slowest_kb: float = described(64, "slowest rate of a body, in KiB a second", low=0.1)
    photo_memory_mb: float = described(256, "memory for photos that clients sent, in MiB", low=1)
    feature_memory_mb: float = described(256, "memory for features, in MiB", low=1)
    map_memory_mb: float = described(384, "memory for descriptor and score maps, in MiB", low=1)
    scene_memory_mb: float = described(512, "memory for models that are looked at, in MiB", low=1)
    photo_minutes: float = described(120, "photos that nobody asked for in this time are forgotten", low=0.01)
    reconstructions: int = described(1, "reconstructions that run at a time", low=1)
    waiting_reconstructions: int = described(4, "reconstructions that wait for their turn", low=0)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def upload_bytes(self) -> int:
        """Largest body of a request."""
        return int(self.upload_mb * 2**20)

    @property
    def pixels(self) -> int:
        """Largest photo."""
        return int(self.megapixels * 1e6)


class RefusedError(PosfeatError):
    """A request that is answered with a status and one line; some time later it may be granted."""

    def __init__(self, status: int, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.retry_after = retry_after


def not_found(what: str) -> RefusedError:
    """Something that is not here, or not any more."""
    return RefusedError(404, what)


def busy(seconds: float) -> RefusedError:
    """Too much waits already."""
    wait = max(1, round(seconds))
    return RefusedError(503, f"busy: too many requests are waiting; try again in {wait} s", wait)
