"""A URL is fetched only where the policy allows it, at the address that was checked, and within every limit."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from holotron.server.fetch import Fetcher, FetchFailed, FetchPolicy, FetchRefused

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

BODY = b"\x89PNG and so on"
PUBLIC = "93.184.215.14"
CONTEXT = ssl.create_default_context()


def answer(body: bytes = BODY, status: str = "200 OK", length: int | None = None, **headers: str) -> Answer:
    fields = {"Content_Type": "image/png", "Content_Length": str(len(body) if length is None else length), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)

    return write


def get(
    write: Answer,
    url: str = "http://127.0.0.1:{port}/image.png",
    hosts: Sequence[str] = ("127.0.0.1:{port}",),
    addresses: Sequence[str] = ("127.0.0.1",),
    max_bytes: int = 1000,
    seconds: float = 5.0,
    allow_private: bool = True,
    times: int = 1,
) -> tuple[list[bytes], list[str], list[str]]:
    """What was fetched, the requests that a local server saw, and the names that were resolved."""
    requests: list[str] = []
    resolved: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await write(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def resolve(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        # A second look-up would get the address that rebinding is after.
        return addresses if resolved.count(host) == 1 or times > 1 else ["127.0.0.1"]

    async def run() -> list[bytes]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        policy = FetchPolicy(tuple(host.format(port=port) for host in hosts), max_bytes, seconds, allow_private)
        try:
            async with server, Fetcher(policy, resolve, CONTEXT) as fetcher:
                return [await fetcher.fetch(url.format(port=port)) for _ in range(times)]
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

    return asyncio.run(run()), requests, resolved


def refuse(url: str, *hosts: str, addresses: Sequence[str] = (PUBLIC,), allow_private: bool = False) -> str:
    with pytest.raises(FetchRefused) as caught:
        get(answer(), url, hosts, addresses, allow_private=allow_private)
    return str(caught.value)


# ---- what is fetched ----


def test_an_allowed_image_is_fetched() -> None:
    got, requests, resolved = get(answer(), "http://127.0.0.1:{port}/a%20b?c=d#e")
    assert got == [BODY]
    assert resolved == []
    head, *fields = requests[0].strip().split("\r\n")
    assert head == "GET /a%20b?c=d HTTP/1.1"
    assert "accept-encoding: identity" in [field.lower() for field in fields]
    assert fields[0].startswith("Host: 127.0.0.1:")


@pytest.mark.parametrize("kind", ["image/webp", "IMAGE/PNG; charset=binary", "application/octet-stream"])
def test_images_and_plain_bytes_are_taken(kind: str) -> None:
    assert get(answer(Content_Type=kind))[0] == [BODY]


def test_a_chunked_answer_is_put_together() -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    assert get(write)[0] == [b"abcde"]


def test_no_cookie_is_kept() -> None:
    got, requests, _ = get(answer(Set_Cookie="secret=1; Path=/"), times=2)
    assert got == [BODY, BODY]
    assert not any("cookie" in request.lower() for request in requests)


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert get(answer())[0] == [BODY]


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


def test_a_name_is_resolved_once_and_its_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    async def connect(self: object, host: str, *rest: object) -> None:
        connected.append(host)
        raise OSError("no network here")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    resolved = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append((host, port))
        return [PUBLIC] if len(resolved) == 1 else ["127.0.0.1"]

    async def run() -> None:
        async with Fetcher(FetchPolicy(("*",)), resolve) as fetcher:
            with pytest.raises(FetchFailed):
                await fetcher.fetch("https://rebind.example.com/")
            assert (resolved, connected) == ([("rebind.example.com", 443)], [PUBLIC])
            with pytest.raises(FetchRefused, match="not public"):
                await fetcher.fetch("https://rebind.example.com/")
            assert connected == [PUBLIC]

    asyncio.run(run())


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
        async with Fetcher(FetchPolicy(("*",))) as fetcher:
            await fetcher.fetch("http://does-not-exist.invalid/")

    with pytest.raises(FetchFailed, match=r"does-not-exist\.invalid"):
        asyncio.run(run())


# ---- what comes back ----


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_only_its_host_is_named(status: int) -> None:
    with pytest.raises(FetchRefused, match=r"redirects to inner\.example\.com; redirects are not followed") as caught:
        get(answer(b"", f"{status} Away", Location="http://me:secret@inner.example.com/path?token=1"))
    assert "secret" not in str(caught.value)
    assert "path" not in str(caught.value)


def test_a_chain_of_redirects_ends_at_its_first_link() -> None:
    with pytest.raises(FetchRefused, match=r"redirects to 127\.0\.0\.1"):
        get(answer(b"", "302 Found", Location="/image.png"))
    for location in ("http://[", ""):
        with pytest.raises(FetchRefused, match="unreadable"):
            get(answer(b"", "302 Found", Location=location))


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (answer(status="404 Not Found"), "status 404"),
        (answer(status="206 Partial Content"), "status 206"),
        (answer(status="304 Not Modified", body=b""), "status 304"),
        (answer(Content_Type="text/html"), "text/html"),
        (answer(Content_Type="imagery/png"), "imagery/png"),
        (answer(Content_Type=""), "no content type"),
        (answer(Content_Type="image/png\r\nContent-Type: text/html"), "text/html"),
        (answer(gzip.compress(b"x" * 500), Content_Encoding="gzip"), "compressed"),
        (answer(Content_Encoding="identity, br"), "compressed"),
        (answer(Transfer_Encoding="gzip, chunked", Content_Length=""), "cannot be fetched"),
        (answer(length=1001), "larger than 1,000 bytes"),
        (answer(length=10**19), "larger than 1,000 bytes"),
        (answer(length=500), "cannot be fetched"),  # closes before it
        (answer(Content_Length="nonsense"), "cannot be fetched"),
        (answer(b"x" * 1001, Content_Length=""), "larger than 1,000 bytes"),
        (answer(b"\0" * 300_000, status="200 " + "x" * 300_000), "cannot be fetched"),
    ],
)
def test_a_wrong_answer_fails_with_its_reason(write: Answer, reason: str) -> None:
    with pytest.raises(FetchFailed, match=reason) as caught:
        get(write)
    assert "127.0.0.1" in str(caught.value)


def test_bytes_after_the_announced_length_are_left() -> None:
    assert get(answer(b"x" * 5000, length=7))[0] == [b"x" * 7]


def test_an_endless_body_is_cut_off() -> None:
    sent = 0

    async def write(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
        while sent < 2**30:
            writer.write(b"x" * 2**16)
            sent += 2**16
            await writer.drain()

    with pytest.raises(FetchFailed, match="larger than"):
        get(write, max_bytes=2**20)
    assert sent < 2**27


async def _drip(writer: asyncio.StreamWriter, start: bytes) -> None:
    writer.write(start)
    for _ in range(1000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b""]
)
def test_a_slow_drip_ends_with_the_time(start: bytes) -> None:
    begin = time.monotonic()
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1 took more than 0.3 seconds"):
        get(lambda writer: _drip(writer, start), seconds=0.3)
    assert time.monotonic() - begin < 3


def test_slow_resolving_counts_too() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def run() -> None:
        async with Fetcher(FetchPolicy(("*",), seconds=0.2), resolve) as fetcher:
            await fetcher.fetch("http://slow.test/")

    with pytest.raises(FetchFailed, match="took more than"):
        asyncio.run(run())


def test_https_checks_the_name_in_the_certificate(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    names = [str(tmp_path / name) for name in ("key.pem", "certificate.pem")]
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a.test -addext subjectAltName=DNS:a.test"
    subprocess.run([*command.split(), "-keyout", names[0], "-out", names[1]], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(names[1], names[0])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer()(writer)
        await writer.drain()
        writer.close()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        policy = FetchPolicy((f"*:{port}",), allow_private=True)
        async with Fetcher(policy, resolve) as fetcher:
            with pytest.raises(FetchFailed, match=r"self.signed"):
                await fetcher.fetch(f"https://a.test:{port}/")
        trusting = ssl.create_default_context(cafile=names[1])
        async with server, Fetcher(policy, resolve, trusting) as fetcher:
            assert await fetcher.fetch(f"https://a.test:{port}/") == BODY
            with pytest.raises(FetchFailed, match="match"):
                await fetcher.fetch(f"https://b.test:{port}/")

    asyncio.run(run())
