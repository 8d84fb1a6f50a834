"""What is fetched arrives whole, and an answer that is wrong, too large or too slow is cut off."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from holotron.server.fetch import Fetcher, FetchFailed, FetchPolicy, FetchRefused

from .fetching import BODY, Answer, answer, get

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
    assert time.monotonic() - begin < 15


def test_slow_resolving_counts_too() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def run() -> None:
        async with aclosing(Fetcher(FetchPolicy(("*",), seconds=0.2), resolve)) as fetcher:
            await fetcher.fetch("http://slow.test/")

    with pytest.raises(FetchFailed, match="took more than"):
        asyncio.run(run())


async def test_https_checks_the_name_in_the_certificate(tmp_path: Path) -> None:
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

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    policy = FetchPolicy((f"*:{port}",), allow_private=True)
    async with aclosing(Fetcher(policy, resolve)) as fetcher:
        with pytest.raises(FetchFailed, match=r"self.signed"):
            await fetcher.fetch(f"https://a.test:{port}/")
    trusting = ssl.create_default_context(cafile=names[1])
    async with server, aclosing(Fetcher(policy, resolve, trusting)) as fetcher:
        assert await fetcher.fetch(f"https://a.test:{port}/") == BODY
        with pytest.raises(FetchFailed, match="match"):
            await fetcher.fetch(f"https://b.test:{port}/")
