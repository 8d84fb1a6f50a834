"""Sessions that move between engines: the same tokens as if they had stayed, or refused with nothing lost."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError, SessionBusy, SessionClosed
from holotron.engine.migration import SessionDamaged
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import Residency
from holotron.model.adapters import load_adapters
from tests.engine.driver import GREEDY
from tests.engine.invariants import check_loop
from tests.engine.outside import engine_for, png, screenshot, with_image
from tests.model.adapter_files import write_adapter
from tests.model.tiny import DENSE_TRANSFORMER, draw_tokens, tiny_model, tiny_qwen, tiny_vision

SAMPLED = SamplingParams(max_tokens=8, temperature=1.3, seed=11, ignore_eos=True)
KINDS = {
    "hybrid": {"pattern": "M-M*-"},
    "transformer": DENSE_TRANSFORMER,
    "seer": {"pattern": "M-*-", "vision": tiny_vision()},
    "qwen3-vl": tiny_qwen("qwen3"),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return tiny_model(**KINDS[request.param])


@pytest.fixture(scope="module")
def hybrid():
    return tiny_model()


def sent(engine: Engine, session_id: str) -> tuple[bytes, bytes]:
    """The head and the bytes of a session that has left."""
    left: list[tuple[bytes, bytes]] = []
    engine.send_session(session_id, lambda head, parts: left.append((head, b"".join(parts))))
    return left[0]


def received(engine: Engine, data: tuple[bytes, bytes]):
    head, rest = data

    def fill(buffers: list[memoryview]) -> None:
        start = 0
        for buffer in buffers:
            buffer[:] = rest[start : start + len(buffer)]
            start += len(buffer)
        assert start == len(rest)

    return engine.receive_session(head, fill)


async def prompt(engine: Engine, number: int):
    if engine.model.config.vision is None:
        return draw_tokens(11, seed=number), []
    prepared = await engine.prepare_image(png(screenshot(number)) if number % 2 else screenshot(number))
    return with_image(prepared)


def account(*engines: Engine) -> None:
    for engine in engines:
        check_loop(engine.loop)
        store = engine.loop.memory.offload_store
        assert store.host_used == sum(part.nbytes for part in store._on_host)


async def test_a_session_says_the_same_wherever_it_goes_on(model):
    async def life(*engines: Engine):
        """Four turns, each on the next engine, and going back in between."""
        session, said = engines[0].open_session("agent"), []
        for number, sampling in enumerate((GREEDY, SAMPLED, GREEDY, SAMPLED)):
            here = engines[number % len(engines)]
            if number and len(engines) > 1:
                before = engines[(number - 1) % len(engines)]
                computed = session.info.computed
                session = received(here, sent(before, "agent"))
                assert session.info.computed == computed
                with pytest.raises(SessionClosed):
                    before.session("agent")
                account(*engines)
            tokens, images = await prompt(here, number)
            said.append((await session.generate(tokens, sampling, images=images)).token_ids)
            if number == 2:
                session.rollback(-1, keep_prompt=True)
                said.append((await session.generate(sampling=SAMPLED)).token_ids)
        return said, session.token_ids, session.info

    with engine_for(model) as home:
        stayed = await life(home)
    with engine_for(model) as home, engine_for(model) as away:
        moved = await life(home, away)
        assert moved[:2] == stayed[:2]
        assert moved[2].turns == stayed[2].turns
        assert all(engine.counters()["recomputed_tokens"] == 0 for engine in (home, away))


async def test_checkpoints_and_logits_come_along(hybrid):
    with engine_for(hybrid) as home, engine_for(hybrid) as away:
        session = home.open_session()
        for number in range(2):
            await session.generate(draw_tokens(9, seed=number), GREEDY)
        expected = (await session.generate(draw_tokens(9, seed=5), GREEDY)).token_ids
        moved = received(away, sent(home, session.id))
        assert moved.info.residency is Residency.GPU
        moved.rollback(-1, keep_prompt=True)
        assert (await moved.generate(sampling=GREEDY)).token_ids == expected
        assert away.counters()["recomputed_tokens"] == 0
        assert away.counters()["computed_tokens"] == len(expected) - 1  # the first is drawn from the kept logits
        account(home, away)


async def test_a_parked_session_moves_and_stays_parked(hybrid):
    with engine_for(hybrid) as home, engine_for(hybrid) as away:
        session = home.open_session()
        await session.generate(draw_tokens(9), GREEDY)
        session.park()
        moved = received(away, sent(home, session.id))
        assert moved.info.residency is Residency.HOST
        assert (await moved.generate([7], GREEDY)).token_ids
        assert away.counters()["computed_tokens"] == 1 + GREEDY.max_tokens  # the end of the answer and what follows
        account(home, away)


@pytest.mark.parametrize("host_bytes", [0, 2**24])
async def test_without_room_for_its_memory_it_is_computed_again(hybrid, host_bytes):
    with engine_for(hybrid) as home, engine_for(hybrid, host_bytes=host_bytes) as away:
        session = home.open_session()
        first = await session.generate(draw_tokens(9), GREEDY)
        expected = home.open_session()
        await expected.generate([*draw_tokens(9)], GREEDY)
        wanted = await expected.generate([7], GREEDY)
        moved = received(away, sent(home, session.id))
        assert moved.token_ids == [*draw_tokens(9), *first.token_ids]
        assert (await moved.generate([7], GREEDY)).token_ids == wanted.token_ids
        back = received(home, sent(away, moved.id))
        assert back.length == len(draw_tokens(9)) + 1 + 2 * GREEDY.max_tokens
        account(home, away)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", -1),
        ("tokens", "many"),
        ("tokens", 2**40),
        ("memory", [2**40]),
        ("memory", "none"),
        ("checkpoints", [2**40]),
        ("checkpoints", list(range(1000))),
        ("computed", 2**40),
        ("dropped", -5),
        ("logits", [["nn", 64]]),
        ("logits", [["float64", 2**40]]),
        ("images", [[0, 1, "key", None, 0, 5]]),
        ("turns", [[1]]),
        ("on_update", "never"),
        ("adapter", "other"),
        ("id", ["a", "list"]),
    ],
)
async def test_a_head_that_makes_no_sense_takes_nothing(hybrid, name, value):
    with engine_for(hybrid) as home, engine_for(hybrid) as away:
        session = home.open_session()
        await session.generate(draw_tokens(40), GREEDY)
        head, rest = sent(home, session.id)
        for wrong in (json.loads(head) | {name: value}, {k: v for k, v in json.loads(head).items() if k != name}):
            with pytest.raises(EngineError):
                received(away, (json.dumps(wrong).encode(), rest))
        for words in (b"", b"[]", b"5", b"{", b"\xff", head[:-1]):
            with pytest.raises(SessionDamaged):
                received(away, (words, rest))
        account(away)
        assert away.counters()["host_bytes"] == 0
        assert received(away, (head, rest)).info.computed
        with pytest.raises(EngineError, match="exists already"):
            received(away, (head, rest))
        account(away)


@pytest.mark.parametrize(
    ("other", "config", "named"),
    [
        ({"pattern": "M-M-"}, {}, "model configuration"),
        ({}, {"page_size": 8}, "page size"),
        ({}, {"kv_dtype": "float16"}, "type of keys and values"),
    ],
)
async def test_another_model_or_memory_is_refused(hybrid, other, config, named):
    config_ = {k: getattr(torch, v) if isinstance(v, str) else v for k, v in config.items()}
    with engine_for(hybrid) as home, engine_for(tiny_model(**other), **config_) as away:
        session = home.open_session()
        await session.generate(draw_tokens(9), GREEDY)
        with pytest.raises(EngineError, match=f"whose {named} is"):
            received(away, sent(home, session.id))
        account(home, away)


async def test_a_session_that_cannot_leave_stays(hybrid):
    with engine_for(hybrid) as home:
        session, other = home.open_session(), home.open_session()
        first = await session.generate(draw_tokens(9), GREEDY)
        await other.generate(draw_tokens(9), GREEDY)

        def broken(*_: object) -> None:
            raise ConnectionError("the other end is gone")

        with pytest.raises(ConnectionError):
            home.send_session(session.id, broken)
        assert session.info.residency is Residency.GPU
        following = await session.generate([7], GREEDY)
        assert following.token_ids == (await other.generate([7], GREEDY)).token_ids
        assert first.token_ids
        running = asyncio.create_task(session.generate([7], SamplingParams(max_tokens=60, ignore_eos=True)))
        while not session.info.running:
            await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            home.send_session(session.id, lambda *_: None)
        await running
        account(home)


async def test_the_adapter_and_what_weights_change_go_along(tmp_path):
    def adapted(*names: str):
        model = tiny_model()
        write_adapter(model, tmp_path / "shop", 1)
        load_adapters(model, dict.fromkeys(names, tmp_path / "shop"))
        return model

    with engine_for(adapted("shop")) as home, engine_for(adapted("other", "shop")) as away:
        session, stays = (home.open_session(adapter="shop") for _ in range(2))
        for each in (session, stays):
            await each.generate(draw_tokens(9), GREEDY)
        moved = received(away, sent(home, session.id))
        assert (await moved.generate([7], GREEDY)).token_ids == (await stays.generate([7], GREEDY)).token_ids
        away.loop.epoch = 3
        session = away.open_session(on_update="recompute")
        await session.generate(draw_tokens(9), GREEDY)
        with pytest.raises(EngineError, match="weights of epoch 3"):
            received(home, sent(away, session.id))
        home.loop.epoch = 4
        session = away.open_session(on_update="recompute")
        await session.generate(draw_tokens(9), GREEDY)
        moved = received(home, sent(away, session.id))
        assert (moved.info.computed, moved.info.epoch) == (0, 4)
        account(home, away)
