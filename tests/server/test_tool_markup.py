"""Calls come out of a model's text whole or not at all, however it is cut."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.server.tool_markup import ToolCall
from holotron.server.tools import (
    HERMES,
    NEMOTRON,
    XML,
    ToolDialect,
    ToolSplitter,
    check_tools,
    detect_dialect,
)

from .toolbox import DIALECTS, TOOLS, everywhere, read, split, tool, write

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
    content, calls = split(NEMOTRON, written)
    message = {"role": "assistant", "content": content}
    message["tool_calls"] = [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls]  # type: ignore[assignment]
    text = template.render([{"role": "user", "content": "go"}, message], TOOLS, add_generation_prompt=False)
    assert written in text


# ---- whole texts ----


@everywhere
def test_calls_are_taken_out_of_the_content(dialect: ToolDialect) -> None:
    calls = [("click", {"x": 3, "y": -4}), ("type.text", {"text": 'é "q" {\\n'}), ("done", {})]
    assert read(dialect, write(dialect, *calls)) == ("", calls)
    assert read(dialect, "No <b>call</b> here <tool") == ("No <b>call</b> here <tool", [])
    text = f"First.\n{write(dialect, calls[0])}\nThen.\n\n{write(dialect, *calls[1:])}\n"
    content, found = read(dialect, text)
    assert content == ("First.\n\nThen.\n\n" if dialect is NEMOTRON else "First.\nThen.")
    assert found == calls


@everywhere
def test_spaces_without_a_call_stay(dialect: ToolDialect) -> None:
    for text in ("", " ", " a \n", "\n\n<", f" {write(dialect, ('click', {}))} b \n"):
        content, calls = read(dialect, text)
        assert content == (text if not calls else " b \n" if dialect is not NEMOTRON else "  b \n")


@everywhere
def test_an_unknown_tool_or_broken_markup_stays_content(dialect: ToolDialect) -> None:
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
def test_json_that_is_no_call_stays_content(dialect: ToolDialect, body: str) -> None:
    text = f"{dialect.opening}{body}{dialect.closing}"
    assert split(dialect, text) == (text, [])


@json_only
def test_json_is_read_as_models_write_it(dialect: ToolDialect) -> None:
    def arguments(body: str) -> str:
        content, (call,) = split(dialect, f"{dialect.opening}{body}{dialect.closing}")
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
    assert split(XML, text) == (text, [])


def test_markup_in_a_call_that_is_refused_is_not_followed() -> None:
    inner = write(XML, ("click", {"x": 1, "y": 1}))
    text = write(XML, ("unknown", {"text": inner}))
    assert split(XML, text) == (text, [])


@everywhere
def test_a_call_that_was_started_over_counts(dialect: ToolDialect) -> None:
    good = write(dialect, ("click", {"x": 1, "y": 2}))
    # In XML, what starts inside of a parameter is a part of its value.
    end = good.index("<parameter") if dialect is XML else len(good) - len(dialect.closing)
    for cut in range(len(dialect.opening), end):
        assert read(dialect, good[:cut] + good) == (
            good[:cut].rstrip() if dialect.spaced else good[:cut],
            read(dialect, good)[1],
        )


# ---- streamed texts ----


def stream(dialect: ToolDialect, pieces: list[str]) -> tuple[str, list[ToolCall]]:
    splitter = ToolSplitter(dialect, TOOLS)
    content, calls = "", []
    for piece in [*pieces, None]:
        more, further = splitter.push("", last=True) if piece is None else splitter.push(piece)
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
def test_however_a_text_is_cut_the_sum_is_the_same(dialect: ToolDialect, data: st.DataObject) -> None:
    text = "".join(data.draw(PIECES[dialect]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    whole = split(dialect, text)
    assert stream(dialect, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole
    assert stream(dialect, list(text)) == whole
    # Nothing is lost: without calls, the text is the content.
    assert whole[1] or whole[0] == text


@everywhere
def test_no_markup_is_shown_before_it_is_refused(dialect: ToolDialect) -> None:
    call = write(dialect, ("click", {"x": 1, "y": 2}))
    splitter = ToolSplitter(dialect, TOOLS)
    assert splitter.push("Hello") == ("Hello", [])
    shown = [splitter.push(letter) for letter in call]
    assert shown[:-1] == [("", [])] * (len(call) - 1)
    assert [found.name for found in shown[-1][1]] == ["click"]
    assert splitter.push(" a<") == (" a", [])
    assert splitter.push("b") == ("<b", [])
    assert splitter.push("", last=True) == ("", [])


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
def test_hostile_text_costs_no_more_than_its_length(dialect: ToolDialect, unit: str) -> None:
    unit = unit.format(opening=dialect.opening, closing=dialect.closing) if "{o" in unit or "{c" in unit else unit
    for prefix in ("", dialect.opening, dialect.opening + '{"name": "', dialect.opening + "<function=f><parameter=x>"):
        text = prefix + unit * (20_000 // len(unit))
        start = time.process_time()
        assert split(dialect, text) == (text, [])
        assert time.process_time() - start < 0.5


@everywhere
def test_a_long_call_in_small_pieces_is_quick(dialect: ToolDialect) -> None:
    text = write(dialect, ("type.text", {"text": "words " * 30_000}))
    start = time.process_time()
    content, calls = stream(dialect, [text[at : at + 3] for at in range(0, len(text), 3)])
    assert (content, len(calls)) == ("", 1)
    assert time.process_time() - start < 2.0
