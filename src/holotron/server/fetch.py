"""Images by URL: what a client asks for is fetched only from allowed hosts, at public addresses, within limits."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import httpcore
import httpx

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL_LENGTH = 8192
SHOWN = 200
PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {"User-Agent": "holotron", "Accept": "image/*", "Accept-Encoding": "identity", "Connection": "close"}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Special uses that `is_global` takes for ordinary addresses, at least in some versions of Python.
_SPECIAL = [
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20")
]


class FetchRefused(ValueError):
    """A URL that the policy does not allow."""


class FetchFailed(ValueError):
    """An image that was allowed and could not be had: network, status, kind, size or time."""


@dataclass(frozen=True)
class FetchPolicy:
    """What may be fetched. Without allowed hosts, nothing is.

    A host is a name such as "images.example.com", "*.example.com" for every name below that one, or "*" for any public
    host. It stands for the usual port of http and https; "example.com:8443" for that port only. `allow_private` lifts
    the rule that addresses are public, for hosts that are allowed.
    """

    allowed_hosts: tuple[str, ...] = ()
    max_bytes: int = 20 * 1024 * 1024
    seconds: float = 10.0
    allow_private: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.allowed_hosts, str):
            raise ValueError(f"allowed_hosts is a tuple of hosts, not the text {self.allowed_hosts!r}")
        if self.max_bytes < 1 or not self.seconds > 0:
            raise ValueError(f"max_bytes and seconds must be above 0; they are {self.max_bytes} and {self.seconds}")
        for pattern in self.allowed_hosts:
            _read_pattern(pattern)

    def allows(self, url: httpcore.URL) -> bool:
        """Whether a pattern covers the host and port of a URL whose host is spelled plainly."""
        host = url.host.decode()
        usual = PORTS[url.scheme.decode()]
        return any(
            url.port == (usual if port is None else port)
            and (name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:])))
            for name, port in map(_read_pattern, self.allowed_hosts)
        )


class Fetcher:
    """Fetches images under a policy. Close it with `aclose`.

    A host name is resolved once, and the addresses that were checked are the ones that are connected to.
    """

    def __init__(
        self, policy: FetchPolicy, resolve: Resolver | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self.policy = policy
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
            network_backend=_CheckedBackend(policy, resolve or _resolve),
            max_keepalive_connections=0,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def fetch(self, url: str) -> bytes:
        """The bytes behind a URL. FetchRefused says which rule is against it, FetchFailed what went wrong."""
        target = self._check(url)
        host = target.host.decode()[:SHOWN]
        headers = [("Host", _authority(target)), *HEADERS.items()]
        try:
            async with asyncio.timeout(self.policy.seconds):
                async with self._pool.stream("GET", target, headers=headers) as response:
                    self._check_answer(response, url, host)
                    return await self._read(response, host)
        except TimeoutError:
            raise FetchFailed(f"{host} took more than {self.policy.seconds:g} seconds to send the image") from None
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise FetchFailed(f"{host} cannot be fetched from: {reason[:SHOWN]}") from error

    def _check(self, url: str) -> httpcore.URL:
        """The URL as it will be asked for."""
        if not self.policy.allowed_hosts:
            raise FetchRefused(
                "fetching images by URL is off on this server; send the image itself as a data: URL, or have the host "
                "allowed where the server is started (--image-host)"
            )
        scheme = match[1].lower() if (match := _SCHEME.match(url)) else ""
        if scheme not in PORTS:
            raise FetchRefused(
                f"an image URL starts with http:// or https://, not with {scheme + ':' if scheme else 'this'}"
            )
        if len(url) > MAX_URL_LENGTH:
            raise FetchRefused(f"the image URL has {len(url)} characters; {MAX_URL_LENGTH} are the most allowed")
        try:
            parsed = httpx.URL(url)
            host = _plain_host(parsed)
        except (httpx.InvalidURL, ValueError):  # what they say can quote a password
            raise FetchRefused(f"the image URL is not a valid {scheme} URL") from None
        target = httpcore.URL(
            scheme=scheme,
            host=host,
            port=PORTS[scheme] if parsed.port is None else parsed.port,
            target=parsed.raw_path,
        )
        if not host:
            raise FetchRefused("the image URL names no valid host")
        if parsed.userinfo:
            raise FetchRefused(f"the image URL carries a user name or password for {host[:SHOWN]}; leave them out")
        if _NUMBER.fullmatch(host.rpartition(".")[2]) and _address(host) is None:
            raise FetchRefused(
                f"{host[:SHOWN]} is not a host; an IPv4 address is four decimal numbers, such as 192.0.2.1"
            )
        if not self.policy.allows(target):
            shown = _authority(target)[:SHOWN]
            raise FetchRefused(f"{shown} is not among the hosts that this server may fetch images from")
        return target

    def _check_answer(self, response: httpcore.Response, url: str, host: str) -> None:
        if response.status in REDIRECTS:
            raise FetchRefused(f"{host} redirects to {_redirect_host(response, url)}; redirects are not followed")
        if response.status != 200:
            raise FetchFailed(f"{host} answers with status {response.status}")
        if any(encoding.lower() != "identity" for encoding in _header(response, "content-encoding")):
            raise FetchFailed(f"{host} sends the image compressed; only images as they are can be taken")
        kinds = [kind.partition(";")[0].strip().lower() for kind in _header(response, "content-type")]
        if len(kinds) != 1 or not (kinds[0].startswith("image/") or kinds[0] == "application/octet-stream"):
            shown = ", ".join(kinds)[:SHOWN] or "no content type"
            raise FetchFailed(f"{host} sends {shown}; an image has the type image/* or application/octet-stream")
        for length in _header(response, "content-length"):
            if length.isdecimal() and int(length[:20]) > self.policy.max_bytes:
                raise self._too_large(host)

    async def _read(self, response: httpcore.Response, host: str) -> bytes:
        data = bytearray()
        async for piece in response.aiter_stream():
            data += piece
            if len(data) > self.policy.max_bytes:
                raise self._too_large(host)
        return bytes(data)

    def _too_large(self, host: str) -> FetchFailed:
        return FetchFailed(f"the image at {host} is larger than {self.policy.max_bytes:,} bytes, the most allowed")


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves, checks and connects in one step: no second look-up can give another address."""

    def __init__(self, policy: FetchPolicy, resolve: Resolver) -> None:
        self._policy = policy
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = [host] if _address(host) is not None else await self._resolve(host, port)
        # One bad address is enough: a name that has both kinds is an attempt to be lucky with the order.
        if not self._policy.allow_private and not all(map(_is_public, map(ipaddress.ip_address, addresses))):
            raise FetchRefused(f"{host[:SHOWN]} has an address that is not public; images come from public hosts only")
        failure: httpcore.NetworkError | httpcore.TimeoutException = httpcore.ConnectError("it has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(
                    address, port, self._policy.seconds / len(addresses), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolve(host: str, port: int) -> list[str]:
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner_addresses(address)
        if inner:
            return all(map(_is_public, inner))
        if address not in _GLOBAL_IPV6:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner_addresses(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address only wraps."""
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)] if address in _NAT64 else []


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _plain_host(url: httpx.URL) -> str:
    """The host in one spelling: lower case, IDNA, no final dot, no brackets; nothing where it is not a valid one."""
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if "%" in host or not (url.port is None or 0 < url.port < 65536):
        return ""
    if (address := _address(host)) is not None:
        return str(address)
    return host if _NAME.fullmatch(host) else ""


def _authority(url: httpcore.URL) -> str:
    host = url.host.decode()
    host = f"[{host}]" if ":" in host else host
    return host if url.port == PORTS[url.scheme.decode()] else f"{host}:{url.port}"


def _read_pattern(pattern: str) -> tuple[str, int | None]:
    """The host of a pattern, in the spelling of `_plain_host`, and its port."""
    wildcard, rest = ("*.", pattern[2:]) if pattern.startswith("*.") else ("", pattern)
    if rest == "*" or rest.startswith("*:"):
        wildcard, rest = "*", "any" + rest[1:]
    if isinstance(_address(rest), ipaddress.IPv6Address):
        rest = f"[{rest}]"
    try:
        # A scheme of no usual port, so that a port is never left out for being the usual one.
        url = httpx.URL(f"pattern://{rest}")
        host = _plain_host(url)
    except (httpx.InvalidURL, ValueError):
        host = ""
    if not host or url.raw_path != b"/" or rest.endswith("/") or url.userinfo or url.fragment:
        raise ValueError(f"{pattern!r} is not a host to allow; write example.com, *.example.com, example.com:8443 or *")
    return ("*" if wildcard == "*" else wildcard + host), url.port


def _header(response: httpcore.Response, name: str) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in response.headers if key.lower() == name.encode()]


def _redirect_host(response: httpcore.Response, url: str) -> str:
    try:
        host = _plain_host(httpx.URL(url).join(_header(response, "location")[0]))
    except (httpx.InvalidURL, ValueError, IndexError):
        host = ""
    return host[:SHOWN] or "an unreadable address"
