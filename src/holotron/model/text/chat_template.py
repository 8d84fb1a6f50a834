"""The template that writes a conversation down as one text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from holotron.model.checkpoint.companions import read_json
from holotron.model.errors import ModelError

TemplateMessage = Mapping[str, Any]

DEFAULT_TEMPLATE = Path(__file__).with_name("default_chat.jinja")

# Where a template looks at these, an item's neighbours decide at most what is written for it.
_NEIGHBOURS = ("first", "last", "previtem", "nextitem")
_STATEFUL = ("namespace", "cycler", "joiner")


class ChatTemplate:
    """A checkpoint's Jinja chat template, run in a sandbox with the helpers that published templates expect."""

    def __init__(self, source: str, **special_tokens: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.source = source
        self.special_tokens = special_tokens
        try:
            self._template = environment.from_string(source)
            # Then what comes behind an answer can be written without the messages long before it.
            self.is_local = _is_local(environment.parse(source))
        except TemplateSyntaxError as error:
            raise ModelError(f"the chat template is broken at line {error.lineno}: {error.message}") from error
        except Exception as error:
            raise ModelError(f"the chat template cannot be compiled: {type(error).__name__}: {error}") from error

    def render(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The conversation as one text. Further keyword arguments are the template's own variables."""
        if "developer" not in self.source:  # it would refuse the role, or leave the message out without a word
            messages = [{**said, "role": "system"} if said["role"] == "developer" else said for said in messages]
        variables = {**self.special_tokens, **kwargs}
        variables.update(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)
        try:
            return self._template.render(variables)
        except TemplateError as error:
            raise ModelError(f"the chat template refuses this conversation: {error.message}") from error
        except Exception as error:
            raise ModelError(f"the chat template fails here: {type(error).__name__}: {error}") from error


class _GenerationTag(Extension):
    """Lets {% generation %} pass: it marks answers for training and writes nothing itself."""

    tags = {"generation"}  # noqa: RUF012 - declared mutable by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes < and > for HTML and sorts keys; models were trained without either.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _is_local(tree: nodes.Template) -> bool:
    """Whether what is written for a message follows from it, its neighbours and the first message.

    So it is if nothing is carried from one message to the next, one loop goes through them, and they are looked at
    nowhere else, save for the first one.
    """
    loops = list(tree.find_all(nodes.For))
    over = [loop for loop in loops if _names(loop.iter, "messages")]
    if len(over) != 1 or over[0].test is not None or over[0].recursive:
        return False
    within: list[nodes.Node] = [*loops, *tree.find_all((nodes.Macro, nodes.CallBlock))]
    if any(over[0] in other.find_all(nodes.For) for other in within):
        return False
    if any(tree.find_all((nodes.NSRef, nodes.Break, nodes.Continue))) or any(_names(tree, *_STATEFUL)):
        return False
    known = {id(name) for name in _whole(over[0].iter)}
    for node in tree.find_all((nodes.Getitem, nodes.And, nodes.Not, nodes.If, nodes.CondExpr)):
        match node:
            case nodes.Getitem(node=nodes.Name() as name, arg=nodes.Const(value=0)):
                known.add(id(name))
            case nodes.And(left=nodes.Name() as name) | nodes.Not(node=nodes.Name() as name):
                known.add(id(name))
            case nodes.If(test=nodes.Name() as name) | nodes.CondExpr(test=nodes.Name() as name):
                known.add(id(name))
    for node in tree.find_all(nodes.Getattr):
        if isinstance(node.node, nodes.Name) and node.attr in _NEIGHBOURS:
            known.add(id(node.node))
    return all(id(name) in known for name in _names(tree, "messages", "loop"))


def _names(tree: nodes.Node, *names: str) -> list[nodes.Name]:
    return [node for node in (tree, *tree.find_all(nodes.Name)) if isinstance(node, nodes.Name) and node.name in names]


def _whole(node: nodes.Node) -> list[nodes.Name]:
    """The names in an expression that is all messages, or all but the first, or one of these by some condition."""
    match node:
        case nodes.Name():
            return [node]
        case nodes.Getitem(node=nodes.Name() as name, arg=nodes.Slice() as cut):
            return [name] if cut == nodes.Slice(nodes.Const(1), None, None) else []
        case nodes.CondExpr(expr1=first, expr2=nodes.Node() as second):
            return [*_whole(first), *_whole(second)]
    return []


def load_chat_template(folder: Path) -> ChatTemplate:
    """The chat template of a checkpoint folder, wherever it keeps it, or else the default one."""
    settings = read_json(folder / "tokenizer_config.json") or {}
    special_tokens = {
        name: token
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if isinstance(token := _content(settings.get(name)), str)
    }
    for name, value in (
        ("chat_template.jinja", _read_text(folder / "chat_template.jinja")),
        ("chat_template.json", (read_json(folder / "chat_template.json") or {}).get("chat_template")),
        ("tokenizer_config.json", settings.get("chat_template")),
    ):
        if value is not None:
            return ChatTemplate(_choose(folder / name, value), **special_tokens)
    return ChatTemplate(DEFAULT_TEMPLATE.read_text(encoding="utf-8"), **special_tokens)


def _choose(path: Path, value: object) -> str:
    """The template in a setting that is one text, or a list of named ones."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        if "default" not in named:
            raise ModelError(f"{path} has the chat templates {sorted(map(str, named))} and none called 'default'")
        value = named["default"]
    if not isinstance(value, str):
        raise ModelError(f"the chat template in {path} is a {type(value).__name__}; it must be text")
    return value


def _content(token: object) -> object:
    return token.get("content") if isinstance(token, dict) else token


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
