"""Sessions awaited from outside say what the model says from scratch, and nobody's trouble is anybody else's."""

from __future__ import annotations

import asyncio
import time

import pytest
import torch

from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.grammar import Grammar
from holotron.engine.requests import FinishEvent, TokenEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import Residency
from tests.engine.driver import GREEDY, greedy_continuation
from tests.engine.outside import LONG, check, engine_for, settle
from tests.model.tiny import draw_tokens, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


# ---- turns -------------------------------------------------------------------------------------------------------


async def test_many_sessions_take_turns(model):
    async def agent(engine, seed):
        session, history = engine.open_session(f"agent {seed}"), []
        for turn in range(3):
            prompt = draw_tokens(3 + 5 * turn + seed, seed * 10 + turn)
            answer = await session.generate(prompt, GREEDY)
            assert answer.token_ids == greedy_continuation(model, history + prompt, 5)
            assert (answer.finish_reason, answer.stop, answer.text) == ("length", None, "")
            history += prompt + answer.token_ids
            assert session.token_ids == history
        return session, history

    with engine_for(model) as engine:
        lives = await asyncio.gather(*(agent(engine, seed) for seed in range(6)))
        for session, history in lives:
            info = session.info
            assert (info.id, info.tokens, info.computed) == (session.id, len(history), len(history) - 1)
            assert (info.residency, info.running, info.epoch, len(info.turns)) == (Residency.GPU, False, 0, 3)
            assert info.turns[-1].end == len(history)
            assert info.device_bytes > 0
        counters = engine.counters()
        new = sum(len(history) for _, history in lives)
        assert counters["appended_tokens"] + counters["generated_tokens"] == new
        assert counters["computed_tokens"] == new - 6  # the last token of each was never fed
        assert counters["redundancy"] == pytest.approx(1, abs=0.05)
        assert {info.id for info in engine.sessions()} == {f"agent {seed}" for seed in range(6)}
        assert engine.session("agent 3").token_ids == lives[3][1]
        check(engine)


@pytest.mark.parametrize("is_small", [True, False])
def test_a_small_model_takes_its_steps_on_one_core_and_prompts_on_all(model, monkeypatch, is_small):
    monkeypatch.setattr("holotron.engine.runner.SMALL_LAYER", 4_000_000 if is_small else 0)
    threads, forward = [], model.decoder.forward

    def watched(x, *rest, **more):
        threads.append((len(x), torch.get_num_threads()))
        return forward(x, *rest, **more)

    monkeypatch.setattr(model.decoder, "forward", watched)

    async def main():
        with engine_for(model) as engine:
            engine._call(lambda: torch.set_num_threads(2))
            session = engine.open_session()
            for _ in range(2):
                await session.generate([1, 2, 3], GREEDY)

    try:
        asyncio.run(main())
    finally:
        torch.set_num_threads(1)  # all threads begun later, of other tests too, take over what was last set anywhere
    # Of the second prompt's tokens the first is the answer's last, which was never fed.
    assert [length for length, _ in threads] == [3, 1, 1, 1, 1, 4, 1, 1, 1, 1]
    assert {used for length, used in threads if length > 1} == {2}
    assert {used for length, used in threads if length == 1} == {1 if is_small else 2}


async def test_append_compute_then_generate(model):
    with engine_for(model) as engine:
        session = engine.open_session()
        session.append([1, 2, 3])
        assert session.info.computed == 0
        await session.compute()
        assert session.info.computed == 3
        session.append([4])
        assert (await session.generate(sampling=GREEDY)).token_ids == greedy_continuation(model, [1, 2, 3, 4], 5)
        assert engine.counters()["computed_tokens"] == 8


async def test_starting_many_turns_takes_one_step_and_not_one_each(model):
    """Whoever waits to begin must not hold a thread: their number would bound how many begin per step."""
    with engine_for(model, slots=200, pages=600, prefill_tokens=4096) as engine:
        sessions = [engine.open_session() for _ in range(150)]
        await asyncio.gather(*(s.generate([i % 50, 3], GREEDY) for i, s in enumerate(sessions)))
        assert engine.counters()["steps"] <= 20


# ---- streams -----------------------------------------------------------------------------------------------------


async def test_events_come_one_by_one(model):
    with engine_for(model) as engine:
        events = [event async for event in engine.open_session().stream([5, 6], GREEDY)]
        assert [type(event) for event in events] == [TokenEvent] * 5 + [FinishEvent]
        assert [t for e in events[:-1] for t in e.token_ids] == greedy_continuation(model, [5, 6], 5)


async def test_leaving_a_stream_ends_its_generation(model):
    with engine_for(model, max_context=6000, pages=2000) as engine:
        session, other = engine.open_session(), engine.open_session()
        neighbour = asyncio.create_task(other.generate([9], SamplingParams(60, 0.0, ignore_eos=True)))
        async for event in session.stream([1, 2], LONG):
            assert isinstance(event, TokenEvent)
            if session.info.tokens > 6:
                break
        # No await in between: the session is free at once, not when somebody collects the stream.
        answer = await session.generate([3], GREEDY)
        said = session.token_ids
        assert said[-6] == 3
        assert answer.token_ids == greedy_continuation(model, said[:-5], 5)
        assert said[2:-6] == greedy_continuation(model, [1, 2], len(said) - 8)
        assert (await neighbour).token_ids == greedy_continuation(model, [9], 60)
        assert not session.info.running
        assert engine.counters()["running"] == 0
        check(engine)


async def test_a_whole_answer_wakes_its_caller_once(model, monkeypatch):
    with engine_for(model) as engine:
        events, post = [], engine._tell
        monkeypatch.setattr(engine, "_tell", lambda inbox, event: (events.append(event), post(inbox, event)))
        session = engine.open_session()
        answer = await session.generate([1, 2, 3], GREEDY)
        assert answer.token_ids == greedy_continuation(model, [1, 2, 3], 5)
        assert [event.reason for event in events] == ["length"]
        assert session.length == len(session.token_ids) == 8
        with pytest.raises(TooLong):
            await session.generate([1] * 10**5, GREEDY)
        assert session.length == 8


@pytest.mark.parametrize("moment", ["before", "at once", "later"])
async def test_a_cancelled_caller_ends_its_generation(model, moment):
    with engine_for(model, max_context=6000, pages=2000) as engine:
        session, other = engine.open_session(), engine.open_session()
        neighbour = asyncio.create_task(other.generate([9], SamplingParams(40, 0.0, ignore_eos=True)))
        caller = asyncio.create_task(session.generate([1, 2], LONG))
        if moment != "before":
            await asyncio.sleep(0)
        while moment == "later" and session.info.tokens < 5:
            await asyncio.sleep(0.001)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await settle(session)
        before = session.token_ids
        answer = await session.generate([4], GREEDY)
        assert answer.token_ids == greedy_continuation(model, [*before, 4], 5)
        assert (await neighbour).token_ids == greedy_continuation(model, [9], 40)
        check(engine)


async def test_a_cancelled_computation_ends(model):
    with engine_for(model, max_context=6000, pages=2000, prefill_tokens=1) as engine:
        session = engine.open_session()
        session.append(draw_tokens(4000))
        caller = asyncio.create_task(session.compute())
        while not session.info.computed:
            await asyncio.sleep(0.001)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        await settle(session)
        assert session.info.computed < 4000


def test_an_event_loop_that_dies_leaves_the_engine_alive(model):
    with engine_for(model, max_context=6000, pages=2000) as engine:
        session = engine.open_session()
        loop = asyncio.new_event_loop()
        stream = session.stream([1], LONG)
        loop.run_until_complete(anext(stream))
        loop.close()  # with the stream still open
        time.sleep(0.05)
        assert session.info.running
        stream.cancel()
        assert not session.info.running
        assert asyncio.run(engine.open_session().generate([2], GREEDY)).token_ids == greedy_continuation(model, [2], 5)


# ---- the other operations ----------------------------------------------------------------------------------------


async def test_fork_rollback_park_resume_close(model):
    with engine_for(model) as engine:
        session, prompt = engine.open_session(), draw_tokens(9)
        first = (await session.generate(prompt, GREEDY)).token_ids
        history = prompt + first
        children = session.fork(3)
        answers = await asyncio.gather(*(c.generate([i], GREEDY) for i, c in enumerate(children)))
        for i, answer in enumerate(answers):
            assert answer.token_ids == greedy_continuation(model, [*history, i], 5)

        session.rollback(-1, keep_prompt=True)
        assert session.token_ids == prompt
        assert (await session.generate(sampling=GREEDY)).token_ids == first

        session.park()
        info = session.info
        assert (info.residency, info.device_bytes) == (Residency.HOST, 0)
        assert session.resume()
        assert session.info.residency is Residency.GPU
        session.park()
        assert (await session.generate([7], GREEDY)).token_ids == greedy_continuation(model, [*history, 7], 5)
        session.rollback(0)
        assert session.token_ids == []

        for each in [session, *children]:
            each.close()
            each.close()
        assert engine.sessions() == []
        with pytest.raises(SessionClosed, match="is closed"):
            await session.generate([1], GREEDY)
        with pytest.raises(SessionClosed, match="no session"):
            engine.session(session.id)
        check(engine)


async def test_a_session_goes_on_while_it_is_computed_for_its_forks(model):
    with engine_for(model, prefill_tokens=8) as engine:
        session, prompt = engine.open_session(), draw_tokens(60)
        session.append(prompt)
        children = session.fork(2)
        own = asyncio.create_task(session.generate([1], GREEDY))
        answers = await asyncio.gather(own, *(c.generate([2 + i], GREEDY) for i, c in enumerate(children)))
        for i, answer in enumerate(answers):
            assert answer.token_ids == greedy_continuation(model, [*prompt, 1 + i], 5)
        assert engine.counters()["computed_tokens"] == 60 + 3 * 5
        check(engine)

        session.append(draw_tokens(60))
        session.fork(1)
        with pytest.raises(EngineError, match="token 0 is -1"):
            await session.generate([-1], GREEDY)
        engine.pause()  # until it has heard of both, so that nothing is answered between them
        session.append(draw_tokens(20))
        session.fork(1)
        doomed = asyncio.create_task(session.generate([1], LONG))
        await asyncio.sleep(0)
        await asyncio.to_thread(session.close)
        engine.unpause()
        with pytest.raises(SessionClosed):
            await doomed
        check(engine)


async def test_errors_are_the_callers_own_and_change_nothing(model):
    with engine_for(model) as engine:
        session, other = engine.open_session(), engine.open_session()
        neighbour = asyncio.create_task(other.generate([9], SamplingParams(100, 0.0, ignore_eos=True)))
        busy = asyncio.create_task(session.generate([1, 2], SamplingParams(100, 0.0, ignore_eos=True)))
        while not session.info.running:
            await asyncio.sleep(0.001)
        for operation in (
            lambda: session.append([1]),
            lambda: session.fork(1),
            lambda: session.rollback(0),
            session.park,
            session.resume,
        ):
            with pytest.raises(SessionBusy, match="at work"):
                operation()
        with pytest.raises(SessionBusy, match="at work"):
            await session.generate([1], GREEDY)
        await busy
        history = session.token_ids
        for tokens, sampling, error, message in (
            ([64], GREEDY, EngineError, "token 0 is 64; ids lie between 0 and 63"),
            ([1, -1], GREEDY, EngineError, "token 1 is -1"),
            ([1] * 300, GREEDY, TooLong, "more than the 256"),
            (
                [1],
                SamplingParams(max_tokens=1000),
                TooLong,
                "max_tokens 1000 after 103 tokens is more",
            ),
            ([1], SamplingParams(stop_token_ids=(64,)), ValueError, "no token 64"),
            ([1], SamplingParams(logit_bias={99: 1.0}), ValueError, "no token 99"),
            (
                [1],
                SamplingParams(grammar=Grammar.from_schema({"type": "object"})),
                EngineError,
                "needs a tokenizer",
            ),
        ):
            with pytest.raises(error, match=message):
                await session.generate(tokens, sampling)
            assert session.token_ids == history
        with pytest.raises(EngineError, match="nothing to continue"):
            await engine.open_session().generate()
        with pytest.raises(EngineError, match="exists already"):
            engine.open_session(session.id)
        with pytest.raises(ValueError, match="burn"):
            engine.open_session(on_update="burn")
        assert (await neighbour).token_ids == greedy_continuation(model, [9], 100)
        assert (await session.generate([3], GREEDY)).token_ids == greedy_continuation(model, [*history, 3], 5)
        assert engine.counters()["redundancy"] == pytest.approx(1, abs=0.02)
        check(engine)


async def test_closing_the_engine_ends_everything(model):
    engine = engine_for(model, max_context=6000, pages=2000)
    sessions = [engine.open_session() for _ in range(3)]
    callers = [asyncio.create_task(s.generate([1, i], LONG)) for i, s in enumerate(sessions)]
    while sessions[-1].info.tokens < 4:
        await asyncio.sleep(0.001)
    late = asyncio.create_task(engine.open_session().generate([1], LONG))
    await asyncio.sleep(0)  # it is on its way
    engine.close()
    engine.close()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*callers, late)
    assert {answer.finish_reason for answer in answers} == {"cancelled"}
    assert answers[0].token_ids == greedy_continuation(model, [1, 0], len(answers[0].token_ids))
    for call in (engine.open_session, engine.counters, engine.sleep, sessions[0].close, lambda: sessions[0].info):
        with pytest.raises(EngineError, match="the engine is closed"):
            call()
    with pytest.raises(EngineError, match="the engine is closed"):
        await sessions[0].generate([1], GREEDY)


async def test_a_mistake_of_the_loop_is_an_error_and_not_a_silence(model, monkeypatch):
    with engine_for(model) as engine:
        session = engine.open_session()
        with monkeypatch.context() as patch:
            patch.setattr(engine.loop.scheduler, "plan", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await session.generate([1, 2], GREEDY)
        assert (await session.generate(sampling=GREEDY)).token_ids == greedy_continuation(model, [1, 2], 5)
        check(engine)


# ---- stateless clients -------------------------------------------------------------------------------------------


async def test_a_stateless_client_pays_for_new_tokens_only(model):
    with engine_for(model) as engine:
        history, computed = [], []
        for turn in range(6):
            history += draw_tokens(6, turn)
            session, known = engine.continue_or_open(history)
            before = engine.counters()["computed_tokens"]
            answer = await session.generate(history[known:], GREEDY)
            assert answer.token_ids == greedy_continuation(model, history, 5)
            computed.append(engine.counters()["computed_tokens"] - before)
            history += answer.token_ids
        assert computed == [10] + [11] * 5
        assert len(engine.sessions()) == 1
        counters = engine.counters()
        assert counters["computed_tokens"] + 1 == counters["appended_tokens"] + counters["generated_tokens"]
        assert counters["redundancy"] == pytest.approx(1, abs=0.02)
        check(engine)


async def test_an_answer_that_comes_back_different_goes_on_from_its_prompt(model):
    with engine_for(model, checkpoints=2) as engine:
        history = draw_tokens(12)
        session, _ = engine.continue_or_open(history)
        await session.generate(history, GREEDY)
        changed = [*history, 50, 51, 52, 53]
        again, known = engine.continue_or_open(changed)
        assert known == 12
        assert again.id != session.id
        before = engine.counters()["computed_tokens"]
        assert (await again.generate(changed[known:], GREEDY)).token_ids == greedy_continuation(model, changed, 5)
        assert engine.counters()["computed_tokens"] - before == 4 + 4
        assert engine.continue_or_open([9, *changed])[1] == 0
        check(engine)


async def test_two_like_requests_at_once_get_a_session_each(model):
    with engine_for(model) as engine:
        history = draw_tokens(8)
        session, _ = engine.continue_or_open(history)
        history += [*(await session.generate(history, GREEDY)).token_ids, 3]
        found = [engine.continue_or_open(history) for _ in range(3)]
        assert len({session.id for session, _ in found}) == 3
        answers = await asyncio.gather(*(s.generate(history[known:], GREEDY) for s, known in found))
        assert all(a.token_ids == greedy_continuation(model, history, 5) for a in answers)
        check(engine)


# ---- many --------------------------------------------------------------------------------------------------------


def test_five_hundred_sessions_in_room_for_fifty(tmp_path):
    model = tiny_model("M*-", dtype=torch.float32)
    prompts = [draw_tokens(4 + i % 9, i) for i in range(500)]
    short = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)

    async def live(engine):
        sessions = [engine.open_session() for _ in prompts]
        answers = await asyncio.gather(
            *(session.generate(prompt, short) for session, prompt in zip(sessions, prompts, strict=True))
        )
        check(engine)
        again = await asyncio.gather(*(session.generate([1], short) for session in sessions[:100]))
        return [answer.token_ids for answer in answers + again]

    with engine_for(model, slots=1001, pages=4000, prefill_tokens=4096, max_running=600) as engine:
        expected = asyncio.run(live(engine))
        assert engine.counters()["evicted"] == 0
    little = {"slots": 51, "pages": 300, "prefill_tokens": 64, "host_bytes": 40_000}
    with engine_for(model, **little, disk_bytes=60_000, disk_folder=tmp_path) as engine:
        assert asyncio.run(live(engine)) == expected
        counters = engine.counters()
        assert counters["evicted"] > 100
        assert counters["disk_bytes"] > 0
        assert counters["host_bytes"] <= 40_000
        assert counters["disk_bytes"] <= 60_000
        assert counters["failures"] == 0
        for info in engine.sessions():
            engine.session(info.id).close()
        check(engine)
        counters = engine.counters()
        assert (counters["host_bytes"], counters["disk_bytes"], counters["free_slots"]) == (0, 0, 50)
    assert list(tmp_path.iterdir()) == []
