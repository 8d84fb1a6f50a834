"""A forced call is always a valid one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarError
from holotron.model.text.tokenizer import Tokenizer
from holotron.server.tool_grammar import call_grammar
from holotron.server.tools import HERMES, NEMOTRON, XML, ToolDialect

from .toolbox import DIALECTS, TOOLS, everywhere, read, split, tool, write


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>"],
        show_progress=False,
    )
    texts = [write(dialect, ("click", {"x": 12, "y": 5}), ("type.text", {"text": "a b"})) for dialect in DIALECTS]
    toy.train_from_iterator(texts * 9, trainer)
    toy.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<tool_call>", "</tool_call>")])
    return Tokenizer(toy)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size, [0])


def generate(compiler: GrammarCompiler, tokenizer: Tokenizer, grammar: Grammar, seed: int) -> list[int]:
    """Random tokens that the grammar allows; those that bring the end nearer are favoured."""
    generator = random.Random(seed)
    state = compiler.compile(grammar)
    bitmask = torch.zeros((compiler.vocab_size + 31) // 32, dtype=torch.int32)
    ids: list[int] = []
    while not state.is_finished:
        assert len(ids) < 3000, tokenizer.decode(ids)[:500]
        next_ids = state.forced()
        if not next_ids:
            state.mask_into(bitmask)
            words = bitmask.tolist()
            allowed = [id_ for id_ in range(compiler.vocab_size) if words[id_ // 32] >> id_ % 32 & 1]
            hasty = [
                id_ for id_ in allowed if id_ == 0 or tokenizer.token_of(id_) in ('"', "}", "]", "<", "/", ">", "Ċ")
            ]
            next_ids = [generator.choice(hasty if hasty and generator.random() < 0.6 else allowed)]
        for id_ in next_ids:
            state.advance(id_)
        ids += next_ids
    return [id_ for id_ in ids if id_ != 0]


def check_arguments(name: str, arguments: dict[str, Any]) -> None:
    if name == "click":
        assert set(arguments) == {"x", "y"}
        assert all(type(value) is int for value in arguments.values())
        assert 0 <= arguments["x"] <= 99
    elif name == "done":
        assert arguments == {}
    else:
        assert {"text"} <= set(arguments) <= {"text", "key", "note", "delay", "flags", "any"}
        assert len(arguments["text"]) <= 12
        assert arguments.get("key", "Tab") in ("Enter", "Tab", 'a"b\n')
        note = arguments.get("note")
        assert note is None or (isinstance(note, str) and 1 <= len(note) <= 9)
        assert isinstance(arguments.get("delay", 0), int | float)
        assert len(arguments.get("flags", [])) <= 2
        assert all(type(flag) is bool for flag in arguments.get("flags", []))


@everywhere
@pytest.mark.parametrize("own_tokens", [False, True])
def test_a_forced_call_is_valid(
    compiler: GrammarCompiler, tokenizer: Tokenizer, dialect: ToolDialect, own_tokens: bool
) -> None:
    grammar = call_grammar(dialect, TOOLS, None, True, tokenizer.markup if own_tokens else None)
    names, counts = set(), set()
    for seed in range(40):
        ids = generate(compiler, tokenizer, grammar, seed)
        assert (tokenizer.markup["<tool_call>"] in ids) == (own_tokens and dialect is not NEMOTRON)
        content, calls = split(dialect, tokenizer.decode(ids))
        assert content == ""
        assert calls
        for call in calls:
            check_arguments(call.name, json.loads(call.arguments))
        names |= {call.name for call in calls}
        counts.add(len(calls))
    assert names == {"click", "type.text", "done"}
    assert len(counts) > 1


@everywhere
def test_a_named_call_is_the_only_one(compiler: GrammarCompiler, tokenizer: Tokenizer, dialect: ToolDialect) -> None:
    grammar = call_grammar(dialect, TOOLS, {"click"}, False)
    for seed in range(8):
        text = tokenizer.decode(generate(compiler, tokenizer, grammar, seed))
        content, ((name, arguments),) = read(dialect, text)
        assert (content, name) == ("", "click")
        check_arguments(name, arguments)
        # In the spacing that templates use.
        assert text == write(dialect, (name, arguments))


def test_texts_in_xml_keep_their_schema(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    tools = [
        tool(
            "f",
            {
                "path": {"type": "string", "pattern": r"^/[a-z]{1,4}/\d$"},
                "inner": {"type": "string", "pattern": "q/+", "maxLength": 6},
                "colour": {"allOf": [{"$ref": "#/$defs/Colour"}]},
                "maybe": {"type": ["string", "null"], "enum": ["on", None]},
                "const": {"const": "</tool_call>"},
                "number": {"$ref": "#/$defs/Number"},
                "bad>key": {"type": "string"},
            },
            *("path", "inner", "colour", "maybe", "const", "number", "extra"),
            **{"$defs": {"Colour": {"enum": ["red", "</parameter>"]}, "Number": {"enum": [1, 2.5]}}},
        )
    ]
    grammar = call_grammar(XML, tools, {"f"}, False)
    for seed in range(12):
        content, ((_, arguments),) = read(XML, tokenizer.decode(generate(compiler, tokenizer, grammar, seed)), tools)
        assert content == ""
        del arguments["extra"]  # required, and not declared: it may be anything
        path, inner, number = arguments.pop("path"), arguments.pop("inner"), arguments.pop("number")
        assert path[0] == "/"
        assert path[-2] == "/"
        assert path[1:-2].islower()
        assert "q/" in inner
        assert len(inner) <= 6
        assert number in (1, 2.5)
        assert arguments == {"colour": "red", "maybe": "on", "const": "</tool_call>"}


def test_a_grammar_that_cannot_be_is_an_error(compiler: GrammarCompiler) -> None:
    with pytest.raises(ValueError, match=r"'fly'.*click, type\.text, done"):
        call_grammar(HERMES, TOOLS, {"fly"}, False)
    with pytest.raises(ValueError, match="no tools"):
        call_grammar(HERMES, [], None, False)
    for wrong, reason in (
        (tool("f", {}, anyOf=[{"required": ["a"]}]), "'anyOf'"),
        (tool("f", {"a>": {"type": "string"}}, "a>"), "'a>'"),
        (tool("f", {"a": {"enum": ["</parameter>"]}}, "a"), "'a'"),
    ):
        with pytest.raises(ValueError, match=f"'f'.*{reason}|{reason}.*'f'"):
            call_grammar(XML, [wrong], None, False)
        call_grammar(HERMES, [wrong], None, False)
    for dialect in DIALECTS:
        for schema in (
            {"type": "string", "pattern": "("},
            {"type": "nope"},
            {"type": "array", "minItems": 1, "items": False},
        ):
            with pytest.raises(GrammarError):
                compiler.compile(call_grammar(dialect, [tool("f", {"a": schema}, "a")], None, False))
