"""Actions: one text for each, every error an ActionError that says what is wrong, and a schema that allows no other."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from holotron.actions.action import (
    KINDS,
    Action,
    ActionError,
    Answer,
    Click,
    Infeasible,
    Press,
    Type,
    Wait,
    is_terminal,
    parse_action,
    to_dict,
    to_json,
)
from holotron.actions.coordinates import Space
from holotron.actions.describe import describe
from holotron.actions.keys import parse_keys, playwright_keys
from holotron.actions.schema import action_schema
from holotron.engine.grammar import Grammar, GrammarCompiler
from holotron.model.text.tokenizer import Tokenizer
from tests.actions.samples import EVERY_KIND, actions

ANY_ACTION = jsonschema_rs.validator_for(action_schema())

# ---- canonical JSON ----


@settings(deadline=None)
@given(actions())
def test_there_and_back(action: Action) -> None:
    text = to_json(action)
    assert parse_action(text) == action
    assert parse_action(json.loads(text)) == action
    assert to_json(parse_action(text)) == text


def test_defaults_are_left_out_and_keys_have_an_order() -> None:
    assert to_json(Click(x=1, y=2)) == '{"action":"click","x":1,"y":2}'
    assert to_json(Type(text="é", enter=True, x=1, y=2)) == '{"action":"type","text":"é","x":1,"y":2,"enter":true}'
    assert to_json(Wait(seconds=2.0)) == '{"action":"wait","seconds":2}'
    assert to_json(Wait(seconds=0.5)) == '{"action":"wait","seconds":0.5}'
    shuffled = '{"element": "", "y": 2, "button": "left", "x": 1, "action": "click"}'
    assert to_json(parse_action(shuffled)) == '{"action":"click","x":1,"y":2}'


def test_every_kind_is_sampled_and_described() -> None:
    assert {action.action for action in EVERY_KIND} == set(KINDS)
    sentences = [describe(action) for action in EVERY_KIND]
    assert len(set(sentences)) == len(EVERY_KIND)
    assert describe(Click(x=1, y=2, button="right", element="menu")) == 'Right-click "menu" (1, 2)'
    assert describe(Type(text="a", clear=True, enter=True)) == 'Type "a" after clearing it and press Enter'


@settings(deadline=None)
@given(actions())
def test_only_answers_end_an_episode(action: Action) -> None:
    assert is_terminal(action) == isinstance(action, Answer | Infeasible)
    assert len(describe(action)) < 400


# ---- errors ----


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"action":"click","x":1200,"y":3}', "click.x is 1200; it must be a whole number from 0 to 1000"),
        ('{"action":"click","x":1.5,"y":3}', "click.x is 1.5; it must be a whole number"),
        ('{"action":"click","x":true,"y":3}', "click.x is true; it must be a whole number"),
        ('{"action":"click","y":3}', "click.x is missing; it must be a whole number from 0 to 1000"),
        ('{"action":"click","x":1,"y":2,"z":3}', 'click has no field "z"; it has action, x, y, button, element'),
        ('{"action":"click","x":1,"y":2,"button":"side"}', 'click.button is "side"; it must be one of left, right'),
        ('{"action":"fly"}', 'action is "fly"; it must be one of click, double_click'),
        ("{}", "the field action is missing; it must be one of click"),
        ('{"action":{"action":"click"}}', "action is an object; it must be one of click"),
        ("[1]", "not a list"),
        ("null", "not null"),
        ('"click"', 'not "click"'),
        ("", "not valid JSON"),
        ('{"action":"click","x":NaN,"y":1}', "NaN is not a JSON number"),
        ('{"action":"wait","seconds":1e999}', "wait.seconds is Infinity; it must be a number from 0 to 300"),
        ('{"action":"wait","seconds":-1}', "wait.seconds is -1; it must be a number from 0 to 300"),
        ('{"action":"click","x":' + "9" * 30 + ',"y":1}', "click.x is a huge number"),
        ('{"action":"click","x":' + "9" * 5000 + ',"y":1}', "not valid JSON"),
        ('{"action":"type","text":"\\ud800"}', "type.text is"),
        ('{"action":"type","text":"a","x":3}', "type: x is given alone; give x and y or neither"),
        ('{"action":"type","text":"' + "a" * 10_001 + '"}', "of at most 10000 characters"),
        ('{"action":"press","keys":"Contrl+A"}', "press.keys is \"Contrl+A\": there is no key 'Contrl'"),
        ('{"action":"press","keys":"a+b"}', "besides modifiers only one can be"),
        ('{"action":"goto","url":"java script:"}', "goto.url is \"java script:\"; it must be a text without blanks"),
        ('{"action":"back","action":"forward"}', "a key is given twice"),
        ('{"action":"back"} extra', "not valid JSON"),
        ('{"a":' * 50_000, "nested too deeply|characters"),
        ("[" * 90_000, "nested too deeply|not valid JSON"),
        (5, "not 5"),
        (None, "not null"),
        (b"{}", "not bytes"),
        ({1: 2, "action": "back"}, "back has no field"),
        ({"action": ["click"]}, "action is a list"),
        ({"action": "click", "x": object(), "y": 1}, "click.x is object; it must be a whole number"),
    ],
)  # fmt: skip
def test_errors_name_field_value_and_what_is_allowed(source: Any, message: str) -> None:
    with pytest.raises(ActionError, match=re.escape(message).replace(r"\|", "|")):
        parse_action(source)


def test_hostile_objects_are_refused() -> None:
    deep: dict[str, Any] = {"action": "click"}
    inner = deep
    for _ in range(100_000):
        inner["x"] = inner = {}
    with pytest.raises(ActionError):
        parse_action(deep)
    cyclic: dict[str, Any] = {"action": "type"}
    cyclic["text"] = cyclic
    with pytest.raises(ActionError, match=r"type\.text is an object"):
        parse_action(cyclic)
    while deep:  # taken apart by hand: freeing it at once would recurse
        deep = deep.pop("x", {})


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELD_NAMES = st.sampled_from(["x", "y", "text", "keys", "url", "seconds", "index", "direction", "element", "zzz"])


@settings(deadline=None)
@given(st.sampled_from([*KINDS, "fly"]), st.dictionaries(FIELD_NAMES, JSON_LIKE, max_size=5))
def test_nothing_but_an_action_error_comes_out(kind: str, fields: dict[str, Any]) -> None:
    for source in ({"action": kind, **fields}, json.dumps({"action": kind, **fields})):
        try:
            action = parse_action(source)
        except ActionError as error:
            str(error).encode()
        else:
            assert parse_action(to_json(action)) == action


@settings(deadline=None)
@given(st.text(st.characters(), max_size=80))
def test_texts_without_an_action_are_refused(text: str) -> None:
    with pytest.raises(ActionError):
        parse_action(text)


def test_an_action_inside_other_text_is_refused() -> None:
    with pytest.raises(ActionError, match="not valid JSON"):
        parse_action('I will {"action":"back"} or rather {"action":"click","x":1,"y":2}')


# ---- keys ----


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("ctrl+a", "Control+A"), ("Control+A", "Control+A"), ("A+CTRL", "Control+A"), ("cmd+shift+t", "Shift+Meta+T"),
        ("Control++", "Control++"), ("+", "+"), ("ctrl+plus", "Control++"), ("esc", "Escape"), ("RETURN", "Enter"),
        ("a", "a"), ("A", "A"), ("KeyA", "a"), ("Digit7", "7"), ("f11", "F11"), (" ", "Space"), ("spacebar", "Space"),
        ("Shift", "Shift"), ("Shift+Control", "Control+Shift"), ("Page_Down", "PageDown"), ("left", "ArrowLeft"),
        ("super", "Meta"), ("ControlOrMeta+C", "Control+C"), ("Alt_L", "Alt"), ("é", "é"),
    ],
)  # fmt: skip
def test_one_spelling_of_each_key(written: str, keys: str) -> None:
    assert parse_keys(written) == keys
    assert parse_keys(keys) == keys
    assert Press(keys=written).keys == keys


@pytest.mark.parametrize(
    "written", ["", "ctrl+", "+a", "foo", "ctrl+foo", "a+b", "F13", "\n", "ctrl++a", "++", "\ud800"]
)
def test_what_is_no_key(written: str) -> None:
    with pytest.raises(ActionError, match=r"press\.keys"):
        parse_action({"action": "press", "keys": written})


def test_playwright_spelling() -> None:
    assert playwright_keys("Control+A") == "Control+a"
    assert playwright_keys("Control+Shift+T") == "Control+Shift+T"
    assert playwright_keys("Control++") == "Control++"
    assert playwright_keys("A") == "A"
    assert playwright_keys("Enter") == "Enter"


# ---- points ----


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.data())
def test_points_there_and_back(width: int, height: int, data: st.DataObject) -> None:
    space = Space("pixels", width, height)
    x, y = data.draw(st.integers(0, 1000)), data.draw(st.integers(0, 1000))
    across, down = space.from_relative(x, y)
    assert 0 <= across < width
    assert 0 <= down < height
    again = space.to_relative(across, down)
    for value, other, side in zip((x, y), again, (width, height), strict=True):
        assert abs(value - other) <= max(1, 500 / side + 0.5 if side > 1 else 500)
    if max(width, height) <= 1001:
        assert space.from_relative(*again) == (across, down)


def test_points_outside_are_moved_inside() -> None:
    space = Space("pixels", 160, 210)
    assert space.to_relative(-5, 9999) == space.to_relative(0, 209)
    assert space.to_relative(10.9, 20.2) == space.to_relative(10, 20)
    assert Space("relative", 160, 210).to_relative(1200, -1) == (1000, 0)
    with pytest.raises(ValueError, match="not a place"):
        space.to_relative(float("nan"), 1)
    with pytest.raises(ValueError, match="there is no space 'inches'"):
        Space("inches", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="width is 0"):
        Space("pixels", 0, 1)


# ---- the schema ----


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    toy = tokenizers.Tokenizer(models.BPE())
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, special_tokens=["<eos>"], show_progress=False
    )
    toy.train_from_iterator([to_json(action) for action in EVERY_KIND] * 9, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    toy.save(str(path))
    return Tokenizer(Path(path))


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size, [0])


@settings(deadline=None)
@given(actions())
def test_the_schema_allows_actions(action: Action) -> None:
    value = to_dict(action)
    subset = action.action == "wait" and not isinstance(value["seconds"], int)
    subset |= isinstance(action, Press) and not action.keys.isascii()
    assert ANY_ACTION.is_valid(value) or subset
    assert jsonschema_rs.is_valid(action_schema([action.action]), value) or subset
    assert not ANY_ACTION.is_valid(value | {"more": 1})


def test_the_schema_of_some_kinds() -> None:
    schema = action_schema(["click", "answer", "click"])
    assert [variant["properties"]["action"] for variant in schema["anyOf"]] == [{"const": "click"}, {"const": "answer"}]
    assert action_schema(["back"])["properties"] == {"action": {"const": "back"}}
    assert not jsonschema_rs.is_valid(schema, {"action": "back"})
    with pytest.raises(ValueError, match="there is no action 'fly'; choose from click"):
        action_schema(["fly"])
    with pytest.raises(ValueError, match="at least one action"):
        action_schema([])


def test_strings_in_the_schema_are_bounded() -> None:
    for variant in action_schema()["anyOf"]:
        assert variant["additionalProperties"] is False
        assert variant["required"][0] == "action"
        for rule in variant["properties"].values():
            assert rule.get("type") != "string" or {"maxLength", "pattern", "enum"} & set(rule)


def test_whatever_the_grammar_lets_through_is_an_action(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = Grammar.from_schema(action_schema())
    start = compiler.compile(grammar)
    kinds = set()
    for seed in range(60):
        text = _random_text(start.copy(), compiler, tokenizer, random.Random(seed))
        action = parse_action(text)
        kinds.add(action.action)
    assert len(kinds) > 8


def test_the_grammar_accepts_canonical_texts(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    start = compiler.compile(Grammar.from_schema(action_schema()))
    for action in EVERY_KIND:
        if action == Wait(seconds=0.5):
            continue  # the schema has whole seconds only
        state = start.copy()
        for id_ in tokenizer.encode(to_json(action)):
            state.advance(id_)
        assert state.is_complete, action


def _random_text(state: Any, compiler: GrammarCompiler, tokenizer: Tokenizer, chance: random.Random) -> str:
    """A text of random allowed tokens; closing marks are favoured after a while so that it ends."""
    closing = [tokenizer.id_of(mark) for mark in '"}']
    bitmask = torch.zeros((compiler.vocab_size + 31) // 32, dtype=torch.int32)
    ids: list[int] = []
    while not state.is_finished:
        state.mask_into(bitmask)
        words = bitmask.tolist()
        allowed = [id_ for id_ in range(1, compiler.vocab_size) if words[id_ // 32] >> id_ % 32 & 1]
        hurry = [id_ for id_ in closing if id_ in allowed] if len(ids) > 12 else []
        ids.append(chance.choice(hurry or allowed))
        state.advance(ids[-1])
        assert len(ids) < 400
    return tokenizer.decode(ids, skip_special=True)
