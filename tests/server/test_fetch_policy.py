"""A URL is fetched only where the policy allows it, at the address that was checked."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from holotron.server.fetch import Fetcher, FetchFailed, FetchPolicy, FetchRefused

from .fetching import BODY, PUBLIC, answer, get, refuse

# ---- which hosts ----


@pytest.mark.parametrize(
    ("pattern", "host", "allowed"),
    [
        ("images.example.com:{port}", "images.example.com", True),
        ("images.example.com:{port}", "IMAGES.Example.com.", True),
        ("images.example.com:{port}", "example.com", False),
        ("images.example.com:{port}", "images.example.com.evil.net", False),
        ("images.example.com", "images.example.com", False),  # not the usual port
        ("images.example.com:8443", "images.example.com", False),
        ("*.example.com:{port}", "a.b.example.com", True),
        ("*.example.com:{port}", "example.com", False),
        ("*.example.com:{port}", "badexample.com", False),
        ("*:{port}", "anything.net", True),
        ("*", "anything.net", False),
        ("BÜCHER.example:{port}", "xn--bcher-kva.example", True),
        ("xn--bcher-kva.example:{port}", "bücher.example", True),
    ],
)
def test_a_host_must_match(pattern: str, host: str, allowed: bool) -> None:
    url = f"http://{host}:{{port}}/"
    if allowed:
        got, requests, resolved = get(answer(), url, [pattern])
        assert got == [BODY]
        assert len(resolved) == 1
        assert requests[0].split("\r\n")[1].startswith(f"Host: {resolved[0]}:")
    else:
        assert "not among the hosts" in refuse(url, pattern, allow_private=True)


def test_without_allowed_hosts_fetching_is_off() -> None:
    assert "is off" in refuse("http://127.0.0.1:{port}/", allow_private=True)
    assert FetchPolicy().allowed_hosts == ()


def test_the_usual_port_may_be_written() -> None:
    for url in ("http://example.com:80/", "https://example.com:443/", "https://example.com/"):
        assert "not public" in refuse(url, "example.com", addresses=["10.0.0.1"])
    for url in ("http://example.com:443/", "https://example.com:80/"):
        assert "not among" in refuse(url, "example.com")


@pytest.mark.parametrize(
    "pattern", ["", "a b", "a.*.com", "*.", "**", "http://a", "a/b", "a?", "u@a", "a:x", "a:0", "a:99999", "*a", "a/"]
)
def test_a_pattern_that_is_no_host_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match="host to allow"):
        FetchPolicy((pattern,))


def test_a_policy_checks_its_numbers() -> None:
    for wrong in ({"max_bytes": 0}, {"seconds": 0.0}, {"seconds": float("nan")}, {"allowed_hosts": "*"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FetchPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a/b",
        "data:image/png;base64,AAAA",
        "gopher://a/",
        "javascript:1",
        "//a/b",
        "a/b.png",
        " http://a/",
        "",
        "://",
    ],
)
def test_only_http_and_https_are_fetched(url: str) -> None:
    assert "http:// or https://" in refuse(url, "*", allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///x",
        "http:x",
        "http:/a/b",
        "http://a b/",
        "http://a..b/",
        "http://a:99999/",
        "http://a:port/",
        "http://a\n/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://a%2eb/",
        "http://" + "a" * 64 + ".com/",
        "http://a/" + "x" * 9000,
    ],
)
def test_a_broken_url_is_refused(url: str) -> None:
    assert len(refuse(url, "*", allow_private=True)) < 300


def test_messages_keep_credentials_and_long_urls_to_themselves() -> None:
    for url in (
        "http://user:secret@example.com/",
        "http://secret@example.com/",
        "http://user:secret/",
        "http://user:secret@exa mple.com:x/",
        "http://example.com\\@secret@evil.com/",
    ):
        assert "secret" not in refuse(url, "*", allow_private=True)
    assert "user name or password" in refuse("http://user@example.com/", "*")
    long = ".".join(["a" * 60] * 4)
    message = refuse(f"http://{long}/{'b' * 500}", "example.com")
    assert long[:100] in message
    assert long not in message


# ---- which addresses ----

NOT_PUBLIC = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:0a00:1::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:db8::1",
    "2001:20::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "4000::1",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    message = refuse("http://example.com/", "*", addresses=[PUBLIC, address])
    assert "example.com" in message
    assert "not public" in message
    assert address not in message.replace(
        "example.com", ""
    )  # what the internal network looks like is no one's business
    if "%" not in address:
        host = f"[{address}]" if ":" in address else address
        assert "not public" in refuse(f"http://{host}/", "*")


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_a_public_address_is_connected_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    async def connect(self: object, host: str, *rest: object) -> None:
        connected.append(host)
        raise OSError("no network here")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    with pytest.raises(FetchFailed, match=r"example\.com .*no network here"):
        get(answer(), "http://example.com/", ["*"], [address], allow_private=False)
    assert connected == [address]


async def test_a_name_is_resolved_once_and_its_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    async def connect(self: object, host: str, *rest: object) -> None:
        connected.append(host)
        raise OSError("no network here")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    resolved = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append((host, port))
        return [PUBLIC] if len(resolved) == 1 else ["127.0.0.1"]

    async with aclosing(Fetcher(FetchPolicy(("*",)), resolve)) as fetcher:
        with pytest.raises(FetchFailed):
            await fetcher.fetch("https://rebind.example.com/")
        assert (resolved, connected) == ([("rebind.example.com", 443)], [PUBLIC])
        with pytest.raises(FetchRefused, match="not public"):
            await fetcher.fetch("https://rebind.example.com/")
        assert connected == [PUBLIC]


def test_the_next_address_is_tried_where_one_fails() -> None:
    assert get(answer(), "http://a.test:{port}/", ["*:{port}"], ["127.0.0.2", "127.0.0.1"])[0] == [BODY]


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0X7F.0.0.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.0x1",
        "0x",
    ],
)
def test_other_spellings_of_ipv4_are_refused(host: str) -> None:
    for dot in ("", "."):
        message = refuse(f"http://{host}{dot}/", "*", allow_private=True)
        assert "four decimal numbers" in message or "not a valid" in message


def test_an_unknown_name_fails() -> None:
    with pytest.raises(FetchFailed, match=r"nowhere\.test .*no address"):
        get(answer(), "http://nowhere.test:{port}/", ["*:{port}"], [])

    async def run() -> None:
        async with aclosing(Fetcher(FetchPolicy(("*",)))) as fetcher:
            await fetcher.fetch("http://does-not-exist.invalid/")

    with pytest.raises(FetchFailed, match=r"does-not-exist\.invalid"):
        asyncio.run(run())
