"""What `mkdocs build` does besides: the command line's reference, and links that lead out of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:src|benchmarks|README|CONTRIBUTING|pipelines|recipes|tests)[^)]*)\)")
PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository are names here, those to raw figures their paths."""
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, "\n".join(command_lines()))
    return OUTSIDE.sub(lambda found: f"`{found[2]}`" if found[1] == "raw" else found[1], markdown)


def command_lines() -> Iterator[str]:
    """Every command with its help and options, as Markdown."""
    from typer.main import get_command

    from holotron.cli.main import app

    yield from _described("holotron", get_command(app))


def _described(path: str, command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        yield f"\n## `{path}`\n"
        yield (command.help or "").replace("\\[", "[")
        yield from _parameters(command)
        yield from _examples(command)
    for name, each in below.items():
        yield from _described(f"{path} {name}", each)


def _parameters(command: Any) -> Iterator[str]:
    rows = [parameter for parameter in command.params if parameter.name != "help"]
    if not rows:
        return
    yield "\n| option | default | |\n|---|---|---|"
    for parameter in rows:
        name = (
            (parameter.metavar or parameter.name.upper())
            if parameter.param_type_name == "argument"
            else ", ".join(parameter.opts)
        )
        default = parameter.default
        shown = "" if default in (None, False, ()) or callable(default) or parameter.required else f"`{default}`"
        text = _plain(getattr(parameter, "help", None) or "").replace("|", "\\|")
        yield f"| `{name}` | {'required' if parameter.required else shown} | {text} |"


def _examples(command: Any) -> Iterator[str]:
    lines = [line for line in (command.epilog or "").splitlines() if line.strip(" \b")][1:]
    if lines:
        yield "\n```sh\n" + "\n".join(lines) + "\n```"


def _plain(text: str) -> str:
    return re.sub(r"\[/?(?:bold|dim)\]", "", text)
