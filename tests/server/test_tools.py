"""Calls come out of a model's text whole or not at all, however it is cut; and a forced call is always a valid one."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarError
from holotron.model.chat import DEFAULT_TEMPLATE, ChatTemplate, Tokenizer
from holotron.server.tools import (
    DIALECTS,
    HERMES,
    NEMOTRON,
    XML,
    Dialect,
    ToolCall,
    ToolSplitter,
    call_grammar,
    check_tools,
    detect_dialect,
)


def tool(name: str, properties: dict[str, Any] | None = None, /, *required: str, **more: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "description": f"Does {name}."}
    if properties is not None:
        function["parameters"] = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"type": "function", "function": function}


CLICK = tool("click", {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "y": {"type": "integer"}}, "x", "y")
TYPE = tool(
    "type.text",
    {
        "text": {"type": "string", "maxLength": 12},
        "key": {"enum": ["Enter", "Tab", 'a"b\n']},
        "note": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 9}, {"type": "null"}]},
        "delay": {"type": "number"},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "any": {},
    },
    "text",
)
DONE = tool("done")
TOOLS = [CLICK, TYPE, DONE]


def write(dialect: Dialect, *calls: tuple[str, dict[str, Any]]) -> str:
    """The calls as a model of the dialect writes them."""
    texts = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    if dialect is NEMOTRON:
        return f"<TOOLCALL>[{', '.join(texts)}]</TOOLCALL>"
    if dialect is XML:
        texts = []
        for name, arguments in calls:
            values = [
                f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
                for key, value in arguments.items()
            ]
            texts.append(f"<function={name}>\n{''.join(values)}</function>")
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)


def read(dialect: Dialect, text: str, tools: list[dict[str, Any]] = TOOLS) -> tuple[str, list[tuple[str, Any]]]:
    content, calls = dialect.parse(text, tools)
    return content, [(call.name, json.loads(call.arguments)) for call in calls]


everywhere = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
json_only = pytest.mark.parametrize("dialect", [NEMOTRON, HERMES], ids=lambda dialect: dialect.name)

# ---- dialects ----


def test_a_dialect_is_known_by_its_template() -> None:
    hermes = '{{- \'<tool_call>\\n{"name": "\' }}{{- tool_call.name }}'
    coder = "{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}{{- '<parameter=' + args_name + '>\\n' }}"
    assert detect_dialect(DEFAULT_TEMPLATE.read_text(encoding="utf-8")) is NEMOTRON
    assert detect_dialect(hermes) is HERMES
    assert detect_dialect(coder) is XML
    assert detect_dialect("{{ messages }}") is None
    assert detect_dialect("<function=") is None


def test_what_the_default_template_writes_is_read_back_and_written_again() -> None:
    template = ChatTemplate(DEFAULT_TEMPLATE.read_text(encoding="utf-8"))
    written = 'Look:\n<TOOLCALL>[{"name": "click", "arguments": {"x": 1,  "y": 1e2}}]</TOOLCALL>'
    content, calls = NEMOTRON.parse(written, TOOLS)
    message = {"role": "assistant", "content": content}
    message["tool_calls"] = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]  # type: ignore[assignment]
    text = template.render([{"role": "user", "content": "go"}, message], TOOLS, add_generation_prompt=False)
    assert written in text


# ---- whole texts ----


@everywhere
def test_calls_are_taken_out_of_the_content(dialect: Dialect) -> None:
    calls = [("click", {"x": 3, "y": -4}), ("type.text", {"text": 'é "q" {\\n'}), ("done", {})]
    assert read(dialect, write(dialect, *calls)) == ("", calls)
    assert read(dialect, "No <b>call</b> here <tool") == ("No <b>call</b> here <tool", [])
    text = f"First.\n{write(dialect, calls[0])}\nThen.\n\n{write(dialect, *calls[1:])}\n"
    content, found = read(dialect, text)
    assert content == ("First.\n\nThen.\n\n" if dialect is NEMOTRON else "First.\nThen.")
    assert found == calls


@everywhere
def test_spaces_without_a_call_stay(dialect: Dialect) -> None:
    for text in ("", " ", " a \n", "\n\n<", f" {write(dialect, ('click', {}))} b \n"):
        content, calls = read(dialect, text)
        assert content == (text if not calls else " b \n" if dialect is not NEMOTRON else "  b \n")


@everywhere
def test_an_unknown_tool_or_broken_markup_stays_content(dialect: Dialect) -> None:
    good = write(dialect, ("click", {"x": 1, "y": 2}))
    for bad in (
        write(dialect, ("unknown", {"x": 1})),
        good[:-1],
        good.replace("click", ""),
        good.replace(dialect.closing, ""),
        good.replace("1", "1]", 1),
        f"{dialect.opening}{dialect.closing}",
        f"{dialect.opening}[]{dialect.closing}",
        f"{dialect.opening} nothing {dialect.closing}",
        dialect.closing,
    ):
        assert read(dialect, bad) == (bad, [])
        # What comes after it is still understood.
        assert read(dialect, f"{bad} {good}.")[1] == [("click", {"x": 1, "y": 2})]


@json_only
@pytest.mark.parametrize(
    "body",
    [
        '{"name": "click"',
        '{"name": "click", "arguments": [1]}',
        '{"name": "click", "arguments": 1}',
        '{"name": "click", "arguments": "no"}',
        '{"name": ["click"], "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "click", "arguments": {"x": NaN}}',
        '{"name": "click" "arguments": {}}',
        '{"name": "click", }',
        '{name: "click"}',
        '{1: 2, "name": "click"}',
        '{"name": "click"} {"name": "click"}',
        '[{"name": "click"},]',
        '[{"name": "click"}] 1',
        '[{"name": "click"}, {"name": "unknown"}]',
        '["click"]',
        '{"name": "click", "arguments": {"x": ' + "[" * 5000 + "]" * 5000 + "}}",
        '{"name": "click", "arguments": {"x": ' + "9" * 5000 + "}}",
    ],
)
def test_json_that_is_no_call_stays_content(dialect: Dialect, body: str) -> None:
    text = f"{dialect.opening}{body}{dialect.closing}"
    assert dialect.parse(text, TOOLS) == (text, [])


@json_only
def test_json_is_read_as_models_write_it(dialect: Dialect) -> None:
    def arguments(body: str) -> str:
        content, (call,) = dialect.parse(f"{dialect.opening}{body}{dialect.closing}", TOOLS)
        assert content == ""
        return call.arguments

    # As it was written, so that a history can be written back exactly.
    assert arguments('\n {"arguments" : {"x":1.50, "y" : 1e999} ,\n"name":"click"}\n') == '{"x":1.50, "y" : 1e999}'
    assert arguments('{"name": "click"}') == "{}"
    assert arguments('{"name": "click", "arguments": null}') == "{}"
    assert arguments('{"name": "click", "arguments": "{\\"x\\": 1}"}') == '{"x": 1}'
    assert arguments('{"name": "click", "arguments": {"x": "\\ud800"}}') == '{"x": "\\ud800"}'
    assert json.loads(arguments('{"name": "type.text", "arguments": {"text": "a\nb"}}')) == {"text": "a\nb"}
    tricky = f'a "}}]{dialect.closing} {dialect.opening}{{'
    assert json.loads(arguments(json.dumps({"name": "click", "arguments": {"x": tricky}}))) == {"x": tricky}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "\n12\n", "12"),
        ("text", "inline", "inline"),
        ("text", "\n\n two \n\n", "\n two \n"),
        ("text", '\n"quoted" <tool_call>\n', '"quoted" <tool_call>'),
        ("text", "", ""),
        ("key", "\n5\n", "5"),
        ("note", "\nnull\n", None),
        ("note", "\nNone\n", None),
        ("note", "\n5\n", "5"),
        ("note", '\n"a"\n', '"a"'),
        ("delay", "\n 0.5 \n", 0.5),
        ("delay", "\n5\n", 5),
        ("flags", "\n[true,\n false]\n", [True, False]),
        ("flags", "\nTrue\n", True),
        ("any", "\nfree text\n", "free text"),
        ("any", "\n5\n", 5),
        ("any", '\n"a"\n', "a"),
        ("undeclared", '\n{"a": 1}\n', {"a": 1}),
    ],
)
def test_a_parameter_has_the_type_of_its_schema(key: str, text: str, value: object) -> None:
    markup = f"<tool_call>\n<function=type.text>\n<parameter={key}>{text}</parameter>\n</function>\n</tool_call>"
    assert read(XML, markup) == ("", [("type.text", {key: value})])


def test_a_parameter_may_refer_to_definitions() -> None:
    colour = {"$ref": "#/$defs/Colour"}
    tools = [
        tool(
            "paint",
            {"a": colour, "b": {"allOf": [colour], "default": "red"}, "c": {"$ref": "#/$defs/Loop"}, "d": True},
            **{"$defs": {"Colour": {"type": "string", "enum": ["1", "2"]}, "Loop": {"$ref": "#/$defs/Loop"}}},
        )
    ]
    check_tools(tools)
    values = {"a": "1", "b": "2", "c": 3, "d": 4}
    assert read(XML, write(XML, ("paint", values)), tools) == ("", [("paint", values)])


def test_a_number_that_is_none_is_no_call() -> None:
    text = write(XML, ("type.text", {"text": "a", "delay": "soon"}))
    assert XML.parse(text, TOOLS) == (text, [])


def test_markup_in_a_call_that_is_refused_is_not_followed() -> None:
    inner = write(XML, ("click", {"x": 1, "y": 1}))
    text = write(XML, ("unknown", {"text": inner}))
    assert XML.parse(text, TOOLS) == (text, [])


@everywhere
def test_a_call_that_was_started_over_counts(dialect: Dialect) -> None:
    good = write(dialect, ("click", {"x": 1, "y": 2}))
    # In XML, what starts inside of a parameter is a part of its value.
    end = good.index("<parameter") if dialect is XML else len(good) - len(dialect.closing)
    for cut in range(len(dialect.opening), end):
        assert read(dialect, good[:cut] + good) == (
            good[:cut].rstrip() if dialect.spaced else good[:cut],
            read(dialect, good)[1],
        )


# ---- streamed texts ----


def stream(dialect: Dialect, pieces: list[str]) -> tuple[str, list[ToolCall]]:
    splitter = ToolSplitter(dialect, TOOLS)
    content, calls = "", []
    for piece in [*pieces, None]:
        more, further = splitter.finish() if piece is None else splitter.push(piece)
        content, calls = content + more, calls + further
    return content, calls


PIECES = {
    dialect: st.lists(
        st.sampled_from(
            [
                write(dialect, ("click", {"x": 1, "y": 2})),
                write(dialect, ("click", {"x": 1}), ("done", {})),
                write(dialect, ("type.text", {"text": "</tool_call> <tool_call>"})),
                write(dialect, ("unknown", {})),
                *(dialect.opening, dialect.closing, dialect.opening[:-2], "</", "<", "<<", " ", "\n", "text", "é"),
                *('{"name": "done"', "{", "}", "[", "]", '"', "\\", ",", ":", "1", "<function=done>", "</function>"),
                *("<function=", "<parameter=x>", "</parameter>", "\n</para", ">", "\u00a0"),
            ]
        ),
        max_size=12,
    )
    for dialect in DIALECTS
}


@everywhere
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_however_a_text_is_cut_the_sum_is_the_same(dialect: Dialect, data: st.DataObject) -> None:
    text = "".join(data.draw(PIECES[dialect]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    whole = dialect.parse(text, TOOLS)
    assert stream(dialect, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole
    assert stream(dialect, list(text)) == whole
    # Nothing is lost: without calls, the text is the content.
    assert whole[1] or whole[0] == text


@everywhere
def test_no_markup_is_shown_before_it_is_refused(dialect: Dialect) -> None:
    call = write(dialect, ("click", {"x": 1, "y": 2}))
    splitter = ToolSplitter(dialect, TOOLS)
    assert splitter.push("Hello") == ("Hello", [])
    shown = [splitter.push(letter) for letter in call]
    assert shown[:-1] == [("", [])] * (len(call) - 1)
    assert [found.name for found in shown[-1][1]] == ["click"]
    assert splitter.push(" a<") == (" a", [])
    assert splitter.push("b") == ("<b", [])
    assert splitter.finish() == ("", [])


@everywhere
@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "\n",
        ">",
        "{",
        '"',
        "\\",
        "{opening}",
        '{opening}{{"',
        "{opening}[",
        "{opening}<function=f><parameter=x>",
        "{closing}",
        '{opening}{{"a":"{closing}',
    ],
)
def test_hostile_text_costs_no_more_than_its_length(dialect: Dialect, unit: str) -> None:
    unit = unit.format(opening=dialect.opening, closing=dialect.closing) if "{o" in unit or "{c" in unit else unit
    for prefix in ("", dialect.opening, dialect.opening + '{"name": "', dialect.opening + "<function=f><parameter=x>"):
        text = prefix + unit * (20_000 // len(unit))
        start = time.process_time()
        assert dialect.parse(text, TOOLS) == (text, [])
        assert time.process_time() - start < 0.5


@everywhere
def test_a_long_call_in_small_pieces_is_quick(dialect: Dialect) -> None:
    text = write(dialect, ("type.text", {"text": "words " * 30_000}))
    start = time.process_time()
    content, calls = stream(dialect, [text[at : at + 3] for at in range(0, len(text), 3)])
    assert (content, len(calls)) == ("", 1)
    assert time.process_time() - start < 2.0


# ---- forced calls ----


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
    compiler: GrammarCompiler, tokenizer: Tokenizer, dialect: Dialect, own_tokens: bool
) -> None:
    grammar = call_grammar(dialect, TOOLS, None, True, tokenizer.markup if own_tokens else None)
    names, counts = set(), set()
    for seed in range(40):
        ids = generate(compiler, tokenizer, grammar, seed)
        assert (tokenizer.markup["<tool_call>"] in ids) == (own_tokens and dialect is not NEMOTRON)
        content, calls = dialect.parse(tokenizer.decode(ids), TOOLS)
        assert content == ""
        assert calls
        for call in calls:
            check_arguments(call.name, json.loads(call.arguments))
        names |= {call.name for call in calls}
        counts.add(len(calls))
    assert names == {"click", "type.text", "done"}
    assert len(counts) > 1


@everywhere
def test_a_named_call_is_the_only_one(compiler: GrammarCompiler, tokenizer: Tokenizer, dialect: Dialect) -> None:
    grammar = call_grammar(dialect, TOOLS, "click", False)
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
    grammar = call_grammar(XML, tools, "f", False)
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
        call_grammar(HERMES, TOOLS, "fly", False)
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


# ---- tools ----


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ({}, "tools must be a list"),
        ([CLICK, "x"], r"tools\[1\] must be an object"),
        ([{"type": "web"}], r"tools\[0\]\.type .*'web'"),
        ([{"type": "function"}], r"tools\[0\]\.function must be an object, not missing"),
        ([CLICK, tool("a b")], r"tools\[1\]\.function\.name .*'a b'"),
        ([tool("")], r"tools\[0\]\.function\.name"),
        ([tool("a\n")], r"tools\[0\]\.function\.name"),
        ([tool("a" * 65)], r"tools\[0\]\.function\.name"),
        ([{"type": "function", "function": {}}], r"tools\[0\]\.function\.name .*None"),
        ([CLICK, DONE, CLICK], r"tools\[2\]\.function\.name is 'click', the name of tools\[0\]"),
        ([{"type": "function", "function": {"name": "a", "description": 1}}], r"tools\[0\]\.function\.description"),
        ([{"type": "function", "function": {"name": "a", "parameters": []}}], r"tools\[0\]\.function\.parameters must"),
        ([tool("a", {}, type="array")], r"tools\[0\]\.function\.parameters\.type .*'array'"),
        ([tool("a", {"x": 1})], r"tools\[0\]\.function\.parameters\.properties\['x'\]"),
        ([tool("a", {}, properties=[])], r"tools\[0\]\.function\.parameters\.properties must"),
        ([tool("a", {}, required="x")], r"tools\[0\]\.function\.parameters\.required"),
    ],
)
def test_a_wrong_tool_is_named_with_its_field(tools: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_tools(tools)


def test_right_tools_pass() -> None:
    check_tools(TOOLS)
    check_tools([])
    check_tools([{"type": "function", "function": {"name": "a" * 64, "description": None, "parameters": {}}}])
