"""Turns and sessions for callers on an event loop: nothing waits, and one hop to the engine's thread is enough."""

import asyncio

import pytest
import torch

from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.requests import FinishEvent, StartEvent, TokenEvent
from holotron.engine.sampling_params import SamplingParams
from tests.engine.driver import GREEDY, greedy_continuation
from tests.engine.outside import LONG, check, engine_for
from tests.model.tiny import tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model("M*-", dtype=torch.float64)


class Heard:
    """Events by choice, and when all choices are at their end."""

    def __init__(self, choices=1):
        self.events = []
        self.tokens = {choice: [] for choice in range(choices)}
        self.finished = {}
        self.over = asyncio.Event()

    def __call__(self, choice, event):
        self.events.append(event)
        if isinstance(event, TokenEvent):
            self.tokens[choice] += event.token_ids
        elif isinstance(event, FinishEvent):
            self.finished[choice] = event.reason
            if len(self.finished) == len(self.tokens):
                self.over.set()


async def turn(engine, token_ids, sampling=GREEDY, choices=1, **where):
    heard = Heard(choices)
    await engine.submit(token_ids, sampling, heard, choices=choices, **where)
    await heard.over.wait()
    return heard


async def test_a_turn_in_a_session_and_without_one(model):
    with engine_for(model) as engine:
        session = await asyncio.wrap_future(engine.by_id.open())
        heard = await turn(engine, [1, 2, 3], session_id=session)
        assert heard.events[0] == StartEvent(3, 0)
        assert heard.tokens[0] == greedy_continuation(model, [1, 2, 3], 5)
        heard = await turn(engine, [4], session_id=session)
        assert heard.events[0] == StartEvent(9, 8)
        first = await turn(engine, [9, 8, 7], pool="a")
        request = [9, 8, 7, *first.tokens[0], 6]
        for pool, cached in (("b", 0), ("a", 8)):
            heard = await turn(engine, request, pool=pool)
            assert heard.events[0] == StartEvent(9, cached)
            assert heard.tokens[0] == greedy_continuation(model, request, 5)
        check(engine)


async def test_choices_share_their_prompt(model):
    drawn = SamplingParams(max_tokens=6, temperature=1.0, seed=3, ignore_eos=True)
    with engine_for(model) as engine:
        heard = await turn(engine, [1, 2, 3, 4, 5], drawn, choices=4, pool="a")
        assert sum(isinstance(event, StartEvent) for event in heard.events) == 1
        assert isinstance(heard.events[0], StartEvent)
        assert heard.finished == dict.fromkeys(range(4), "length")
        assert len({tuple(tokens) for tokens in heard.tokens.values()}) > 1
        assert engine.counters()["computed_tokens"] == 5 + 4 * 5
        check(engine)


async def test_a_refused_turn_says_why_and_has_no_events(model):
    with engine_for(model) as engine:
        heard = Heard()
        session = await asyncio.wrap_future(engine.by_id.open())
        running = engine.submit([1], SamplingParams(max_tokens=200, ignore_eos=True), Heard(), session_id=session)
        await running
        for error, tokens, where in (
            (SessionClosed, [1], {"session_id": "nobody"}),
            (SessionBusy, [1], {"session_id": session}),
            (TooLong, [1] * 300, {}),
            (TooLong, [1] * 300, {"choices": 3}),
            (EngineError, [1, 999], {"choices": 2}),
        ):
            with pytest.raises(error):
                await engine.submit(tokens, GREEDY, heard, **where)
        running.cancel()
        await asyncio.sleep(0.05)
        assert heard.events == []
        assert [info.id for info in engine.sessions()] == [session]
        check(engine)


async def test_a_turn_may_be_cancelled_before_it_has_begun(model):
    with engine_for(model, max_context=6000, pages=2000) as engine:
        heard = Heard(2)
        submission = engine.submit([1, 2], LONG, heard, choices=2)
        submission.cancel()
        await submission
        await asyncio.wait_for(heard.over.wait(), 5)
        assert set(heard.finished.values()) == {"cancelled"}
        check(engine)


async def test_what_requests_leave_behind_is_closed_in_time(model):
    with engine_for(model) as engine:
        kept = engine.open_session()
        for first in (10, 20, 30):
            await turn(engine, [first, 1, 2], pool="a")
        stats = await asyncio.wrap_future(engine.tidy(600, 10))
        assert (stats.values["kept"], stats.values["sessions"]) == (3, 4)
        assert sum(stats.residency.values()) == 4
        stats = await asyncio.wrap_future(engine.tidy(600, 2))
        assert stats.values["kept"] == 2
        assert engine.continue_or_open([10, 1, 2, 3], pool="a")[1] == 0, "the oldest went"
        engine.update_weights({})
        stats = await asyncio.wrap_future(engine.tidy(600, 10))
        assert stats.values["kept"] == 0, "no request goes on from what other weights have computed"
        assert kept.id in [info.id for info in engine.sessions()]
        await turn(engine, [1, 2], pool="a")
        assert (await asyncio.wrap_future(engine.tidy(0, 10))).values["kept"] == 0
        check(engine)


async def test_sessions_by_id(model):
    with engine_for(model) as engine:
        by_id = engine.by_id

        async def done(future):
            return await asyncio.wrap_future(future)

        session = await done(by_id.open(on_update="recompute"))
        await turn(engine, [1, 2, 3], session_id=session)
        forks = await done(by_id.fork(session, 2))
        assert (await done(by_id.describe(forks[0]))).tokens == 8
        await done(by_id.rollback(forks[0], 0, keep_prompt=True))
        assert (await done(by_id.describe(forks[0]))).tokens == 3
        await done(by_id.park(session))
        assert (await done(by_id.describe(session))).residency == "host"
        await done(by_id.resume(session))
        assert (await done(by_id.describe(session))).residency == "gpu"
        await done(by_id.close(session))
        with pytest.raises(SessionClosed):
            await done(by_id.describe(session))
        check(engine)
