"""The pages of a memory test: one that shows a code, many that do not matter, and one that asks for the code.

All is drawn from a seed, so that a trial is the same on every machine that has the same fonts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import Template
from typing import Literal, get_args

from holotron.suites.kit.html import options, rows

Condition = Literal["remembered", "visible", "absent"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
SHOWN_AT = 3
FOLDER = Path(__file__).with_name("recall_pages")
PAGE = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
LISTS = json.loads((FOLDER / "words.json").read_text(encoding="utf-8"))
TITLES, THINGS, WORDS, NAMES, GOODS, COLOURS = (
    LISTS[name].split() for name in ("titles", "things", "words", "names", "goods", "colours")
)


@dataclass(frozen=True)
class RecallPage:
    """One page: its title, the code on it if there is one, and its HTML."""

    title: str
    code: str | None
    html: str


@dataclass(frozen=True)
class RecallTrial:
    """The pages in order. The last asks for the code of the page with that title; `others` are codes of other pages."""

    condition: Condition
    asked_at: int
    number: int
    title: str
    code: str
    others: tuple[str, ...]
    pages: tuple[RecallPage, ...]

    @property
    def name(self) -> str:
        return f"{self.condition}/{self.asked_at}/{self.number}"


def make_trial(condition: Condition, asked_at: int, number: int, seed: int) -> RecallTrial:
    """A trial. Under another condition the same one differs in one page: the first control repeats the code on the page
    that asks, the second never shows it.
    """
    most = len(TITLES) * len(THINGS)
    if not SHOWN_AT < asked_at <= most:
        raise ValueError(f"a code shown at step {SHOWN_AT} cannot be asked for at step {asked_at}; 4 to {most} can")
    random = Random(f"{seed}/{asked_at}/{number}")
    titles = random.sample([f"{first.capitalize()} {thing}" for first in TITLES for thing in THINGS], asked_at)
    digits = random.sample(range(1000, 10000), asked_at)
    codes = [f"{number} {random.choice(WORDS)}" for number in digits]
    shown = SHOWN_AT - 1
    fillers = _fillers(random)
    pages = []
    for index in range(asked_at - 1):
        draw = _record if index == shown else next(fillers)
        body = draw(random, codes[index])
        pages.append(_page(random, titles[index], body, codes[index] if draw is _record else None))
    title, code = titles[shown], codes[shown]
    others = tuple(page.code for page in pages if page.code is not None and page.code != code)
    if condition == "absent":
        pages[shown] = RecallPage(title, None, pages[shown].html.replace(code, "withdrawn"))
    repeated = code if condition == "visible" else None
    pages.append(_page(random, "Question", _question(title, repeated), repeated))
    return RecallTrial(condition, asked_at, number, title, code, others, tuple(pages))


def _page(random: Random, title: str, body: str, code: str | None) -> RecallPage:
    return RecallPage(title, code, PAGE.substitute(title=title, body=body, colour=random.choice(COLOURS)))


# ---- kinds of pages: what stands below the title, from a code that most kinds do not show ----

Draw = Callable[[Random, str], str]


def _record(random: Random, code: str) -> str:
    facts = {
        "Keeper": random.choice(NAMES),
        "Shelf": random.randint(100, 999),
        "Opened": f"{random.randint(1, 28)} May {random.randint(1990, 2024)}",
    }
    table = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts.items())
    return f'<p>The code of this page is</p><div class="code">{code}</div><table>{table}</table>'


def _table(random: Random, _: str) -> str:
    lines = [
        (random.choice(NAMES), random.choice(GOODS), str(random.randint(1, 99)), str(random.randint(1000, 9999)))
        for _ in range(random.randint(6, 10))
    ]
    return f"<table><tr><th>Name<th>Goods<th>Count<th>Number</tr>{rows(lines)}</table>"


def _article(random: Random, _: str) -> str:
    return "".join(f"<p>{_sentence(random)} {_sentence(random)}</p>" for _ in range(5))


def _cards(random: Random, _: str) -> str:
    cards = "".join(
        f'<div class="card"><b>{random.choice(WORDS)}</b><br>{random.choice(GOODS)}'
        f"<br>{random.randint(1000, 9999)}</div>"
        for _ in range(6)
    )
    return f'<div class="cards">{cards}</div>'


def _form(random: Random, _: str) -> str:
    goods = options(random.sample(GOODS, 4), None)
    values = {
        "Name": random.choice(NAMES),
        "Customer number": random.randint(1000, 9999),
        "Amount": random.randint(1, 500),
    }
    fields = "".join(f'<label>{name} <input value="{value}"></label>' for name, value in values.items())
    return f"{fields}<label>Goods <select>{goods}</select></label><button>Save</button>"


def _question(title: str, code: str | None) -> str:
    shown = "" if code is None else f'<p>The code of the page titled “{title}” is</p><div class="code">{code}</div>'
    asked = f"<p><b>Which code was shown on the page titled “{title}”?</b></p><label>Code <input></label>"
    return f"{shown}{asked}<button>Send</button>"


def _sentence(random: Random) -> str:
    return str(random.choice(LISTS["sentences"])).format(
        name=random.choice(NAMES),
        goods=random.choice(GOODS),
        a=random.randint(20, 900),
        b=random.randint(4, 20),
        c=random.randint(1000, 9999),
    )


def _fillers(random: Random) -> Iterator[Draw]:
    """Kinds of pages that do not matter, without end. One in five has a code too, the first one early on."""
    while True:
        kinds: list[Draw] = random.sample([_table, _article, _cards, _form], 4)
        kinds.insert(random.randint(0, 1), _record)
        yield from kinds
