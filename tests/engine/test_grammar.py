"""Whatever the logits are, a text under a grammar has its form; and no grammar can hang or kill the engine."""

from __future__ import annotations

import builtins
import json
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from holotron.engine.grammar import (
    KEPT_GRAMMARS,
    MAX_SOURCE_BYTES,
    Grammar,
    GrammarCompiler,
    GrammarError,
    GrammarState,
)
from holotron.engine.sampling import RowState, sample
from holotron.engine.sampling_params import SamplingParams
from holotron.model.text.tokenizer import Tokenizer

EOS, SECOND_EOS = 0, 1
EXTRA = 37  # ids of the model that the tokenizer does not have
ACTION = {
    "type": "object",
    "properties": {
        "action": {"enum": ["click", "type", "scroll"]},
        "x": {"type": "integer", "minimum": 0, "maximum": 1000},
        "y": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
    "required": ["action", "x", "y"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>", "<end>", "<image>"],
        show_progress=False,
    )
    texts = [
        '{"action":"click","x":120,"y":500}',
        '{"name": "value", "list": [1, 2, 3]}',
        "yes no maybe é 你好",
        "</s>",
    ]
    toy.train_from_iterator(texts * 9, trainer)
    toy.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    toy.save(str(path))
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(path)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size + EXTRA, [EOS, SECOND_EOS])


def allowed(compiler: GrammarCompiler, state: GrammarState) -> list[int]:
    bitmask = torch.full(((compiler.vocab_size + 31) // 32,), -1, dtype=torch.int32)
    state.mask_into(bitmask)
    words = bitmask.tolist()
    return [id_ for id_ in range(len(words) * 32) if words[id_ // 32] >> id_ % 32 & 1]


def generate(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    grammar: Grammar,
    seed: int,
    use_forced: bool = False,
    haste: float = 4.0,
    limit: int = 400,
) -> str:
    """A text from random logits. Haste favours the end and closing marks, so that it comes soon."""
    state = compiler.compile(grammar)
    row = RowState(SamplingParams(grammar=grammar), compiler.vocab_size, seed)
    generator = torch.Generator().manual_seed(seed)
    bitmask = torch.zeros(1, (compiler.vocab_size + 31) // 32, dtype=torch.int32)
    ids: list[int] = []
    while not state.is_finished:
        forced = state.forced() if use_forced else []
        if not forced:
            state.mask_into(bitmask[0])
            logits = torch.randn(1, compiler.vocab_size, generator=generator)
            logits[0, [EOS, *(tokenizer.id_of(mark) for mark in '"}]')]] += haste
            token = sample(logits, [row], bitmask).read([row])[0]
            assert token.error is None
            forced = [token.token_id]
        for id_ in forced:
            state.advance(id_)
        row.advance(forced)
        ids += forced
        assert len(ids) < limit, tokenizer.decode(ids)
    assert state.is_complete
    return tokenizer.decode(ids, skip_special=True)


# ---- texts have their form ----


@pytest.mark.parametrize("use_forced", [False, True])
def test_every_action_is_valid(compiler: GrammarCompiler, tokenizer: Tokenizer, use_forced: bool) -> None:
    grammar = Grammar.from_schema(ACTION)
    seen = set()
    for seed in range(12):
        text = generate(compiler, tokenizer, grammar, seed, use_forced)
        action = json.loads(text)
        assert list(action) == ["action", "x", "y"]
        assert action["action"] in ("click", "type", "scroll")
        assert all(isinstance(action[axis], int) and 0 <= action[axis] <= 1000 for axis in "xy")
        assert text == json.dumps(action, separators=(",", ":"))
        seen.add(text)
    assert len(seen) > 8


def test_nested_arrays_and_strings_with_escapes_are_valid(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
            "text": {"type": "string", "maxLength": 12},
            "maybe": {"anyOf": [{"type": "null"}, {"const": 'a"\\b\n'}]},
        },
        "required": ["rows", "text", "maybe"],
        "additionalProperties": False,
    }
    grammar = Grammar.from_schema(schema)
    for seed in range(12):
        value = json.loads(generate(compiler, tokenizer, grammar, seed, use_forced=seed % 2 == 0))
        assert list(value) == ["rows", "text", "maybe"]
        for inner in value["rows"]:
            assert len(inner) <= 3
            assert all(isinstance(entry, bool) for entry in inner)
        assert isinstance(value["text"], str)
        assert len(value["text"]) <= 12
        assert value["maybe"] in (None, 'a"\\b\n')


def test_a_json_object_is_any_object(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for seed in range(8):
        text = generate(compiler, tokenizer, Grammar.from_schema({"type": "object"}), seed, haste=7.0, limit=2000)
        assert isinstance(json.loads(text), dict)


def test_a_regex_is_matched_whole(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = Grammar("regex", r"[a-c]{2,5}-(é|你好)+[0-9]?")
    for seed in range(12):
        assert re.fullmatch(grammar.source, generate(compiler, tokenizer, grammar, seed))


def test_a_lark_grammar_is_followed(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = Grammar("lark", 'start: "(" start ")" | "x"')
    for seed in range(6):
        text = generate(compiler, tokenizer, grammar, seed)
        assert re.fullmatch(r"\(*x\)*", text)
        assert text.count("(") == text.count(")")


def test_a_choice_is_one_of_its_texts(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    choices = ["yes", "yes, but", "no", 'quo"te\\', "line\nbreak", "你好"]
    texts = {generate(compiler, tokenizer, Grammar.from_choices(choices), seed, haste=0.0) for seed in range(40)}
    assert texts <= set(choices)
    assert len(texts) >= 4


# ---- forced tokens, ends, copies ----


def test_forced_tokens_are_what_the_tokenizer_writes_and_the_masks_allow(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    for seed in range(10):
        generator = random.Random(seed)
        state = compiler.compile(Grammar.from_schema(ACTION))
        forced_text = ""
        while not state.is_finished:
            forced = state.forced()
            stepper = state.copy()
            for id_ in forced:
                assert id_ in allowed(compiler, stepper)
                assert not stepper.is_complete
                stepper.advance(id_)
            text = tokenizer.decode(forced)
            # No other way leads on: whatever is allowed agrees with the forced text as far as both go.
            for id_ in allowed(compiler, state) if forced else []:
                piece = tokenizer.decode([id_])
                assert text.startswith(piece) or piece.startswith(text)
            forced_text += text
            if forced:
                state = stepper
                continue
            choice = generator.choice(allowed(compiler, state))
            state.advance(choice)
        assert '{"action":"' in forced_text
        assert '"x":' in forced_text


def test_a_forced_text_that_spells_a_special_token_stays_text(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    text = "say <eos> <think> <image> now"
    state = compiler.compile(Grammar.from_choices([text]))
    ids = []
    while not state.is_finished:
        for id_ in state.forced() or allowed(compiler, state)[:1]:
            state.advance(id_)
            ids.append(id_)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert not set(tokenizer.markup.values()) & set(ids)


def test_special_and_unknown_tokens_are_never_text(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    possible = allowed(compiler, compiler.compile(Grammar("regex", "(?s:.*)")))
    assert max(possible) < tokenizer.vocab_size
    assert set(tokenizer.markup.values()) & set(possible) == {EOS, SECOND_EOS}
    assert len(possible) > 200


def test_the_end_is_allowed_only_where_the_text_is_complete(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    a = tokenizer.id_of("a")
    state = compiler.compile(Grammar("regex", "a{2,3}"))
    for complete, finished in ((False, False), (False, False), (True, False), (True, True)):
        ends = {EOS, SECOND_EOS} & set(allowed(compiler, state))
        assert (state.is_complete, state.is_finished, bool(ends)) == (complete, finished, complete)
        if not complete:
            with pytest.raises(GrammarError, match="cannot end"):
                state.advance(EOS)
        if not finished:
            state.advance(a)
    assert state.forced() == []
    state.advance(SECOND_EOS)
    with pytest.raises(GrammarError, match="has ended"):
        state.advance(a)


@pytest.mark.parametrize("pattern", ["a{3}", "a+"])
def test_rolling_back_counts_the_end_token(compiler: GrammarCompiler, tokenizer: Tokenizer, pattern: str) -> None:
    a = tokenizer.id_of("a")
    state = compiler.compile(Grammar("regex", pattern))
    masks = []
    for id_ in (a, a, a, EOS):
        masks.append(allowed(compiler, state))
        state.advance(id_)
    assert state.is_finished
    for count, position in ((0, None), (1, 3), (2, 1), (1, 0)):
        state.rollback(count)
        assert position is None or allowed(compiler, state) == masks[position]
    with pytest.raises(ValueError, match="0 were taken"):
        state.rollback(1)


def test_a_refused_token_changes_nothing(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    state = compiler.compile(Grammar("regex", "ab"))
    before = allowed(compiler, state)
    for id_ in (tokenizer.id_of("b"), tokenizer.vocab_size + 1, compiler.vocab_size, 10**9, -1):
        with pytest.raises(GrammarError, match=str(id_)):
            state.advance(id_)
    assert allowed(compiler, state) == before


def test_copies_go_their_own_ways(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    first = compiler.compile(Grammar("regex", "(ab|cd)"))
    second = first.copy()
    first.advance(tokenizer.id_of("a"))
    second.advance(tokenizer.id_of("c"))
    assert allowed(compiler, first) == [tokenizer.id_of("b")]
    assert allowed(compiler, second) == [tokenizer.id_of("d")]
    # Compiled again, it starts at its beginning, and stays within what is kept.
    assert len(allowed(compiler, compiler.compile(Grammar("regex", "(ab|cd)")))) >= 2
    for number in range(KEPT_GRAMMARS + 2):
        compiler.compile(Grammar.from_choices([f"choice {number}"]))
    assert len(compiler._kept) == KEPT_GRAMMARS


def test_a_bitmask_of_another_size_or_kind_is_refused(compiler: GrammarCompiler) -> None:
    state = compiler.compile(Grammar.from_schema({"type": "object"}))
    words = (compiler.vocab_size + 31) // 32
    for wrong in (
        torch.zeros(words + 1, dtype=torch.int32),
        torch.zeros(words, dtype=torch.int64),
        torch.zeros(words, 2, dtype=torch.int32)[:, 0],
    ):
        with pytest.raises(ValueError, match="bitmask row"):
            state.mask_into(wrong)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("sonnet", "", "sonnet"),
        ("json_schema", "{", "not valid JSON"),
        ("json_schema", "[]", "is an object"),
        ("json_schema", "[" * 100_000, "not valid JSON"),
        ("json_schema", "false", "is an object"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "greater than maximum"),
        ("json_schema", '{"type": "nope"}', "nope"),
        ("json_schema", '{"not": {}}', "not"),
        ("json_schema", '{"$ref": "#"}', "no text satisfies"),
        ("json_schema", '{"$ref": "http://example.com/schema"}', "http://example.com"),
        ("json_schema", '{"const": "\\ud800"}', "surrogates"),
        ("regex", "[", "unclosed"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", "\ud800", "Unicode"),
        ("lark", "start: missing", "missing"),
        ("lark", "", "Empty"),
        ("choice", "[]", "at least one"),
        ("choice", '["a", 1]', "list"),
        ("choice", "a", "JSON"),
    ],
)
def test_wrong_grammars_are_refused_with_the_reason(
    compiler: GrammarCompiler, kind: Any, source: str, reason: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)):
        compiler.compile(Grammar(kind, source))


def chain(length: int) -> Grammar:
    rules = "".join(f"a{number}: a{number + 1}\n" for number in range(length))
    return Grammar("lark", f'start: a0\n{rules}a{length}: "x"')


def nested(length: int) -> Grammar:
    """Definitions that refer to the next one: deeper than a stack of the usual size."""
    definitions: dict[str, Any] = {
        f"a{number}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/a{number + 1}"}}, "required": ["x"]}
        for number in range(length)
    }
    definitions[f"a{length}"] = {"type": "integer"}
    return Grammar.from_schema({"$defs": definitions, "$ref": "#/$defs/a0"})


HOSTILE = {
    "a long chain of rules": lambda: chain(8000),
    "a long chain of references": lambda: nested(1200),
    "nested schemas": lambda: Grammar("json_schema", '{"items":' * 5000 + "{}" + "}" * 5000),
    "nested groups": lambda: Grammar("regex", "(" * 50_000 + "a" + ")" * 50_000),
    "nested rules": lambda: Grammar("lark", "start: " + "(" * 50_000 + '"a"' + ")" * 50_000),
    "repeated repetitions": lambda: Grammar("regex", "((a{1,1000}){1,1000}){1,1000}"),
    "many optional letters": lambda: Grammar("regex", "(a?){50000}a{50000}"),
    "repeated rules": lambda: Grammar("lark", 'start: ((("a" "b"){1000}){1000}){1000}'),
    "doubling terminals": lambda: Grammar(
        "lark", "start: A0\n" + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(60)) + 'A60: "x"|"y"'
    ),
    "an enormous enum": lambda: Grammar.from_schema({"enum": [f"value {n * 7919 % 10007}" for n in range(7000)]}),
    "many choices": lambda: Grammar.from_choices([f"choice {n}" for n in range(8000)]),
    "many properties": lambda: Grammar.from_schema(
        {"type": "object", "properties": {f"p{n}": {} for n in range(2000)}}
    ),
    "a billion entries": lambda: Grammar.from_schema({"type": "array", "minItems": 10**9}),
    "combinations": lambda: Grammar.from_schema(
        {"allOf": [{"anyOf": [{"type": "integer", "minimum": 10 * a + b} for b in range(10)]} for a in range(7)]}
    ),
    "a large divisor": lambda: Grammar.from_schema({"type": "integer", "multipleOf": 999_999_937}),
}


# Large, but nothing is wrong with them.
SOUND = {
    "a long chain of rules",
    "a long chain of references",
    "an enormous enum",
    "many choices",
    "a billion entries",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_grammar_hangs_or_kills_the_process(compiler: GrammarCompiler, name: str) -> None:
    generator = random.Random(0)
    walked: list[int] = []
    spent: list[float] = []  # its own time: the machine may be busy with other things

    def walk() -> None:
        try:
            state = compiler.compile(HOSTILE[name]())
            while not state.is_finished and len(walked) < 30:
                id_ = generator.choice([id_ for id_ in allowed(compiler, state) if id_ > SECOND_EOS] or [EOS])
                state.advance(id_)
                walked.append(id_)
        except GrammarError:
            pass
        finally:
            spent.append(time.thread_time())

    # From a thread, as a server would: its stack is the usual one.
    thread = threading.Thread(target=walk)
    thread.start()
    thread.join()
    assert spent[0] < 15
    assert walked or name not in SOUND


def test_a_large_source_is_refused_at_once() -> None:
    with pytest.raises(GrammarError, match=str(MAX_SOURCE_BYTES)):
        Grammar("regex", "a" * (MAX_SOURCE_BYTES + 1))


# ---- making a compiler ----


def test_a_compiler_checks_its_numbers(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, [EOS])
    assert allowed(compiler, compiler.compile(Grammar("regex", "z"))) == [tokenizer.id_of("z")]
    with pytest.raises(ValueError, match="only 10"):
        GrammarCompiler(tokenizer, 10, [EOS])
    for eos_ids in ([], [-1], [tokenizer.vocab_size]):
        with pytest.raises(ValueError, match="eos_ids"):
            GrammarCompiler(tokenizer, tokenizer.vocab_size, eos_ids)


def test_without_llguidance_the_error_says_how_to_get_it(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary_import = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "llguidance":
            raise ImportError(name)
        return ordinary_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install llguidance"):
        GrammarCompiler(tokenizer, tokenizer.vocab_size, [EOS])


def test_kept_masks_are_those_of_the_tokens_before(compiler: GrammarCompiler) -> None:
    """A copy that goes another way, or back, is shown its own masks, computed or kept."""
    grammar = Grammar.from_choices(["ab", "ac", "bd"])
    beginning = allowed(compiler, compiler.compile(grammar))
    for _ in range(2):
        state = compiler.compile(grammar)
        assert allowed(compiler, state) == beginning
        for token in beginning[:2]:
            state.advance(token)
            alone = compiler._compile(grammar)
            alone.advance(token)
            assert allowed(compiler, state) == allowed(compiler, alone) != beginning
            state.rollback(1)
            assert allowed(compiler, state) == beginning
