"""The rules themselves, and the egress proxy that enforces them, without a browser."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotron.env.browser.environment import complete_address, read_keys
from holotron.env.errors import ActionFailed
from holotron.env.safety.egress_proxy import NOT_ALLOWED, SUCCEEDED, UNREACHABLE, UNSUPPORTED, EgressProxy
from holotron.env.safety.policy import OriginPattern, SafetyPolicy, is_private_address
from tests.env.site import Site


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("https://example.com", "https://example.com/a?b#c", True),
        ("https://example.com", "https://EXAMPLE.com:443/", True),
        ("https://example.com", "https://example.com./", True),
        ("https://example.com", "wss://example.com/socket", True),
        ("https://example.com", "http://example.com/", False),
        ("https://example.com", "ws://example.com/", False),
        ("https://example.com", "https://example.com:444/", False),
        ("https://example.com", "https://www.example.com/", False),
        ("https://example.com", "https://example.com.evil.org/", False),
        ("https://example.com", "https://example.com@evil.org/", False),
        ("https://example.com", "https://evil.org/https://example.com", False),
        ("https://example.com", "https://evilexample.com/", False),
        ("https://*.example.com", "https://www.example.com/", True),
        ("https://*.example.com", "https://a.b.example.com/", True),
        ("https://*.example.com", "https://example.com/", False),
        ("https://*.example.com", "https://.example.com/", False),
        ("https://*.example.com", "https://evilexample.com/", False),
        ("http://localhost:*", "http://localhost:8123/", True),
        ("http://localhost:8000", "http://localhost:8001/", False),
        ("http://[::1]:80", "http://[::1]/", True),
        ("https://bücher.example", "https://xn--bcher-kva.example/", True),
        ("https://*.bücher.example", "https://www.xn--bcher-kva.example/", True),
        ("https://straße.example", "https://xn--strae-oqa.example/", True),
        ("https://straße.example", "https://strasse.example/", False),
        ("https://💩.example", "https://xn--ls8h.example/", True),
        ("https://xn--bcher-kva.example", "https://bücher.example/", True),
        ("https://example.com", "https://example.com\\@evil.org/", False),
        ("https://example.com", "https://exa\tmple.com/", False),
        ("https://example.com", "https://example.com:99999/", False),
        ("https://example.com", "https:///", False),
        ("https://example.com", "https:example.com", False),
    ],
)
def test_patterns(pattern: str, url: str, matches: bool) -> None:
    assert (SafetyPolicy([pattern]).refusal(url) is None) == matches


@pytest.mark.parametrize(
    "text", ["example.com", "ftp://example.com", "https://a/b", "https://*", "https://a.*.com", "https://*x.com", ""]
)
def test_patterns_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        OriginPattern.parse(text)
    with pytest.raises(ValueError, match="is no origin"):
        SafetyPolicy([text])


def test_a_single_text_is_not_a_list() -> None:
    with pytest.raises(ValueError, match="list of origins"):
        SafetyPolicy("https://example.com")


@pytest.mark.parametrize("url", ["data:,x", "blob:https://example.com/1", "file:///a", "JavaScript:1", "about:config"])
@pytest.mark.parametrize("policy", [SafetyPolicy(), SafetyPolicy(["https://example.com"])])
def test_schemes(policy: SafetyPolicy, url: str) -> None:
    assert policy.refusal(url) is not None
    assert policy.refusal("about:blank") is None


PRIVATE = """
    127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 224.0.0.1 255.255.255.255
    ::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: [::1]
    fec0::1 feff::1 64:ff9b:1::1 64:ff9b:1:ffff::808:808
"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_private_addresses(address: str) -> None:
    assert is_private_address(address)
    assert SafetyPolicy().refusal_of_address("example.com", 80, address)
    assert SafetyPolicy(allow_private=True).refusal_of_address("example.com", 80, address) is None


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "example.com", "1.2.3"])
def test_other_addresses(address: str) -> None:
    assert not is_private_address(address)


def test_private_hosts_are_allowed_by_name() -> None:
    policy = SafetyPolicy(["http://localhost:8000", "http://10.0.0.5", "https://intranet.example"])
    assert policy.refusal("http://localhost:8000/") is None
    assert policy.refusal_of_address("localhost", 8000, "127.0.0.1") is None
    assert policy.refusal_of_address("10.0.0.5", 80, "10.0.0.5") is None
    assert policy.refusal_of_address("intranet.example", 443, "10.0.0.6")
    assert SafetyPolicy().refusal("http://localhost:8000/")
    assert SafetyPolicy().refusal("http://a.localhost/")


def test_private_hosts_are_allowed_one_by_one() -> None:
    plain = SafetyPolicy(["https://intranet.example"])
    refusal = plain.refusal_of_address("intranet.example", 443, "10.0.0.6")
    assert refusal is not None
    assert "--allow-private intranet.example" in refusal
    assert "--allow-private localhost" in (SafetyPolicy().refusal("http://localhost:8000/") or "")
    policy = SafetyPolicy(allow_private=["Intranet.example.", "bücher.example", "10.0.0.5", "[::1]"])
    for host in ("intranet.example", "xn--bcher-kva.example", "10.0.0.5", "::1"):
        assert policy.refusal_of_address(host, 80, "10.0.0.5") is None
    assert policy.refusal_of_address("other.example", 80, "10.0.0.5")
    assert policy.refusal("http://localhost/")
    for wrong in (["http://intranet"], ["intranet:80"], [""]):
        with pytest.raises(ValueError, match="is no host"):
            SafetyPolicy(allow_private=wrong)


@given(st.text())
def test_no_text_breaks_the_policy(text: str) -> None:
    for policy in (SafetyPolicy(), SafetyPolicy(["https://example.com"])):
        policy.refusal(text)
        policy.refusal(f"https://{text}")


def test_addresses_as_people_write_them() -> None:
    assert complete_address(" example.com/a ") == "https://example.com/a"
    assert complete_address("localhost:8000/a") == "http://localhost:8000/a"
    assert complete_address("127.0.0.1:8000") == "http://127.0.0.1:8000"
    assert complete_address("example.com:8000") == "https://example.com:8000"
    assert complete_address("http://example.com") == "http://example.com"
    assert complete_address("javascript:alert(1)") == "javascript:alert(1)"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Enter", "Enter"),
        ("return", "Enter"),
        ("a", "a"),
        ("A", "A"),
        ("ctrl+A", "Control+a"),
        ("Control+Shift+t", "Control+Shift+T"),
        ("cmd+c", "Meta+c"),
        ("+", "+"),
        ("ctrl++", "Control++"),
        ("esc", "Escape"),
        ("f5", "F5"),
        ("shift", "Shift"),
        ("é", "é"),
    ],
)
def test_keys(text: str, keys: str) -> None:
    assert read_keys(text) == keys


@pytest.mark.parametrize("text", ["", "ctrl+", "ab", "a+b", "hyper+a"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ActionFailed, match="is no key"):
        read_keys(text)


# ---- the egress proxy ----


async def ask(proxy: EgressProxy, request: bytes) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.address.rpartition(":")[2]))
    writer.write(bytes([5, 1, 0]) + request)
    assert await reader.readexactly(2) == bytes([5, 0])
    return (await reader.readexactly(10))[1], reader, writer


def by_name(host: str, port: int, command: int = 1) -> bytes:
    return bytes([5, command, 0, 3, len(host)]) + host.encode() + port.to_bytes(2, "big")


async def test_the_egress_proxy(good: Site, evil: Site) -> None:
    good.pages["/"] = "hello"
    refused: list[str] = []
    policy = SafetyPolicy([good.origin, "http://nowhere.invalid"])
    proxy = EgressProxy(policy, lambda place, rule: refused.append(place))
    await proxy.start()
    code, reader, writer = await ask(proxy, by_name("127.0.0.1", good.port))
    assert code == SUCCEEDED
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"hello")
    numeric = bytes([5, 1, 0, 1, 127, 0, 0, 1])
    assert (await ask(proxy, numeric + good.port.to_bytes(2, "big")))[0] == SUCCEEDED
    assert (await ask(proxy, numeric + evil.port.to_bytes(2, "big")))[0] == NOT_ALLOWED
    assert (await ask(proxy, by_name("localhost", good.port)))[0] == NOT_ALLOWED
    assert (await ask(proxy, by_name("127.0.0.1", good.port, command=3)))[0] == UNSUPPORTED
    assert (await ask(proxy, by_name("nowhere.invalid", 80)))[0] == UNREACHABLE
    port = int(proxy.address.rpartition(":")[2])
    await proxy.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert refused == [f"127.0.0.1:{evil.port}", f"localhost:{good.port}"]
    assert evil.connections == 0


async def test_the_gate_asks_for_a_name_once(good: Site, evil: Site) -> None:
    """Between the check and the connection nobody can answer differently."""
    asked = 0

    async def resolve(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1"]

    proxy = EgressProxy(SafetyPolicy(allow_private=True), lambda place, rule: None, resolve)
    await proxy.start()
    assert (await ask(proxy, by_name("example.com", good.port)))[0] == SUCCEEDED
    await proxy.close()
    assert asked == 1
