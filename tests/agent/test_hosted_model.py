"""One model for many processes: who asks through the host hears what the model says, and nobody can break it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import torch

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply
from holotron.agent.hosted_model import MAX_FRAME_BYTES, ModelHandle, ModelHost
from holotron.agent.in_process import EngineModel
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.engine.images import prepare_decoded, prepare_image
from holotron.model.errors import ImageError, ModelError
from holotron.model.image import DecodedFile, load_image
from holotron.model.initialize import random_model
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.model.text.conversation import ConversationWriter
from holotron.model.tiling import ImageProcessor
from tests.tiny_checkpoint import TINY

from .conversations import SCHEMA, ask_from_a_process, converse, converse_all, keep_asking, screenshot, through

STYLE = ChatOptions(max_tokens=24, temperature=1.0, seed=1, keep_images=None)


@pytest.fixture(scope="module")
def model():
    tokenizer = byte_tokenizer(TINY)
    prompts = ConversationWriter(tokenizer, ChatTemplate(DEFAULT_TEMPLATE.read_text()), TINY)
    config = EngineConfig(slots=33, pages=400, page_size=16, max_context=2000)
    with Engine(random_model(TINY), config, tokenizer) as engine:
        yield EngineModel(engine, prompts, STYLE)


@contextmanager
def processes(target, *arguments_of_each):
    """Worker processes that end with the test, whatever comes."""
    started = [multiprocessing.get_context("spawn").Process(target=target, args=a) for a in arguments_of_each]
    with ExitStack() as stack:
        for process in started:
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        yield started


def wait_until(true, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_answers_are_those_of_the_model_itself(model):
    direct = asyncio.run(converse(model, 1))
    with ModelHost(model) as host:
        assert host.handle().name == model.name
        hosted = asyncio.run(through(pickle.loads(pickle.dumps(host.handle())), lambda it: converse(it, 1)))
    assert hosted == direct  # texts, token ids, log-probabilities, counts
    assert all(reply.token_ids and reply.logprobs for reply in hosted)
    assert model.engine.sessions() == []


def test_two_processes_at_once(model):
    queue = multiprocessing.get_context("spawn").Queue()
    halves = [tuple(range(6)), tuple(range(6, 12))]
    with ModelHost(model) as host, processes(ask_from_a_process, *((host.handle(), half, queue) for half in halves)):
        found = dict(queue.get(timeout=120) for _ in halves)
    expected = asyncio.run(converse_all(model, range(12)))
    for hosted, direct in zip([*found[halves[0]], *found[halves[1]]], expected, strict=True):
        # What else is in a batch moves log-probabilities by a rounding.
        same = [
            [replace(reply, logprobs=None, model_logprobs=None) for reply in replies] for replies in (hosted, direct)
        ]
        assert same[0] == same[1]
    assert model.engine.sessions() == []


def test_a_killed_process_leaves_nothing_behind(model):
    asked = multiprocessing.get_context("spawn").Event()
    with ModelHost(model) as host, processes(keep_asking, (host.handle(), asked)) as (child,):
        assert asked.wait(120)
        assert len(model.engine.sessions()) == 4
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not model.engine.sessions())
        assert asyncio.run(through(host.handle(), lambda it: converse(it, 1)))


class Slow:
    """Answers when it is told to, or never."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.cancelled = threading.Event()
        self.closed = 0
        self.schemas: list[object] = []

    async def open(self):
        return self

    async def say(self, new, schema=None):
        self.schemas.append(schema)
        if new[0].text == "fail":
            raise ModelError("the prompt is wrong")
        if new[0].text == "unavailable":
            raise ModelUnavailable("no memory is left")
        if new[0].text == "strange":
            raise type("Strange", (Exception,), {})("of a class that no other process knows")
        if new[0].text == "now":
            return Reply("yes")
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def close(self):
        self.closed += 1


def say(chat, text: str, schema=None):
    return chat.say([Message("user", text)], schema)


def test_errors_travel():
    async def ask(hosted):
        chat = await hosted.open()
        with pytest.raises(ModelUnavailable, match="no memory is left"):
            await say(chat, "unavailable")
        with pytest.raises(ModelError, match="the prompt is wrong"):
            await say(chat, "fail")
        with pytest.raises(ModelUnavailable, match="Strange: of a class"):
            await say(chat, "strange")
        assert (await say(chat, "now")).text == "yes"
        await chat.close()
        with pytest.raises(ModelUnavailable, match="closed"):
            await say(chat, "now")

    with ModelHost(Slow()) as host:
        asyncio.run(through(host.handle(), ask))


def test_a_schema_is_sent_once():
    model = Slow()

    async def ask(hosted):
        chats = [await hosted.open() for _ in range(2)]
        for chat in chats * 2:
            await say(chat, "now", dict(SCHEMA))
        await say(chats[0], "now", {"type": "object"})

    with ModelHost(model) as host:
        asyncio.run(through(host.handle(), ask))
    assert [schema == SCHEMA for schema in model.schemas] == [True] * 4 + [False]
    assert len({id(schema) for schema in model.schemas}) == 2


def test_who_gives_up_is_not_computed_for_any_more():
    model = Slow()

    async def give_up(hosted):
        chat = await hosted.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(say(chat, "?"), 0.05)
        await asyncio.to_thread(model.cancelled.wait, 60)
        assert (await say(chat, "now")).text == "yes"

    with ModelHost(model) as host:
        asyncio.run(through(host.handle(), give_up))
    assert model.cancelled.is_set()
    assert model.closed == 1


class SlowToOpen(Slow):
    async def open(self):
        self.asked.set()
        await asyncio.sleep(0.2)
        return self


def test_who_gives_up_while_a_conversation_opens_leaves_none_behind():
    model = SlowToOpen()

    async def give_up(hosted):
        opening = asyncio.create_task(hosted.open())
        await asyncio.to_thread(model.asked.wait, 60)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await asyncio.to_thread(wait_until, lambda: model.closed)

    with ModelHost(model) as host:
        asyncio.run(through(host.handle(), give_up))
    assert model.closed == 1


def test_a_host_that_is_closed_says_so_at_once():
    model = Slow()
    host = ModelHost(model)

    async def wait(hosted):
        chat = await hosted.open()
        asking = asyncio.create_task(say(chat, "?"))
        await asyncio.to_thread(model.asked.wait, 60)
        await asyncio.to_thread(host.close)
        with pytest.raises(ModelUnavailable, match="slow is gone"):
            await asking
        with pytest.raises(ModelUnavailable, match="slow is gone"):
            await say(chat, "now")
        with pytest.raises(ModelUnavailable):
            await hosted.open()
        await chat.close()

    with host:
        asyncio.run(through(host.handle(), wait))
    with pytest.raises(ModelUnavailable, match="slow is not served"):
        asyncio.run(host.handle().connect())
    assert model.closed == 1


HOST = """
import sys, time
from holotron.agent.baselines import RandomModel
from holotron.agent.hosted_model import ModelHost
with ModelHost(RandomModel()) as host:
    print(host.handle().path, flush=True)
    time.sleep(600)
"""


def test_a_host_that_is_killed_is_noticed_at_once():
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    handle = ModelHandle(host.stdout.readline().strip(), "random")

    async def wait(hosted):
        chat = await hosted.open()
        assert (await say(chat, "?")).text
        host.kill()
        host.wait()
        with pytest.raises(ModelUnavailable):
            await say(chat, "?")

    with host:
        asyncio.run(through(handle, wait))


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<I", MAX_FRAME_BYTES + 1),
        struct.pack("<I", 5) + b"\x80\x05abc",
        struct.pack("<I", 0),
        *(struct.pack("<I", len(data)) + data for data in map(pickle.dumps, (7, ("sing", 1)))),
    ],
    ids=["huge", "garbage", "empty", "no tuple", "unknown"],
)
def test_a_frame_that_is_none_harms_only_its_sender(frame):
    with ModelHost(Slow()) as host, socket.socket(socket.AF_UNIX) as sender:
        sender.connect(host.handle().path)
        sender.settimeout(60)
        sender.sendall(frame)
        with sender.makefile("rb") as answer:
            request, error = pickle.loads(answer.read()[4:])  # up to the end: the connection is closed
        assert request is None
        assert isinstance(error, ModelUnavailable)

        async def ask(hosted):
            return await say(await hosted.open(), "now")

        assert asyncio.run(through(host.handle(), ask)).text == "yes"


def test_nobody_else_can_enter():
    with ModelHost(Slow()) as host:
        folder = os.path.dirname(host.handle().path)
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)


def test_screenshots_come_decoded_and_are_the_same(model, monkeypatch):
    """The pixels are decoded where the browser is; a file that is no image is refused by the model."""
    engine, seen = model.engine, []
    prepare = engine.prepare_image

    async def noted(image):
        seen.append((image, await prepare(image)))
        return seen[-1][1]

    monkeypatch.setattr(engine, "prepare_image", noted)

    async def main(hosted):
        chat = await hosted.open()
        await chat.say([Message("user", "look", screenshot(3))])
        with pytest.raises(ImageError):
            await chat.say([Message("user", "look", b"no image")])
        return await prepare(screenshot(3))

    with ModelHost(model) as host:
        expected = asyncio.run(through(host.handle(), main))
    [(image, prepared)] = seen
    assert isinstance(image, DecodedFile)
    assert image == screenshot(3)
    assert prepared.key == expected.key
    assert torch.equal(prepared.again().patches, expected.image.patches)
    on_device = ImageProcessor(replace(TINY.vision, mode="dynamic"), on_device=True)
    as_pixels = prepare_decoded(image, on_device)
    assert as_pixels.keys == prepare_image(lambda: on_device(load_image(screenshot(3)))).keys
    assert torch.equal(as_pixels.image.pixels, as_pixels.again().pixels)
