"""Weights that change under running sessions, and engines that sleep."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
import torch

from holotron.engine import weights as weights_module
from holotron.engine.errors import EngineError, SessionBusy, SessionClosed
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import Residency
from holotron.engine.weights import SUMMED, bit_checksum, read_weights
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model
from tests.engine.driver import GREEDY, greedy_continuation
from tests.engine.outside import LONG, check, engine_for, screenshot, seen_continuation, settle, with_image
from tests.model.tiny import tiny_config, tiny_model, tiny_vision


@pytest.fixture(scope="module")
def seer():
    return tiny_model("M-*-", vision=tiny_vision())


# ---- weights -----------------------------------------------------------------------------------------------------


async def test_weights_change_while_sessions_run(tmp_path):
    model, other, third = (_alike(seed) for seed in (1, 2, 3))
    save_checkpoint(third, tmp_path / "third")
    expected = {seed: greedy_continuation(m, [1, 2, 3], 5) for seed, m in ((1, model), (2, other), (3, third))}
    with engine_for(model, max_context=6000, pages=2000) as engine:

        async def fresh():
            answer = await engine.open_session().generate([1, 2, 3], GREEDY)
            assert len(set(answer.epochs)) == 1
            return answer.token_ids, answer.epochs[0]

        kept, anew = engine.open_session(), engine.open_session(on_update="recompute")
        dropped = engine.open_session(on_update="drop")
        for session in (kept, anew, dropped):
            assert (await session.generate([1, 2, 3], GREEDY)).token_ids == expected[1]
        running = asyncio.create_task(engine.open_session().generate([7], LONG))
        await asyncio.sleep(0.02)

        own = dict(other.named_parameters())
        name = next(iter(own))
        for bad, message in (
            ({**own, name: own[name][:-1]}, "has shape"),
            ({**own, name: own[name].detach() * torch.nan}, "NaN or infinity"),
            ({**own, "nothing.weight": own[name]}, "no weight nothing.weight"),
        ):
            with pytest.raises(EngineError, match=message):
                engine.update_weights(bad)
        with pytest.raises((OSError, ValueError), match="nowhere"):
            engine.update_weights(tmp_path / "nowhere")
        assert await fresh() == (expected[1], 0)

        assert engine.update_weights(own) == 1
        assert await fresh() == (expected[2], 1)
        said = await anew.generate([4], GREEDY)
        assert said.token_ids == greedy_continuation(other, [1, 2, 3, *expected[1], 4], 5)
        assert (said.epochs[-1], anew.info.epoch, kept.info.epoch) == (1, 1, 0)
        with pytest.raises(SessionClosed):
            await dropped.generate([4], GREEDY)
        await kept.generate([4], GREEDY)
        assert engine.update_weights(tmp_path / "third") == 2
        assert await fresh() == (expected[3], 2)
        assert not running.done()
        running.cancel()
        check(engine)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_one_number_that_is_none_is_found_among_all_weights(value):
    model = _alike(1)
    for name, parameter in _alike(2).named_parameters():
        changed = parameter.detach().clone()
        changed.view(-1)[-1] = value
        with pytest.raises(EngineError, match=f"{name} holds NaN or infinity"):
            read_weights(model, {name: changed})
    with pytest.raises(EngineError, match=r"number too large for torch\.bfloat16"):
        read_weights(model.to(torch.bfloat16), {name: torch.full_like(parameter, 3.4e38)})


def test_numbers_of_another_type_are_looked_through_in_little_memory(monkeypatch):
    model = _alike(1).to(torch.bfloat16)
    given = dict(_alike(2).named_parameters())
    looked_at = []
    largest = weights_module._largest
    monkeypatch.setattr(weights_module, "_largest", lambda tensors: looked_at.append(len(tensors)) or largest(tensors))
    assert read_weights(model, given).whole
    assert looked_at == [len(given)]
    looked_at.clear()
    monkeypatch.setattr(weights_module, "COPIED", 1)
    read_weights(model, given)
    assert looked_at == [1] * len(given) + [0]
    for name in given:
        with pytest.raises(EngineError, match=f"{name} holds NaN or infinity"):
            read_weights(model, {**given, name: torch.full_like(given[name], torch.nan)})


def test_a_checksum_is_of_names_and_bits_and_of_nothing_else(monkeypatch):
    weights = {name: parameter.detach().clone() for name, parameter in _alike(1).named_parameters()}
    weights["decoder.embeddings.weight"] = weights["decoder.embeddings.weight"].bfloat16()
    told = bit_checksum(weights.items())
    assert bit_checksum(reversed(weights.items())) == told
    monkeypatch.setitem(SUMMED, "cpu", 7)
    assert bit_checksum(weights.items()) == told

    def changed(name, change):
        return bit_checksum((weights | {name: change(weights[name].clone())}).items())

    several = [name for name, weight in weights.items() if weight.ndim == 2]
    one, other = several[0], next(name for name in several[1:] if weights[name].shape == weights[several[1]].shape)
    first = next(iter(weights))
    found = [
        *(changed(name, lambda weight: -weight) for name in weights),
        *(changed(name, lambda weight: weight.flip(0)) for name in several),
        *(changed(name, lambda weight: weight.roll(1, -1)) for name in several),
        changed(one, lambda weight: weight.T.contiguous()),
        bit_checksum((weights | {one: weights[other], other: weights[one]}).items()),
        bit_checksum((name, weight) for name, weight in weights.items() if name != first),
    ]
    assert len({told, *found}) == 1 + len(found)


async def test_every_token_knows_the_weights_that_drew_it():
    model, other = _alike(1), _alike(2)
    with engine_for(model, max_context=6000, pages=2000) as engine:
        session, epochs = engine.open_session(), []
        async for event in session.stream([1, 2], LONG):
            epochs += [event.epoch] * len(event.token_ids)
            if len(epochs) == 10:
                engine.update_weights(dict(other.named_parameters()))
            if epochs.count(1) == 5:
                break
        assert epochs[:10] == [0] * 10
        assert epochs == sorted(epochs)
        await settle(session)
        whole = await session.generate([3], GREEDY)
        assert (whole.epochs, whole.forced) == ([1] * 5, [False] * 5)


@pytest.mark.parametrize("ends_alike", [True, False])
async def test_a_stateless_request_never_goes_on_from_other_weights(ends_alike):
    model, other = _alike(1), _alike(2)
    history = [1, 2, 3, 4, 5, 6]
    with engine_for(model) as engine:
        session, _ = engine.continue_or_open(history)
        said = (await session.generate(history, GREEDY)).token_ids
        request = [*history, *(said if ends_alike else ()), 7, 8]
        expected = greedy_continuation(other, request, 5)
        engine.update_weights(dict(other.named_parameters()))
        again, known = engine.continue_or_open(request)
        assert known == 0
        assert again.id != session.id
        assert (await again.generate(request, GREEDY)).token_ids == expected
        assert again.info.epoch == 1
        # Whoever prefers the memory of earlier weights to computing anew may say so.
        engine.session(again.id).close()
        old, known = engine.continue_or_open(request, any_epoch=True)
        assert known >= len(history)
        assert old.info.epoch == 0
        check(engine)


async def test_a_session_whose_memory_was_computed_anew_is_of_the_new_weights():
    model, other = _alike(1), _alike(2)
    with engine_for(model, host_bytes=0) as engine:
        session = engine.open_session()
        await session.generate([1, 2, 3], GREEDY)
        session.park()  # there is no room for it: it is computed again
        engine.update_weights(dict(other.named_parameters()))
        assert (await session.generate([4], GREEDY)).token_ids
        assert session.info.epoch == 1
        check(engine)


def _alike(seed):
    """Models of one shape with different weights."""
    model = random_model(tiny_config("M*-"), dtype=torch.float64, seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    return model


# ---- sleep -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host_bytes", [2**24, 0])
async def test_sleep_gives_the_memory_back_and_waking_changes_nothing(seer, host_bytes):
    with engine_for(seer, host_bytes=host_bytes) as engine:
        one = await engine.prepare_image(screenshot(0))
        tokens, places = with_image(one)
        sessions = [engine.open_session() for _ in range(3)]
        histories = []
        for i, session in enumerate(sessions):
            said = await session.generate([*tokens, i], GREEDY, images=places)
            histories.append([*tokens, i, *said.token_ids])
        memory = engine.loop.runner.memory
        pools = [weakref.ref(tensor) for tensor in vars(memory).values()]
        pools.append(weakref.ref(engine.loop.runner._table))
        del memory

        busy = asyncio.create_task(sessions[0].generate([4], SamplingParams(100, 0.0, ignore_eos=True)))
        while not sessions[0].info.running:
            await asyncio.sleep(0)
        with pytest.raises(SessionBusy, match="1 sessions are at work"):
            engine.sleep()
        histories[0] += [4, *(await busy).token_ids]

        engine.sleep(weights=True)
        engine.sleep()
        gc.collect()
        assert [pool() for pool in pools] == [None] * 5
        assert all(info.device_bytes == 0 for info in engine.sessions())
        assert {info.residency for info in engine.sessions()} == {Residency.HOST if host_bytes else Residency.NONE}
        assert not sessions[0].resume()
        sessions[0].park()
        waiting = [asyncio.create_task(s.generate([5], GREEDY)) for s in sessions]
        waiting.append(asyncio.create_task(engine.open_session().generate([5], GREEDY)))
        forked = asyncio.create_task(sessions[2].fork(1)[0].generate([5], GREEDY))
        await asyncio.sleep(0.05)
        assert not any(request.done() for request in waiting)
        engine.sleep()  # it does already, whoever waits
        engine.wake()
        engine.wake()
        answers = await asyncio.gather(*waiting)
        for history, answer in zip(histories, answers, strict=False):
            assert answer.token_ids == seen_continuation(seer, [*history, 5], [one.image])
        assert (await forked).token_ids == answers[2].token_ids
        assert answers[3].token_ids == seen_continuation(seer, [5], [])
        check(engine)
        engine.sleep()


async def test_weights_can_change_in_sleep_and_a_sleeper_can_be_closed():
    model, other = _alike(1), _alike(2)
    with engine_for(model) as engine:
        session = engine.open_session(on_update="recompute")
        said = (await session.generate([1, 2], GREEDY)).token_ids
        engine.sleep(weights=True)
        engine.update_weights(dict(other.named_parameters()))
        engine.wake()
        answer = await session.generate([3], GREEDY)
        assert answer.token_ids == greedy_continuation(other, [1, 2, *said, 3], 5)
        engine.sleep()
        waiting = asyncio.create_task(session.generate([3], GREEDY))
        await asyncio.sleep(0.01)
    assert (await waiting).finish_reason == "cancelled"
