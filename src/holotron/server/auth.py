"""Who is asking: API keys, and what each of them has under way."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address, ip_network

from fastapi import Request

from holotron.server.errors import ApiError
from holotron.server.settings import ServerSettings

ANYONE = "anyone"
BROWSERS = ("origin", "sec-fetch-site")  # send these
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Caller:
    """The holder of a key. The name is a fingerprint: it can be logged, and owns sessions."""

    name: str


ADMIN = Caller("admin")


class Keys:
    """Compares keys by digests of equal length, all of them, so that the time it takes says nothing about any."""

    def __init__(self, settings: ServerSettings) -> None:
        self._keys = [(digest := _digest(key), Caller(f"key-{digest.hex()[:12]}")) for key in settings.api_keys]
        self._admin = _digest(settings.admin_key) if settings.admin_key else None
        self._trainers = [ip_network(network) for network in settings.trainers]

    def caller(self, request: Request) -> Caller:
        """Who asks; 401 if they may not."""
        digest = _digest(_bearer(request))
        found = ADMIN if self._is_trainer(request) else None if self._keys else Caller(ANYONE)
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        if self._admin is not None and hmac.compare_digest(self._admin, digest):
            found = ADMIN
        if found is None:
            message = "this server wants an API key; send it as 'Authorization: Bearer KEY'"
            raise ApiError(401, message, code="invalid_api_key")
        return found

    def admin(self, request: Request) -> Caller:
        """The same for what only the operator may do, or a trainer whose address the operator trusts."""
        if self._is_trainer(request):
            return ADMIN
        if self._admin is None:
            message = "this server was started without --admin-key, so that nobody may do this"
            raise ApiError(403, message, code="no_admin_key")
        if not hmac.compare_digest(self._admin, _digest(_bearer(request))):
            raise ApiError(401, "this wants the admin key, as 'Authorization: Bearer KEY'", code="invalid_api_key")
        return ADMIN

    def _is_trainer(self, request: Request) -> bool:
        """Whether it comes from an address that is trusted, and not from a page in a browser there."""
        if not self._trainers or request.client is None or any(map(request.headers.get, BROWSERS)):
            return False
        try:
            address = ip_address(request.client.host)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trainers)


class Hosts:
    """Whom a request may say it is for. A page that has its own name point to this machine is turned away."""

    def __init__(self, settings: ServerSettings) -> None:
        local = settings.host in LOOPBACK_NAMES or settings.host.startswith("127.")
        names = {*settings.allowed_hosts, *(LOOPBACK_NAMES if local else ())}
        if local:
            names.add(settings.host)
        self._names = frozenset(name.lower() for name in names) if names and "*" not in names else None

    def check(self, request: Request) -> None:
        """421 where the Host header is not one of ours; without --allowed-host only a server on loopback looks."""
        host = request.headers.get("host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if self._names is not None and host and name.lower() not in self._names:
            message = f"this server is not {name[:128]!r}; if it is to be, start it with --allowed-host"
            raise ApiError(421, message, code="host_not_allowed")


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("x-api-key", "")  # as Anthropic's clients send it


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


class Admission:
    """How much may be under way at once, in all and for one caller."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most = settings.max_queue
        self._most_each = settings.max_per_key
        self._running: Counter[str] = Counter()
        self.total = 0
        self.refused = 0

    @contextmanager
    def enter(self, caller: Caller, weight: int = 1) -> Iterator[None]:
        """Count a request, or tell its sender to come back later. A weight is its number of choices."""
        running = self._running[caller.name]
        full = None
        if self.total + weight > self._most:
            full = f"{self.total} turns are under way, as many as this server takes"
        elif running + weight > self._most_each:
            full = f"your key has {running} turns under way, the most it may"
        if full is not None:
            self.refused += 1
            raise ApiError(429, full, code="busy", retry=1)
        self.total += weight
        self._running[caller.name] += weight
        try:
            yield
        finally:
            self.total -= weight
            self._running[caller.name] -= weight
            if not self._running[caller.name]:
                del self._running[caller.name]
