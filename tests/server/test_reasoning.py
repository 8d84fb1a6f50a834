"""Thoughts are told apart from answers, however the text is cut, and have room before a form."""

from __future__ import annotations

import json
import random

import pytest

from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarError
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.server.reasoning import DIALECTS, ReasoningSplitter, Thinking, detect_reasoning

from .live import TINY

TOKENIZER = byte_tokenizer(TINY)
THINK, MISTRAL = DIALECTS


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.opening)
@pytest.mark.parametrize(
    ("thinking", "text", "thoughts", "answer"),
    [
        ("inside", "\nWell < so.\n{/}\n\nYes.\n", "Well < so.", "Yes.\n"),
        ("inside", "{/}Yes", "", "Yes"),
        ("inside", "cut off {", "cut off {", ""),
        ("inside", "a{/}b{/}c", "a", "b{/}c"),
        ("possible", " \n{}hm{/} Yes", "hm", "Yes"),
        ("possible", " Yes {}no{/}", "", " Yes {}no{/}"),
        ("possible", "  ", "", "  "),
        ("possible", "{}", "", ""),
        ("over", " {}no{/}", "", " {}no{/}"),
    ],
)
def test_thoughts_and_answer(dialect, thinking, text, thoughts, answer):
    text, thoughts, answer = (
        part.replace("{/}", dialect.closing).replace("{}", dialect.opening) for part in (text, thoughts, answer)
    )
    if thinking == "over":
        answer = text
    for seed in range(20):
        draw, said = random.Random(seed), ["", ""]
        splitter = ReasoningSplitter(dialect, Thinking(thinking))
        cuts = sorted(draw.choices(range(len(text) + 1), k=3 if seed else 0))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for number, piece in enumerate(pieces):
            for part, more in enumerate(splitter.push(piece, number == len(pieces) - 1)):
                said[part] += more
        assert said == [thoughts, answer]


def test_where_an_answer_begins_is_told_by_the_template_and_not_by_people():
    def begins(text: str) -> Thinking:
        return THINK.begins(TOKENIZER, TOKENIZER.encode(text, allow_special=True))

    head = "<SPECIAL_11>User\nis <think> a tag?\n<SPECIAL_11>Assistant\n"
    assert begins(head + "<think>\n") is Thinking.INSIDE
    assert begins(head + "<think></think>") is Thinking.OVER
    assert begins(head + "<think>\n\n</think>\n\n") is Thinking.OVER
    assert begins(head) is Thinking.POSSIBLE
    assert detect_reasoning("{{ '<think></think>' }}") is THINK
    assert detect_reasoning("[THINK][/THINK]") is MISTRAL
    assert detect_reasoning("plain") is None


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.opening)
def test_thoughts_are_counted(dialect):
    """One tag is a token of the vocabulary, the other is letters."""
    assert (dialect.closing in TOKENIZER.markup) is (dialect is THINK)
    opening, closing = (len(TOKENIZER.encode(tag, allow_special=True)) for tag in (dialect.opening, dialect.closing))
    for thinking, text, count in (
        ("inside", "hm{/}Yes", 2 + closing),
        ("inside", "hm", 2),
        ("inside", "", 0),
        ("possible", " {}hm{/}Yes{/}", 3 + opening + closing),
        ("possible", "Yes{/}", 0),
        ("over", "hm{/}Yes", 0),
    ):
        text = text.replace("{/}", dialect.closing).replace("{}", dialect.opening)
        ids = TOKENIZER.encode(text, allow_special=True)
        assert dialect.count(TOKENIZER, Thinking(thinking), ids) == count, (thinking, text)


@pytest.mark.parametrize("tokens", [True, False])
def test_there_is_room_to_think_before_a_form(tokens):
    compiler = GrammarCompiler(TOKENIZER, TINY.vocab_size, TINY.eos_token_ids)
    markup = TOKENIZER.markup if tokens else {}

    def accepts(text: str, thinking: Thinking, grammar: Grammar) -> bool:
        around = THINK.grammar_around(thinking, markup)
        state = compiler.compile(Grammar(grammar.kind, grammar.source, within=around))
        try:
            for id_ in TOKENIZER.encode(text, allow_special=tokens):
                state.advance(id_)
        except GrammarError:
            return False
        return state.is_complete

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for grammar, right in (
        (Grammar.from_schema(schema), '{"n":1}'),
        (Grammar("regex", "[0-9]+"), "12"),
        (Grammar.from_choices(["left", "right"]), "left"),
        (Grammar("lark", 'start: "a" "b"'), "ab"),
    ):
        for thinking, text, wanted in (
            (Thinking.INSIDE, f"so < {right}\n</think>\n{right}", True),
            (Thinking.INSIDE, f"so</think>{right}", True),
            (Thinking.INSIDE, right, False),
            (Thinking.INSIDE, "so</think>never", False),
            (Thinking.POSSIBLE, right, True),
            (Thinking.POSSIBLE, f"<think>so</think>\n\n{right}", True),
            (Thinking.POSSIBLE, f"so</think>{right}", False),
            (Thinking.OVER, right, True),
            (Thinking.OVER, f"<think>so</think>{right}", False),
        ):
            assert accepts(text, thinking, grammar) is wanted, (grammar.kind, thinking, text)


@pytest.mark.parametrize("stream", [False, True])
def test_in_a_chat(http, stream):
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "chat_template_kwargs": {"enable_thinking": True},
        "max_tokens": 300,
        "temperature": 1,
        "seed": 3,
        "logit_bias": {str(TOKENIZER.markup["</think>"]): 6},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [7]}}},
        "stream": stream,
        "return_token_ids": True,
    }
    answer = http.post("/v1/chat/completions", json=body)
    thoughts = content = ""
    for event in answer.text.split("\n\n") if stream else ():
        if event.startswith("data: {"):
            delta = json.loads(event.removeprefix("data: "))["choices"][0]["delta"]
            thoughts += delta.get("reasoning_content", "")
            content += delta.get("content", "")
    if not stream:
        message = answer.json()["choices"][0]["message"]
        thoughts, content = message["reasoning_content"], message["content"]
        ids = answer.json()["choices"][0]["token_ids"]
        told = answer.json()["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert told == ids.index(TOKENIZER.markup["</think>"]) + 1
    assert thoughts
    assert content == "7"
    if not stream:
        together = http.post("/v1/chat/completions", json=body | {"separate_reasoning": False}).json()
        text = together["choices"][0]["message"]["content"]
        assert text.partition("</think>")[0].strip() == thoughts
        assert text.endswith("7")
