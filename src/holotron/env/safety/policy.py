"""What a browser may reach: patterns of origins, and the rule that is broken when it may not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

import idna

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
# A WebSocket belongs to the origin of the page address it would have.
PAGE_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
BLANK = ("about:blank", "about:srcdoc", "")
# Browsers drop or rewrite these before they read an address, other readers do not: an address with one is made to be
# misread.
AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# A name, or an address of either internet.
HOST = re.compile(r"[^\s/:@?#*]+|[0-9a-f:.]+")
PRIVATE_HINT = "--allow-private {} (SafetyPolicy.allow_private) would let it be visited"
# Local by their standards, and not to every version of `ipaddress`: site-local addresses and NAT64 inside a network.
LOCAL_NETWORKS = (ipaddress.IPv6Network("fec0::/10"), ipaddress.IPv6Network("64:ff9b:1::/48"))


@dataclass(frozen=True)
class OriginPattern:
    """Origins such as `https://example.com`, `https://*.example.com` or `http://localhost:*`.

    `*.` stands for one or more labels and does not include the name itself. Without a port, the scheme's own is meant.
    International names may be written as they are read or as they are sent (`xn--…`).
    """

    scheme: str
    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> OriginPattern:
        match = re.fullmatch(r"(https?)://(\[[0-9a-f:.]+\]|[^/:?#@\s\[\]]+)(?::(\d+|\*))?/?", text.strip().lower())
        if match is None or "*" in match[2].removeprefix("*."):
            raise ValueError(
                f"{text!r} is no origin; write it like https://example.com, https://*.example.com or http://localhost:*"
            )
        scheme, port = match[1], match[3]
        wild = "*." if match[2].startswith("*.") else ""
        host = plain_host(match[2].removeprefix("*."))
        if not host:
            raise ValueError(f"{text!r} is no origin: {match[2]!r} is no name that a host can have")
        host = wild + host
        if port == "*":
            return cls(scheme, host, None)
        return cls(scheme, host, int(port) if port else DEFAULT_PORTS[scheme])

    def matches(self, scheme: str, host: str, port: int) -> bool:
        return self.scheme == PAGE_SCHEMES.get(scheme) and self.matches_place(host, port)

    def matches_place(self, host: str, port: int) -> bool:
        """Whether some address with this host and port could match."""
        if self.port is not None and port != self.port:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return host == self.host

    @property
    def names_private_host(self) -> bool:
        """Whether the pattern itself spells out this machine or a private address."""
        return is_local_name(self.host) or is_private_address(self.host)


@dataclass(frozen=True)
class SafetyPolicy:
    """Which origins a browser may talk to.

    allowed_origins: patterns of `OriginPattern`; None allows every public http(s) origin. allow_private: whether names
    may lead to this machine or a private network, or which hosts may. Otherwise only hosts that the patterns spell out
    (`http://localhost:8000`, `http://10.0.0.5`) lead there, so a public name that resolves to a private address is
    refused.
    """

    allowed_origins: Sequence[str] | None = None
    allow_private: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        if isinstance(self.allowed_origins, str):
            raise ValueError(f"allowed_origins is a list of origins, not {self.allowed_origins!r}")
        if self.allowed_origins is not None:
            object.__setattr__(self, "allowed_origins", tuple(self.allowed_origins))
        if isinstance(self.allow_private, str):
            raise ValueError(f"allow_private is True, False or a list of hosts, not {self.allow_private!r}")
        if not isinstance(self.allow_private, bool):
            hosts = tuple(map(plain_host, self.allow_private))
            if wrong := [host for host in hosts if not HOST.fullmatch(host)]:
                raise ValueError(f"{wrong[0]!r} is no host; write it like intranet.example or 10.0.0.5, without a port")
            object.__setattr__(self, "allow_private", hosts)
        _ = self.patterns  # a pattern that cannot be read is an error now, not at the first page

    @cached_property
    def patterns(self) -> tuple[OriginPattern, ...] | None:
        if self.allowed_origins is None:
            return None
        return tuple(OriginPattern.parse(origin) for origin in self.allowed_origins)

    def refusal(self, url: str) -> str | None:
        """The rule that a page at this address would break, or None if it may be shown."""
        if url in BLANK:
            return None
        scheme = url.partition(":")[0].lower()
        if scheme not in PAGE_SCHEMES:
            return f"pages with {scheme}: addresses are not allowed, only http and https"
        try:
            parts = urlsplit(url)
            host, port = plain_host(parts.hostname or ""), parts.port or DEFAULT_PORTS[scheme]
        except ValueError:
            return "the address cannot be read"
        if AMBIGUOUS.search(url) or not host:
            return "the address can be read in two ways"
        if self.patterns is not None and not any(p.matches(scheme, host, port) for p in self.patterns):
            return f"{show_origin(scheme, host, port)} is not among the allowed origins"
        return self.refusal_of_place(host, port)

    def refusal_of_place(self, host: str, port: int) -> str | None:
        """The rule that any connection to this host and port would break, as far as the name tells."""
        if self.patterns is not None and not any(p.matches_place(host, port) for p in self.patterns):
            return f"{host}:{port} is not among the allowed origins"
        if (is_local_name(host) or is_private_address(host)) and not self._private_allowed(host, port):
            return f"{host} is on this machine or a private network; {PRIVATE_HINT.format(host)}"
        return None

    def refusal_of_address(self, host: str, port: int, address: str) -> str | None:
        """The rule that a connection breaks when its host turns out to be at this address."""
        if is_private_address(address) and not self._private_allowed(host, port):
            return f"{host} resolves to {address} on this machine or a private network; {PRIVATE_HINT.format(host)}"
        return None

    def _private_allowed(self, host: str, port: int) -> bool:
        named = self.allow_private if isinstance(self.allow_private, bool) else host in self.allow_private
        return named or any(p.names_private_host and p.matches_place(host, port) for p in self.patterns or ())


def plain_host(host: str) -> str:
    """A host in the one spelling that patterns use."""
    host = host.lower().strip("[]").rstrip(".")
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        pass  # browsers still take some names of the older standard, such as those with emoji
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""


def origin_of(url: str) -> str:
    """The origin of an address, without the name and password that it may hold."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def show_origin(scheme: str, host: str, port: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" if port == DEFAULT_PORTS.get(scheme) else f"{scheme}://{name}:{port}"


def is_local_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def is_private_address(text: str) -> bool:
    """Whether this is an address, and not one of the public internet. Names are not addresses."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        # Addresses of the old internet in a new spelling are judged by what they lead to.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner:
            return is_private_address(str(inner))
        if any(address in network for network in LOCAL_NETWORKS):
            return True
    return not address.is_global or address.is_multicast
