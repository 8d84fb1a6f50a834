"""Nothing that a client can send keeps the event loop busy: others are answered meanwhile.

Measured in CPU time of the loop's own thread, callback by callback: what else the machine does makes no difference.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from PIL import Image

from holotron.model.image import image_size
from holotron.server.bodies import SMALL, is_quick

from .edge import hostile_bodies, measure_cancelling
from .hostile import CHAT, TEXT

LONGEST = 0.1


def png(size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise(size, 50).save(buffer, "PNG")
    return buffer.getvalue()


BODIES = hostile_bodies("data:image/png;base64," + base64.b64encode(png((320, 240))).decode())


@contextmanager
def longest_callback(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU seconds of whatever the loop ran."""
    seen = [0.0]
    run = asyncio.Handle._run
    done = threading.Event()

    def timed(handle: asyncio.Handle) -> None:
        if handle._loop is not loop:
            return run(handle)
        began = time.thread_time()
        run(handle)
        seen.append(time.thread_time() - began)
        return None

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.Handle, "_run", timed)
        yield seen
        loop.call_soon_threadsafe(done.set)
        assert done.wait(60)


@pytest.mark.parametrize("name", BODIES)
def test_no_body_keeps_the_loop_busy(live, http, name, monkeypatch):
    body = BODIES[name]()
    path = TEXT if b'"prompt"' in body[:20] else CHAT
    with longest_callback(live.loop, monkeypatch) as seen:
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert answer.json()["error"]["param"]
    assert len(seen) > 2
    assert max(seen) < LONGEST


def test_a_body_of_too_many_objects_is_not_kept(live, http, monkeypatch):
    """It is refused where it is received, and no process has to read it."""
    asked = []
    monkeypatch.setattr(live.state.bodies, "_ask", lambda *asking: asked.append(asking))
    body = BODIES["500 messages of 4,096 empty parts"]()
    refused = http.post(CHAT, content=body, headers={"content-type": "application/json"}).json()["error"]
    assert (refused["param"], refused["code"]) == ("body", "too_large")
    assert not asked


def test_tokenizing_keeps_the_loop_free(live, http, monkeypatch):
    with longest_callback(live.loop, monkeypatch) as seen:
        refused = http.post("/tokenize", json={"prompt": "word " * 2**20})
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        counted = http.post("/tokenize", json={"prompt": "word " * 20_000}).json()["count"]
    assert counted == 100_000
    assert max(seen) < LONGEST


def test_long_bodies_are_told_from_those_with_long_images():
    def asking(url: str, more: str = "") -> bytes:
        return json.dumps({"messages": [{"content": [{"image_url": {"url": url}}]}], "more": more}).encode()

    image = "data:image/png;base64," + "A" * 2**21
    assert is_quick(asking(image))
    assert not is_quick(asking(image, "x" * SMALL))
    assert not is_quick(asking(image.replace("A", ",")))
    assert not is_quick(asking("data:" + "\\" * 2**20))
    assert not is_quick(asking("x" * 2**20))
    assert not is_quick(asking("data:image/png;base64," + "A" * 2**25))


def test_the_size_of_a_png_comes_from_its_header(monkeypatch):
    """Also of one that has no orientation in front of its pixels."""
    file = png((640, 480))

    def decode(*_: object) -> None:
        raise AssertionError("the image was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)
    assert image_size(file) == (640, 480)


def test_a_dying_reader_costs_one_answer(live, http):
    body = BODIES["text of 5 MiB"]()
    headers = {"content-type": "application/json"}
    assert http.post(CHAT, content=body, headers=headers).status_code == 400

    live.state.bodies._process.kill()
    codes = [http.post(CHAT, content=body, headers=headers).json()["error"]["code"] for _ in range(3)]
    assert set(codes[:1]) <= {"too_large", "context_length_exceeded"}  # the one that it had begun
    assert codes[-1] == "context_length_exceeded"


def test_streams_that_are_left_are_let_go_at_once(live):
    """In less time than the others get as many tokens in as they do in a second: a clock that goes with the machine."""
    measured = measure_cancelling(live.url, 40, lambda _: None, tokens=3000, loaded=0.2)
    report = asyncio.run(asyncio.wait_for(measured, 60))
    assert report["left"] == 20
    assert report["tokens_of_others"] < 100


def test_the_lag_of_the_loop_is_told(http):
    lines = http.get("/metrics").text.splitlines()
    assert any(line.startswith("holotron:event_loop_lag_seconds_count") for line in lines)
