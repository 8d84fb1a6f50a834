"""Tools that take a text, held to its grammar, and tools of which only some may be called."""

from __future__ import annotations

import json
import re

import openai
import pytest

from holotron.engine.grammar import Grammar, GrammarError
from holotron.server.json_lark import lark_in_json
from holotron.server.tool_grammar import FREE_TEXT, call_grammar
from holotron.server.tool_schemas import CustomTool, as_functions
from holotron.server.tools import ToolDialect

from .test_tool_grammar import compiler, generate, tokenizer
from .toolbox import CLICK, DONE, TOOLS, everywhere, read

__all__ = ["compiler", "tokenizer"]
SUM = 'start: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]{1,2}/\n'
SPOKEN = 'start: LINE ("\\n" LINE)? "\\\\"\nLINE: /"[^a-z\\x00-\\x1f]{1,3}"/ | "\\t".."\\n" | /(?s:.)x/\n'


def custom(name: str, syntax: str | None = None, definition: str = "") -> dict:
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}} if syntax else {"type": "text"}
    return {"type": "custom", "custom": {"name": name, "description": "Runs it.", "format": form}}


def flat(tool: dict) -> dict:
    """A tool of chats as responses have it."""
    inner = dict(tool[tool["type"]])
    if form := inner.pop("format", None):
        inner["format"] = {"type": form["type"], **form.get("grammar", {})}
    return {"type": tool["type"], **inner}


def functions(*tools: dict) -> list[dict]:
    return as_functions([CustomTool.model_validate(tool) for tool in tools])


def is_spoken(text: str) -> bool:
    line = r'("[^a-z\x00-\x1f]{1,3}"|\t|\n|(?s:.)x)'
    return re.fullmatch(rf"{line}(\n{line})?\\", text) is not None


# ---- grammars ----


@everywhere
def test_an_input_is_held_to_its_grammar(compiler, tokenizer, dialect: ToolDialect) -> None:
    tools = functions(custom("add", "lark", SUM), custom("say", "lark", SPOKEN), custom("move", "regex", "[a-h][1-8]"))
    larks = {"add": SUM, "say": SPOKEN, "move": None}
    grammar = call_grammar(dialect, tools, None, True, tokenizer.markup, larks=larks)
    seen = set()
    for seed in range(30):
        content, calls = read(dialect, tokenizer.decode(generate(compiler, tokenizer, grammar, seed)), tools)
        assert content == ""
        for name, arguments in calls:
            (given,) = arguments.values()
            checks = {"add": r"\d{1,2}(\+\d{1,2})*", "move": "[a-h][1-8]"}
            assert is_spoken(given) if name == "say" else re.fullmatch(checks[name], given), (name, given)
            seen.add(name)
    assert seen == {"add", "say", "move"}


def follows(compiler, grammar: Grammar, ids: list[int]) -> bool:
    """Whether a text may be that."""
    state = compiler.compile(grammar)
    try:
        for id_ in ids:
            state.advance(id_)
    except GrammarError:
        return False
    return state.is_complete


@everywhere
@pytest.mark.parametrize("own_tokens", [False, True])
def test_of_some_tools_only_those_are_called_and_text_stays_free(compiler, tokenizer, dialect, own_tokens) -> None:
    markup = tokenizer.markup if own_tokens else None
    grammar = call_grammar(dialect, TOOLS, {"done"}, False, markup, FREE_TEXT)
    for text in ("", "Hello < there", 'A "line"\nand <tool'):
        assert follows(compiler, grammar, tokenizer.encode(text))
    for name in ("done", "click"):
        call = generate(compiler, tokenizer, call_grammar(dialect, TOOLS, {name}, False, markup), 1)
        for before in ("", "Well. "):
            assert follows(compiler, grammar, [*tokenizer.encode(before), *call]) == (name == "done")


@pytest.mark.parametrize("source", ["start: %json {}", "start: <[5]>", "start: A\nA: ~/x/", "start: /\\p{L}/"])
def test_what_json_cannot_keep_is_told(source) -> None:
    with pytest.raises(GrammarError, match="lark grammar"):
        lark_in_json(source)


def test_imports_of_spaces_are_escaped_too(compiler, tokenizer) -> None:
    grammar = Grammar("lark", lark_in_json('%import common.WS\n%import common.INT -> N\nstart: N WS N // "a"\n'))
    for seed in range(5):
        text = tokenizer.decode(generate(compiler, tokenizer, grammar, seed))
        assert re.fullmatch(r"\d+\s+\d+", json.loads(f'"{text}"'))


# ---- a server ----


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def chat(client, messages="Hello", **more):
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    more = {"max_tokens": 200, "seed": 3, "parallel_tool_calls": False} | more
    return client.chat.completions.create(model="tiny", messages=messages, **more)


def respond(client, given="Hello", **more):
    more = {"max_output_tokens": 200, "extra_body": {"seed": 3}, "parallel_tool_calls": False} | more
    return client.responses.create(model="tiny", input=given, **more)


ADD, MOVE = custom("add", "lark", SUM), custom("move", "regex", "[a-h][1-8]")
NOTHING = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
NAMED = {"type": "custom", "custom": {"name": "move"}}


def test_a_chat_calls_a_custom_tool_and_goes_on(client):
    message = chat(client, tools=[ADD, CLICK, MOVE], tool_choice=NAMED).choices[0].message
    (call,) = message.tool_calls
    assert (call.type, call.custom.name) == ("custom", "move")
    assert re.fullmatch("[a-h][1-8]", call.custom.input)
    chunks = list(chat(client, tools=[ADD, CLICK, MOVE], tool_choice=NAMED, stream=True))
    (told,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert (told.index, told.type, told.custom) == (0, "custom", call.custom.model_dump())
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    back = [
        {"role": "user", "content": "Hello"},
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "moved"},
    ]
    assert chat(client, back, tools=[MOVE], tool_choice="none", max_tokens=1).usage.prompt_tokens


def test_a_response_calls_a_custom_tool_and_goes_on(client):
    tools = [flat(tool) for tool in (ADD, CLICK, MOVE)]
    response = respond(client, tools=tools, tool_choice={"type": "custom", "name": "add"})
    (call,) = response.output
    assert (call.type, call.name, response.status) == ("custom_tool_call", "add", "completed")
    assert re.fullmatch(r"\d{1,2}(\+\d{1,2})*", call.input)
    assert response.tools[0].model_dump(exclude_none=True) == tools[0]
    events = list(respond(client, tools=tools, tool_choice={"type": "custom", "name": "add"}, stream=True))
    delta, done = [event for event in events if "custom_tool_call_input" in event.type]
    assert (delta.delta, done.input) == (call.input, call.input)
    assert events[-1].response.output[0].input == call.input
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "12"}
    assert respond(client, [result], previous_response_id=response.id, max_output_tokens=1).output
    history = [{"role": "user", "content": "Hello"}, call.model_dump(exclude_none=True), result]
    assert respond(client, history, tools=tools, max_output_tokens=1, store=False).output


def test_only_allowed_tools_are_called(client):
    def allowed(mode, *names):
        names = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": names}}

    tools = [CLICK, DONE]
    for seed in range(3):
        answer = chat(client, tools=tools, tool_choice=allowed("required", "done"), seed=seed).choices[0]
        assert [call.function.name for call in answer.message.tool_calls] == ["done"]
    free = chat(client, tools=tools, tool_choice=allowed("auto", "done"), max_tokens=8).choices[0]
    assert (free.finish_reason, free.message.tool_calls) == ("length", None)
    assert free.message.content
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "done"}]}
    response = respond(client, tools=list(map(flat, tools)), tool_choice=choice)
    assert response.output[0].name == "done"
    assert response.tool_choice.mode == "required"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tools": [{"type": "custom"}]}, "tools.0.custom"),
        ({"tools": [{"type": "custom", "custom": {"format": {}}}]}, "tools.0.custom.name"),
        ({"tools": [custom("a", "ebnf", "x")]}, "tools.0.custom.format.grammar.syntax"),
        ({"tools": [custom("a", "lark", "start: (")], "tool_choice": "required"}, "tools"),
        ({"tools": [custom("a", "lark", "start: b")]}, "tools"),
        ({"tools": [custom("a", "regex", "(")]}, "tools"),
        ({"tools": [CLICK], "tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        ({"tools": [CLICK], "tool_choice": {"type": "custom", "custom": {"name": "b"}}}, "tool_choice"),
        ({"tools": [CLICK], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tools": [CLICK], "tool_choice": NOTHING}, "tool_choice.allowed_tools.tools"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]}, "messages.0.tool_calls.0.custom"),
    ],
)
def test_what_is_wrong_is_named(http, changes, field):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1} | changes
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
