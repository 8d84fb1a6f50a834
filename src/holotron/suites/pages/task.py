"""Templates of pages and the tasks drawn from them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from holotron.suites.pages import templates as folder
from holotron.suites.pages.behaviour import own_script, read_script
from holotron.suites.pages.builder import PageBuilder, PageContent
from holotron.suites.pages.distractors import Distractor, draw_distractor
from holotron.suites.pages.style import PageStyle, draw_style

Draw = Callable[[PageBuilder], PageContent]
# The share of pages on which the Enter key sends nothing.
IGNORES_ENTER_SHARE = 0.2
# The share of tasks that are asked for in a whole sentence, with more words than they need.
ADDRESSED_SHARE = 0.2


class UnknownTemplate(KeyError):
    """Unknown template."""


@dataclass(frozen=True)
class Template:
    """A kind of page with a task on it. Held-out ones are for evaluation and never drawn for training."""

    name: str
    draw: Draw
    held_out: bool
    wide: bool


@dataclass(frozen=True)
class PageTask:
    """A page, what to do on it, and the size of the window it is shown in."""

    text: str
    html: str
    viewport: tuple[int, int]
    template: str
    seed: int
    held_out: bool


_TEMPLATES: dict[str, Template] = {}


def template(*, held_out: bool = False, wide: bool = False) -> Callable[[Draw], Draw]:
    """Register a drawing function under its own name."""

    def register(draw: Draw) -> Draw:
        name = draw.__name__
        assert name not in _TEMPLATES, f"two templates named {name}"
        _TEMPLATES[name] = Template(name, draw, held_out, wide)
        return draw

    return register


def all_templates(held_out: bool | None = None) -> list[Template]:
    """All templates by name, or only those that are held out, or only those that are not."""
    _load()
    return [_TEMPLATES[name] for name in sorted(_TEMPLATES) if held_out in (None, _TEMPLATES[name].held_out)]


def draw_task(name: str, seed: int, restyle: Callable[[PageStyle], PageStyle] = lambda style: style) -> PageTask:
    """The same page and task for the same seed. restyle: changes how it looks, once all else is drawn."""
    _load()
    if name not in _TEMPLATES:
        raise UnknownTemplate(f"there is no template {name!r}; there are {', '.join(sorted(_TEMPLATES))}")
    made = _TEMPLATES[name]
    chance = random.Random(f"{name}/{seed}")
    style = draw_style(chance, wide=made.wide)
    drawn = made.draw(PageBuilder(chance, style))
    data, text, distractor = dict(drawn.data), drawn.text, Distractor()
    if not made.held_out:  # those stay as they were first measured
        variations = random.Random(f"{name}/{seed}/habits")
        style, data["deaf"] = style.varied(variations), variations.random() < IGNORES_ENTER_SHARE
        if variations.random() < ADDRESSED_SHARE:
            text = _addressed(PageBuilder(variations, style).saying("addressed"), text)
        distractor = draw_distractor(variations, text)
    style = restyle(style)
    script = own_script(name) if drawn.script is None else drawn.script
    # "</" would end the script in the middle of a text.
    written = json.dumps(data).replace("</", "<\\/")
    behaviour = f"{read_script('runtime')}\nconst data = {written};\n{script}{distractor.script}"
    body = f"{distractor.before}{drawn.body}{distractor.after}"
    html = style.without(drawn.text).document(drawn.title, body, behaviour)
    return PageTask(text, html, style.viewport, name, seed, made.held_out)


def is_held_out(name: str) -> bool:
    """Whether a template is, or that of LIBRARY/TEMPLATE."""
    _load()
    return _TEMPLATES[name.rpartition("/")[2]].held_out


def _addressed(way: str, text: str) -> str:
    """The task as one asks somebody; what begins with a name or in quotes stays as it is."""
    if not (text[1:2].islower() or text[1:2] == " ") or text.split()[0].endswith(":") or "?" in text:
        return text
    return way.format(text=text[0].lower() + text[1:])


@cache
def _load() -> None:
    for module in iter_modules(folder.__path__):
        import_module(f"{folder.__name__}.{module.name}")
