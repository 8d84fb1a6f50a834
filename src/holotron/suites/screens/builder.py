"""What a template of screens draws with: random draws, words, and parts in the screen's theme."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from holotron.suites.kit import html
from holotron.suites.kit.words import FIELDS, MENU, OPTIONS, SCREEN_COUNTRIES
from holotron.suites.screens.icons import NAMES, icon
from holotron.suites.screens.themes import ScreenTheme
from holotron.suites.screens.words import Words

LISTED_FIELDS = ("country", "language", "currency", "category", "department", "topic")
LONG_FIELDS = ("message", "comment", "description", "notes", "feedback")


class ScreenBuilder(Words):
    """One screen's random draws and theme."""

    def __init__(self, chance: random.Random, theme: ScreenTheme) -> None:
        super().__init__(chance)
        self.theme = theme
        self._ids = 0  # controls and their labels find each other by number

    def button(self, text: str | None = None, *, main: bool = False) -> str:
        text = text or self.caption()
        kind = "btn main" if main else "btn"
        if self.maybe(0.12):
            text = f"{icon(self.pick(*NAMES), named=False)} {text}"
        if self.maybe(0.15) and not self.theme.bare:
            return f'<a href="#" class="{kind}">{text}</a>'
        off = " disabled" if self.maybe(0.05) else ""
        return f'<button class="{kind}"{off}>{text}</button>'

    def buttons(self, count: int) -> str:
        """The first is the main one."""
        return "".join(self.button(main=index == 0) for index in range(count))

    def icon_button(self, name: str | None = None) -> str:
        name = name or self.pick(*NAMES)
        return f'<button class="{self.pick("ghost", "btn")}" aria-label="{name}">{icon(name, named=False)}</button>'

    def field(self, name: str, *, value: str | None = None, labels: str | None = None) -> str:
        """A captioned text field, drop-down or text area. `value` None: drawn."""
        where = labels or self.theme.labels
        self._ids += 1
        key, low = f"f{self._ids}", name.lower()
        if value is None:
            value = self.optional(0.4, lambda: self._value(low))
        hint = ""
        if where == "inside":
            hint = f' placeholder="{name}"'
        elif self.maybe(0.25):
            hint = f' placeholder="{self._value(low)}"'
        about = f'id="{key}" class="in"'
        if low in LISTED_FIELDS and where != "inside":
            control = f"<select {about}>{self._options(self.some(SCREEN_COUNTRIES, 5))}</select>"
        elif low in LONG_FIELDS:
            control = f'<textarea {about} rows="{self.pick(2, 3, 4)}"{hint}>{value}</textarea>'
        else:
            kind = "password" if low == "password" else "text"
            control = f'<input {about} type="{kind}"{hint} value="{value}">'
        label = "" if where == "inside" else f'<label for="{key}">{name}{self.pick("", "", ":", " *")}</label>'
        return f'<div class="label-{where}">{label}{control}</div>'

    def fields(self, count: int) -> str:
        return "".join(self.field(name) for name in self.some(FIELDS, count))

    def tick(self, text: str, kind: str = "checkbox") -> str:
        box = f'<input type="{kind}" name="g"{self.optional(0.4, lambda: " checked")}>'
        return f"<div><label>{f'{box} {text}' if self.maybe(0.85) else f'{text} {box}'}</label></div>"

    def ticks(self, count: int, kind: str = "checkbox") -> str:
        return "".join(self.tick(text, kind) for text in self.some(OPTIONS, count))

    def switch(self, text: str) -> str:
        if self.theme.bare:
            return self.tick(text)
        on = str(self.maybe()).lower()
        self._ids += 1
        key = f"s{self._ids}"
        button = f'<button id="{key}" role="switch" aria-checked="{on}"><span class="knob"></span></button>'
        return f'<div class="row between"><label for="{key}">{text}</label>{button}</div>'

    def select(self, texts: Sequence[str]) -> str:
        return f'<select class="in" style="width:auto">{self._options(texts)}</select>'

    def _options(self, texts: Sequence[str]) -> str:
        return html.options(texts, self.pick(*texts))

    def tabs(self, count: int) -> str:
        names = self.some(MENU, count)
        chosen = self.pick(*names)
        tabs = "".join(
            f'<button class="tab" role="tab" aria-selected="{str(name == chosen).lower()}">{name}</button>'
            for name in names
        )
        return f'<div class="tabs" role="tablist">{tabs}</div>'

    def bar(self) -> str:
        """The navigation at the top of a page."""
        links = "".join(html.link(name) for name in self.some(MENU, self.pick(3, 4, 5)))
        brand = f"<strong>{self.noun().capitalize()}{self.pick('', ' ' + self.noun().capitalize(), 'ly')}</strong>"
        hint = self.optional(0.4, lambda: self.pick("Search", "Search…", "Find"))
        right = [f'<input class="in" style="width:10rem" placeholder="{hint}">'] if hint else []
        right += [self.icon_button() for _ in range(self.pick(0, 1, 2, 3))]
        if self.maybe():
            right.append(self.button(self.pick("Log in", "Sign in", "Sign up", "Log out", "Account")))
        left = self.optional(0.25, lambda: self.icon_button("menu"))
        return self.top(f"{left}{brand}{links}", "".join(right))

    def top(self, left: str, right: str) -> str:
        return f'<div class="bar row between"><div class="row">{left}</div><div class="row">{right}</div></div>'

    def side(self) -> str:
        """The navigation beside a page's content."""
        icons = self.maybe(0.4)
        items = [
            f'<a href="#">{icon(self.pick(*NAMES), named=False) + " " if icons else ""}{name}</a>'
            for name in self.some(MENU, self.pick(4, 5, 6, 7))
        ]
        return f'<div class="side card">{"".join(items)}</div>'

    def crumbs(self) -> str:
        return f'<div class="muted">{" / ".join(html.link(name) for name in self.some(MENU, 3))}</div>'

    def pagination(self) -> str:
        last = self.pick(3, 4, 5, 6)
        chosen = self.number(1, last)
        numbers = "".join(f'<a href="#" class="btn{" on" * (i == chosen)}">{i}</a>' for i in range(1, last + 1))
        before, after = self.pick(("Previous", "Next"), ("«", "»"), ("Prev", "Next"), ("Newer", "Older"))
        step = '<a href="#" class="btn">{}</a>'
        return f'<div class="row">{step.format(before)}{numbers}{step.format(after)}</div>'

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """Cells are HTML."""
        border = ' border="1"' if self.theme.bare else ""
        return f"<table{border}><tr>{html.cells(heads, 'th')}</tr>{html.rows(rows)}</table>"

    def grid(self, columns: int, inside: str) -> str:
        return f'<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{inside}</div>'

    def picture(self, height: str = "6rem") -> str:
        hue = self.chance.randrange(360)
        paint = f"linear-gradient({hue}deg,hsl({hue},45%,60%),hsl({hue + 60},50%,35%))"
        return f'<div style="height:{height};background:{paint}" class="box"></div>'

    def dialog(self) -> str:
        insides: list[Callable[[], str]] = [
            lambda: f"<p>{self.sentence(6, 14)}</p>",
            lambda: self.fields(2),
            lambda: self.ticks(3),
        ]
        inside = self.pick(*insides)()
        buttons = self.buttons(self.pick(1, 2, 2, 3))
        title = self.title(2)
        style = f"width:{self.pick(18, 22, 28)}rem;background:{'#fff' if self.theme.bare else ''}"
        head = f'<div class="row between"><h3>{title}</h3>{self.icon_button("close")}</div>'
        return (
            f'<div class="over"><div class="dialog col" role="dialog" style="{style}">{head}{inside}'
            f'<div class="row">{buttons}</div></div></div>'
        )

    def footer(self) -> str:
        links = "".join(html.link(name) for name in self.some(MENU, 4))
        owner = f"<span>© {self.number(1999, 2033)} {self.noun().capitalize()}</span>"
        return f'<div class="row pad muted">{links}{owner}</div>'

    def _value(self, field: str) -> str:
        known = {"email": self.email, "e-mail address": self.email, "name": self.name, "city": self.city}
        known |= {"first name": self.first, "age": self.figure, "amount": self.price, "price": self.price}
        known |= {"from": self.city, "to": self.city, "start date": self.date, "end date": self.date}
        return known.get(field, self.value)()
