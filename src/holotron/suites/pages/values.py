"""Something to write, for every kind of field."""

from __future__ import annotations

from holotron.suites.kit.words import CITIES, CODE_LETTERS, COLOURS, SENTENCES, THINGS, TODOS
from holotron.suites.pages.builder import PageBuilder


def quoted(s: PageBuilder, text: str) -> str:
    return s.pick(text, f'"{text}"')


def value_of(s: PageBuilder, kind: str) -> str:
    """Something to write into a field of that kind."""
    match kind:
        case "person":
            return s.person()
        case "word":
            return s.coined().title()
        case "user":
            return s.user()
        case "mail":
            return s.mail()
        case "password":
            return s.password()
        case "city":
            return s.pick(*s.fresh(CITIES))
        case "street":
            return f"{s.coined().title()} {s.pick('Street', 'Road', 'Lane')} {s.number(1, 99)}"
        case "colour":
            return s.pick(*s.fresh(COLOURS))
        case "thing":
            return s.pick(*s.fresh(THINGS))
        case "todo":
            return s.pick(*s.fresh(TODOS))
        case "sentence":
            return s.pick(*SENTENCES)
        case "address":
            return f"{s.coined()}.{s.pick('com', 'org', 'net')}"
        case "time":
            return f"{s.number(7, 21)}:{s.pick('00', '15', '30', '45')}"
        case "few":
            return str(s.number(1, 9))
        case "digits":
            return str(s.number(1, 10 ** s.number(1, 6)))
        case "code":
            return "".join(s.chance.choices(CODE_LETTERS, k=s.number(3, 7)))
    return " ".join(s.coined() for _ in range(s.number(2, 3))).capitalize()
