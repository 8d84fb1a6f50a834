"""Something to write, for every kind of field."""

from __future__ import annotations

from collections.abc import Callable

from holotron.suites.kit.words import CITIES, CODE_LETTERS, COLOURS, SENTENCES, THINGS, TODOS
from holotron.suites.pages.builder import PageBuilder


def quoted(s: PageBuilder, text: str) -> str:
    return s.pick(text, f'"{text}"')


def value_of(s: PageBuilder, kind: str) -> str:
    """Something to write into a field of that kind."""
    known: dict[str, Callable[[], str]] = {
        "person": s.person,
        "word": lambda: s.coined().title(),
        "user": s.user,
        "mail": s.mail,
        "password": s.password,
        "city": lambda: s.pick(*s.fresh(CITIES)),
        "street": lambda: f"{s.coined().title()} {s.pick('Street', 'Road', 'Lane')} {s.number(1, 99)}",
        "colour": lambda: s.pick(*s.fresh(COLOURS)),
        "thing": lambda: s.pick(*s.fresh(THINGS)),
        "todo": lambda: s.pick(*s.fresh(TODOS)),
        "sentence": lambda: s.pick(*SENTENCES),
        "address": lambda: f"{s.coined()}.{s.pick('com', 'org', 'net')}",
        "time": lambda: f"{s.number(7, 21)}:{s.pick('00', '15', '30', '45')}",
        "few": lambda: str(s.number(1, 9)),
        "digits": lambda: str(s.number(1, 10 ** s.number(1, 6))),
        "code": lambda: "".join(s.chance.choices(CODE_LETTERS, k=s.number(3, 7))),
        "phrase": lambda: " ".join(s.coined() for _ in range(s.number(2, 3))).capitalize(),
    }
    return known[kind]()
