"""Secrets: typed where they belong, refused elsewhere, and never shown."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.secrets import COLOUR, Login, Secret, Secrets, split_mentions
from holotron.env.task import Task
from tests.env.driver import World
from tests.env.site import Site

VALUE = "s3cret & <pass>/wörd"


def secrets_for(*origins: str) -> Secrets:
    return Secrets({"password": Secret(VALUE, origins)})


def assert_hidden(thing: Any) -> None:
    for spelling in (VALUE, "s3cret"):
        assert spelling not in repr(thing)


def quoted(value: str) -> list[str]:
    """What browsers, servers and programs make of a value, inside of something longer."""
    data = value.encode()
    encoders = [
        lambda text: text,
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        lambda text: re.sub("%..", lambda code: code[0].lower(), quote(quote(text, safe=""), safe="")),
        lambda text: quote(text, safe="!#$%&'()*+,/:;=?@[]~{}|^\\\"<>`"),  # as in a hash
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(json.dumps(text, ensure_ascii=False)),
        lambda text: html.escape(html.escape(text)),
        lambda text: "".join(f"&#{ord(character)};" for character in text),
        lambda text: "".join(f"&#x{ord(character):X};" for character in text),
        lambda text: "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H")),
        lambda text: "".join(f"%u{unit:04X}" for unit in memoryview(text.encode("utf-16-le")).cast("H")),
    ]
    found = [encode(value) for encode in encoders]
    return found + [base64.b64encode(before + data + b"!").decode() for before in (b"a", b"ab", b"abc")]


@settings(max_examples=25)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=6, max_size=12))
@example("p&s\"<'>/\\%+ü🦊")
def test_no_spelling_gets_through(value: str) -> None:
    secrets = Secrets({"password": Secret(value, ["https://example.com"])})
    for text in quoted(value):
        found = secrets.redact(f"https://example.com/?a=1&b= {text} #end")
        assert found.startswith("https://example.com/?a=1&b= ")
        assert found.endswith(" #end")
        inside = found.removeprefix("https://example.com/?a=1&b= ").removesuffix(" #end").strip('"\\')
        assert re.fullmatch(r"[A-Za-z0-9+/]{0,4}\{\{secret:password\}\}[A-Za-z0-9+/=]{0,4}", inside), (text, inside)


def test_redaction_follows_blanks_and_short_values() -> None:
    secrets = Secrets({"a": Secret(" two  words\n", ["https://example.com"]), "b": Secret("abc", ["https://x.com"])})
    assert secrets.redact("<title>two words</title> two%20+words") == "<title>{{secret:a}}</title> {{secret:a}}"
    assert secrets.redact("YWJj, xYWJj") == "{{secret:b}}, xYWJj"
    long = Secrets({"a": Secret("word", ["https://x.com"]), "b": Secret("password", ["https://x.com"])})
    assert long.redact("password word") == "{{secret:b}} {{secret:a}}"


def test_redaction_knows_the_spellings() -> None:
    secrets = secrets_for("https://example.com")
    for text in (
        VALUE,
        "s3cret%20%26%20%3Cpass%3E/w%C3%B6rd",
        "s3cret+%26+%3Cpass%3E%2Fw%C3%B6rd",
        "s3cret &amp; &lt;pass&gt;/wörd",
        "s3cret & <pass>/w\\u00f6rd",
    ):
        assert secrets.redact(f"a {text} b") == "a {{secret:password}} b"
    assert Secrets().redact("anything") == "anything"


def test_secrets_do_not_print_themselves() -> None:
    secrets = secrets_for("https://example.com")
    assert_hidden(secrets)
    assert_hidden(secrets["password"])


def test_secrets_need_origins_and_names() -> None:
    with pytest.raises(ValueError, match="origins"):
        Secret(VALUE, [])
    with pytest.raises(ValueError, match="no origin"):
        Secret(VALUE, ["example.com"])
    with pytest.raises(ValueError, match="must not be empty"):
        Secret("", ["https://example.com"])
    with pytest.raises(ValueError, match="no name"):
        Secrets({"my password": Secret(VALUE, ["https://example.com"])})


def test_origins_of_secrets() -> None:
    secret = Secret(VALUE, ["https://example.com", "https://*.example.org"])
    assert secret.may_enter("https://example.com")
    assert secret.may_enter("https://login.example.org")
    for origin in ("http://example.com", "https://example.com:8443", "https://evil.com", "null", "", "https://x.com"):
        assert not secret.may_enter(origin)


def test_mentions() -> None:
    assert list(split_mentions("a{{secret:x}}b {{secret:y-1}}")) == [("a", None), ("", "x"), ("b ", None), ("", "y-1")]
    assert list(split_mentions("plain {{secret:}}")) == [("plain {{secret:}}", None)]


FORM = """<style>body { margin: 0; background: white } input { position: absolute; left: 10px; top: 10px; width: 300px;
  height: 40px; font-size: 20px } p { position: absolute; left: 10px; top: 100px; margin: 0 }</style>
<form action=/next><input name=q autofocus></form><p></p>"""


async def test_a_secret_is_typed_and_never_seen(world: World, good: Site) -> None:
    good.pages["/"] = f"""{FORM}<script>document.forms[0].q.addEventListener("input", event => {{
      document.title = event.target.value; document.querySelector("p").textContent = "you typed " + event.target.value;
      console.log(event.target.value); }})</script>"""
    good.pages["/next"] = "<title>next</title>"
    async with world.at(good.origin, secrets=secrets_for(good.origin)) as env:
        await env.type_text("me:{{secret:password}}!")
        seen = await env.observe()
        assert seen.title == "me:{{secret:password}}!"
        assert_hidden(seen)
        picture = Image.open(io.BytesIO(seen.image)).convert("RGB")
        assert picture.size == (500, 320)
        assert picture.getpixel((100, 30)) == COLOUR  # the field
        assert picture.getpixel((15, 105)) == COLOUR  # the text beside it
        assert picture.getpixel((400, 250)) == (255, 255, 255)
        await env.press("Enter")
        seen = await env.observe()
        assert seen.url == f"{good.origin}/next?q=me%3A" + "{{secret:password}}%21"
        assert_hidden(seen)
        assert_hidden(seen.tabs)
    assert any("s3cret" in hit for hit in good.hits)


SHOWN = """<style>body { margin: 0; font: 20px/30px sans-serif } div { height: 30px }
  #css::before { content: "s3cret &" } #css::after { content: " <pass>/wörd" } #caps { text-transform: uppercase }
  #inner { height: 60px; overflow: auto }
  #moved { transform: translate(200px, 0) } iframe { border: 0; display: block; height: 30px; width: 300px }</style>
<div id=split>s3<b>cret &amp;</b> <i>&lt;pass&gt;/w</i>örd</div><div id=shadow></div><div id=css></div>
<div id=caps>s3cret &amp; &lt;pass&gt;/wörd</div><div id=moved>s3cret &amp; &lt;pass&gt;/wörd</div>
<div id=inner><div></div><div></div><div>s3cret &amp; &lt;pass&gt;/wörd</div></div>
<iframe srcdoc="<body style='margin: 0; font: 20px sans-serif'>s3cret &amp;amp; &amp;lt;pass&amp;gt;/wörd"></iframe>
<div id=free>nothing to hide</div><div style="height: 900px"></div>
<script>document.getElementById("shadow").attachShadow({mode: "closed"}).innerHTML =
    "s3<u>cret &amp; &lt;pass&gt;/wörd</u>";
  inner.scrollTop = 60; scrollTo(0, 10)</script>"""


async def test_no_way_of_showing_a_secret_gets_through(world: World, good: Site) -> None:
    """Split over elements, in a closed shadow tree, by style sheets, moved, scrolled or in a frame: all is covered."""
    good.pages["/"] = SHOWN
    async with world.at(good.origin, secrets=secrets_for(good.origin)) as env:
        picture = Image.open(io.BytesIO((await env.observe()).image)).convert("RGB")
        for line, row in enumerate(["split", "shadow", "css", "caps", "moved", "", "inner"]):
            for x in (20, 150):
                place = (x + (200 if row == "moved" else 0), 30 * line + 5)
                assert not row or picture.getpixel(place) == COLOUR, row
        assert picture.getpixel((50, 30 * 7 - 10 + 10)) == COLOUR, "frame"
        free = picture.crop((0, 30 * 8 - 6, 500, 30 * 9 - 14))
        covered = sum(count for count, colour in free.getcolors() or () if colour == COLOUR)
        assert covered < 100  # its letters have such pixels, too


async def test_the_agent_is_told_names_and_origins(world: World, good: Site) -> None:
    good.pages["/"] = FORM
    async with world.env(good.origin, secrets=secrets_for(good.origin, "https://login.example")) as env:
        seen = await env.reset(Task(text="Log in.", url=f"{good.origin}/"))
        (told,) = seen.notices
        assert "{{secret:password}}" in told
        assert f"only pages of {good.origin} and https://login.example get it" in told
        assert_hidden(seen)
        assert (await env.observe()).notices == (told,)  # reset looked, and the agent looks for the first time
        assert (await env.observe()).notices == ()


async def test_a_login_answers_servers_that_ask_by_http(world: World, good: Site) -> None:
    """The name and the secret go to the secret's own origin, and to no other."""
    other = f"http://localhost:{good.port}"
    asked: list[str] = []
    good.pages["/"] = lambda: (
        (200, {}, "<title>in</title>")
        if good.headers.get("authorization")
        else (401, {"www-authenticate": 'Basic realm="x"'}, "<title>out</title>")
    )
    secrets, login = secrets_for(good.origin), Login("ada", "password")
    async with world.at(good.origin, other, secrets=secrets, login=login) as env:
        seen = await env.observe()
        assert (seen.title, seen.url) == ("in", f"{good.origin}/")
        assert_hidden(seen)
        asked.append(good.headers["authorization"])
        await env.goto(f"{other}/")
        seen = await env.observe()
        assert seen.title == "out"
        assert seen.notices[0].startswith(f"{other} asks for a name and a password, and got none; begin at")
    assert base64.b64decode(asked[0].removeprefix("Basic ")).decode() == f"ada:{VALUE}"


@pytest.mark.parametrize("wrong", [False, True])
async def test_a_login_that_is_missing_or_wrong_is_told(world: World, good: Site, wrong: bool) -> None:
    good.pages["/"] = (401, {"www-authenticate": 'Basic realm="x"'}, "<title>out</title>")
    given = {"secrets": secrets_for(good.origin), "login": Login("ada", "password")} if wrong else {}
    async with world.at(good.origin, **given) as env:
        notices = (await env.observe()).notices
    missing = f"{good.origin} asks for a name and a password, and got none; begin at an address with them: http://N"
    assert notices[-1].startswith(f"{good.origin} refused the name and password of its address" if wrong else missing)
    assert VALUE not in str(notices)


async def test_a_secret_stays_in_its_origin(world: World, good: Site) -> None:
    good.pages["/"] = f"{FORM}<title>here</title>"
    async with world.at(good.origin, secrets=secrets_for("https://bank.example")) as env:
        with pytest.raises(Refused, match="may not be typed into a page of") as refused:
            await env.type_text("{{secret:password}}")
        assert_hidden(refused.value)
        with pytest.raises(ActionFailed, match="no secret named 'other'"):
            await env.type_text("{{secret:other}}")
        assert await env._driver.tabs.current.page.evaluate("document.forms[0].q.value") == ""


@pytest.mark.parametrize("sandbox", ["", "sandbox='allow-scripts allow-forms'"])
async def test_a_frame_has_its_own_origin(world: World, good: Site, sandbox: str) -> None:
    """A page may not have what its frame may have, nor the other way round; a sandboxed frame has no origin."""
    other = f"http://localhost:{good.port}"
    good.pages["/frame"] = FORM
    good.pages["/"] = (
        f"<body style='margin: 0'><iframe {sandbox} src='{other}/frame' width=450 height=250 frameborder=0>"
    )
    for allowed in (good.origin, other):
        async with world.at(good.origin, other, secrets=secrets_for(allowed)) as env:
            await env.click(100, 30)
            if allowed == other and not sandbox:
                await env.type_text("{{secret:password}}")
                seen = await env.observe()
                picture = Image.open(io.BytesIO(seen.image)).convert("RGB")
                assert picture.getpixel((100, 30)) == COLOUR
            else:
                with pytest.raises(Refused, match="may not be typed"):
                    await env.type_text("{{secret:password}}")
            frame = env._driver.tabs.current.page.frames[1]
            typed = await frame.evaluate("document.forms[0].q.value")
            assert typed == (VALUE if allowed == other and not sandbox else "")


async def test_a_secret_is_not_carried_over_by_the_clipboard(world: World, good: Site) -> None:
    good.pages["/"] = FORM
    other = f"http://localhost:{good.port}"
    async with world.at(good.origin, other, secrets=secrets_for(good.origin)) as env:
        await env.type_text("{{secret:password}}")
        await env.press("ctrl+a")
        await env.press("ctrl+c")
        await env.goto(f"{other}/")
        await env.press("ctrl+v")
        typed = await env._driver.tabs.current.page.evaluate("document.forms[0].q.value")
        assert typed == "{{secret:password}}"


async def test_a_page_cannot_read_what_looks_for_secrets(world: World, good: Site) -> None:
    """The search for secrets on the screen runs where the page's own versions of functions do not count."""
    good.pages["/"] = f"""{FORM}<script>
      String.prototype.includes = function (text) {{ document.title = "caught " + text; return false; }};
      Array.prototype.some = function () {{ document.title = "caught " + this; return false; }};
      document.createTreeWalker = () => document.title = "caught";
    </script>"""
    good.pages["/login"] = FORM
    login = f"http://localhost:{good.port}"
    async with world.env(good.origin, login, secrets=secrets_for(login)) as env:
        await env.goto(f"{login}/login")
        await env.type_text("{{secret:password}}")
        await env.goto(f"{good.origin}/")
        await env.observe()
        assert "caught" not in (await env.observe()).title
