"""Text, seeds, log-probabilities and grammars, as a caller gets them."""

from __future__ import annotations

import asyncio
import json
import re
import threading

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

from holotron.engine.grammar import Grammar, GrammarError
from holotron.engine.requests import TokenEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.model.text.tokenizer import Tokenizer
from tests.engine.driver import GREEDY, greedy_continuation
from tests.engine.outside import engine_for
from tests.model.tiny import draw_tokens, tiny_model, tiny_vision

EOS = 0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>", "<image>"],
        show_progress=False,
    )
    toy.train_from_iterator(['{"action":"click","x":120,"y":500} Click the button', "yes no maybe é 你好"], trainer)
    path = tmp_path_factory.mktemp("toy") / "tokenizer.json"
    toy.save(str(path))
    return Tokenizer(path)


@pytest.fixture(scope="module")
def speaker(tokenizer):
    """A model with the tokenizer's vocabulary."""
    return tiny_model("M*-", vocab_size=tokenizer.vocab_size, eos_token_ids=(EOS,))


# ---- text --------------------------------------------------------------------------------------------------------


async def test_text_stops_and_ends(speaker, tokenizer):
    with engine_for(speaker, tokenizer) as engine:

        async def say(**params):
            session = engine.open_session()
            return await session.generate(tokenizer.encode("Click"), SamplingParams(**params))

        plain = await say(max_tokens=40, seed=3, ignore_eos=True)
        assert len(plain.token_ids) == 40
        assert plain.text == tokenizer.decode(plain.token_ids)

        stop = plain.text[8:11]
        cut = await say(max_tokens=40, seed=3, ignore_eos=True, stop=(stop, "never said"))
        assert cut.text == plain.text[: plain.text.index(stop)]
        assert (cut.finish_reason, cut.stop) == ("stop", stop)
        assert plain.token_ids[: len(cut.token_ids)] == cut.token_ids

        id_ = plain.token_ids[10]
        by_id = await say(max_tokens=40, seed=3, ignore_eos=True, stop_token_ids=(id_,))
        assert by_id.token_ids == plain.token_ids[: plain.token_ids.index(id_) + 1]
        assert (by_id.finish_reason, by_id.stop) == ("stop", id_)
        assert by_id.text == tokenizer.decode(by_id.token_ids[:-1])

        ended = await say(max_tokens=40, seed=3, logit_bias={EOS: 100.0})
        assert (ended.token_ids, ended.text, ended.finish_reason) == ([EOS], "", "eos")


async def test_ids_that_are_no_token_are_never_said(tokenizer):
    model = tiny_model("M*-", vocab_size=2 * tokenizer.vocab_size, eos_token_ids=(EOS,))
    with engine_for(model, tokenizer) as engine:
        for temperature in (0.0, 20.0):
            sampling = SamplingParams(60, temperature, ignore_eos=True)
            said = (await engine.open_session().generate([7, 8, 9], sampling)).token_ids
            assert max(said) < tokenizer.vocab_size


async def test_seeds_and_temperatures(speaker, tokenizer):
    with engine_for(speaker, tokenizer) as engine:

        async def say(**params):
            answer = await engine.open_session().generate([7, 8, 9], SamplingParams(max_tokens=12, **params))
            return answer.token_ids

        same = await asyncio.gather(*(say(seed=5) for _ in range(4)))
        assert all(ids == same[0] for ids in same)
        others = await asyncio.gather(*(say() for _ in range(4)))
        assert len({tuple(ids) for ids in [*others, same[0]]}) == 5
        greedy = await say(temperature=0.0, ignore_eos=True)
        assert greedy == greedy_continuation(speaker, [7, 8, 9], 12)
        assert await say(temperature=1e-6, ignore_eos=True) == greedy
        assert await say(temperature=50.0, seed=5) != same[0]


@pytest.mark.parametrize("vision", [None, tiny_vision()])
def test_logprobs_are_the_models_own(vision):
    model = tiny_model("M*-", vision=vision)
    prompt = draw_tokens(6)

    async def main():
        with engine_for(model) as engine:
            params = SamplingParams(max_tokens=8, temperature=0.7, seed=1, logprobs=3, ignore_eos=True)
            return await engine.open_session().generate(prompt, params)

    answer = asyncio.run(main())
    with torch.no_grad():
        logits = model.score([prompt + answer.token_ids])[0]
    expected = logits[len(prompt) - 1 : -1].log_softmax(-1)
    for row, token, found in zip(expected, answer.token_ids, answer.logprobs, strict=True):
        assert found.model == pytest.approx(float(row[token]), abs=1e-4)
        values, ids = row.topk(3)
        assert [i for i, _ in found.top] == ids.tolist()
        assert [p for _, p in found.top] == pytest.approx(values.tolist(), abs=1e-4)


# ---- grammars ----------------------------------------------------------------------------------------------------

ACTION = {
    "type": "object",
    "properties": {"action": {"enum": ["click", "scroll"]}, "x": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["action", "x"],
    "additionalProperties": False,
}


async def test_grammars_shape_the_text_and_what_they_force_is_free(speaker, tokenizer):
    with engine_for(speaker, tokenizer) as engine:
        session = engine.open_session()
        prompt = tokenizer.encode("Click the button")
        steps = engine.counters()["steps"]
        answer = await session.generate(prompt, SamplingParams(grammar=Grammar.from_schema(ACTION), seed=1))
        said = json.loads(answer.text)
        assert said["action"] in ("click", "scroll")
        assert 0 <= said["x"] <= 99
        assert tokenizer.decode(answer.token_ids) == answer.text
        assert len(answer.logprobs) == len(answer.token_ids) == len(answer.forced) == len(answer.epochs)
        assert answer.forced[0] is False
        assert 0 < sum(answer.forced) < len(answer.token_ids)
        counters = engine.counters()
        assert counters["steps"] - steps < len(answer.token_ids)
        assert counters["computed_tokens"] <= len(prompt) + len(answer.token_ids)
        forced = [e async for e in engine.open_session().stream(prompt, SamplingParams(grammar=_forced(), seed=1))]
        assert max(len(e.token_ids) for e in forced if isinstance(e, TokenEvent)) > 5

        answers = await asyncio.gather(
            *(
                engine.open_session().generate([i], SamplingParams(grammar=Grammar("regex", "[a-f]{3}-[0-9]{2}")))
                for i in range(2, 8)
            )
        )
        assert all(re.fullmatch("[a-f]{3}-[0-9]{2}", answer.text) for answer in answers)
        counters, unfed = engine.counters(), sum(info.tokens - info.computed for info in engine.sessions())
        assert counters["computed_tokens"] + unfed == counters["appended_tokens"] + counters["generated_tokens"]
        # The history is exact: what follows is what the model says after all of it.
        history = session.token_ids
        assert (await session.generate([5], GREEDY)).token_ids == greedy_continuation(speaker, [*history, 5], 5)


def _forced():
    return Grammar("regex", "[xy] and then always the same words")


async def test_a_grammar_without_a_way_out_fails_alone(speaker, tokenizer):
    with engine_for(speaker, tokenizer) as engine:
        neighbour = asyncio.create_task(engine.open_session().generate([9], SamplingParams(30, 0.0, ignore_eos=True)))
        session = engine.open_session()
        impossible = Grammar.from_schema({"type": "integer", "minimum": 5, "maximum": 2})
        with pytest.raises(GrammarError, match=r"grammar|satisf"):
            await session.generate([1], SamplingParams(grammar=impossible))
        with pytest.raises(GrammarError, match="not valid"):
            await session.generate([1], SamplingParams(grammar=Grammar("regex", "(")))
        assert session.token_ids == []
        assert (await session.generate([1], SamplingParams(grammar=Grammar.from_choices(["yes"])))).text == "yes"
        assert (await neighbour).token_ids == greedy_continuation(speaker, [9], 30)


async def test_a_grammar_that_was_compiled_waits_for_no_worker(speaker, tokenizer, monkeypatch):
    with engine_for(speaker, tokenizer) as engine:
        sampling = SamplingParams(grammar=Grammar.from_choices(["yes"]))
        assert (await engine.open_session().generate([1], sampling)).text == "yes"
        monkeypatch.setattr(engine, "_work", None)
        assert (await engine.open_session().generate([1], sampling)).text == "yes"


async def test_a_hard_grammar_does_not_stop_the_others(speaker, tokenizer, monkeypatch):
    with engine_for(speaker, tokenizer) as engine:
        compiler, compile_, gate = engine._grammars(), engine._grammars().compile, threading.Event()
        monkeypatch.setattr(compiler, "compile", lambda grammar: gate.wait(60) and compile_(grammar))
        slow = asyncio.create_task(
            engine.open_session().generate([1], SamplingParams(grammar=Grammar.from_choices(["no"])))
        )
        await asyncio.sleep(0.02)
        assert (await engine.open_session().generate([9], GREEDY)).finish_reason == "length"
        assert not slow.done()
        gate.set()
        assert (await slow).text == "no"
