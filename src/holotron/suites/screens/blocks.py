"""The parts that generated pages are put together from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from holotron.suites.kit.words import FIELDS, MENU, OPTIONS, SCREEN_COUNTRIES
from holotron.suites.screens.icons import NAMES, icon
from holotron.suites.screens.themes import ScreenTheme
from holotron.suites.screens.words import Words


class Blocks:
    """Draws parts in one theme."""

    def __init__(self, words: Words, theme: ScreenTheme) -> None:
        self.words, self.theme = words, theme
        self._ids = 0  # controls and their labels find each other by number

    def button(self, text: str | None = None, *, main: bool = False) -> str:
        words = self.words
        text = escape(text or words.button())
        kind = "btn main" if main else "btn"
        if words.maybe(0.12):
            text = f"{icon(words.pick(*NAMES), named=False)} {text}"
        if words.maybe(0.15) and not self.theme.bare:
            return f'<a href="#" class="{kind}">{text}</a>'
        off = " disabled" if words.maybe(0.05) else ""
        return f'<button class="{kind}"{off}>{text}</button>'

    def icon_button(self, name: str | None = None) -> str:
        name = name or self.words.pick(*NAMES)
        return (
            f'<button class="{self.words.pick("ghost", "btn")}" aria-label="{name}">{icon(name, named=False)}</button>'
        )

    def link(self, text: str | None = None) -> str:
        return f'<a href="#">{escape(text or self.words.pick(*MENU))}</a>'

    def field(self, name: str | None = None, *, value: str | None = None, labels: str | None = None) -> str:
        """A captioned text field, drop-down or text area. `value` None: drawn."""
        words, where = self.words, labels or self.theme.labels
        name = name or words.pick(*FIELDS)
        self._ids += 1
        key, low = f"f{self._ids}", name.lower()
        if value is None:
            value = self._value(low) if words.maybe(0.4) else ""
        given, hint = escape(value, quote=True), ""
        if where == "inside":
            hint = f' placeholder="{escape(name)}"'
        elif words.maybe(0.25):
            hint = f' placeholder="{escape(self._value(low))}"'
        about = f'id="{key}" class="in"'
        if low in ("country", "language", "currency", "category", "department", "topic") and where != "inside":
            control = f"<select {about}>{self.options(words.some(SCREEN_COUNTRIES, 5))}</select>"
        elif low in ("message", "comment", "description", "notes", "feedback"):
            control = f'<textarea {about} rows="{words.pick(2, 3, 4)}"{hint}>{given}</textarea>'
        else:
            kind = "password" if low == "password" else "text"
            control = f'<input {about} type="{kind}"{hint} value="{given}">'
        label = "" if where == "inside" else f'<label for="{key}">{escape(name)}{words.pick("", "", ":", " *")}</label>'
        return f'<div class="label-{where}">{label}{control}</div>'

    def fields(self, count: int) -> list[str]:
        return [self.field(name) for name in self.words.some(FIELDS, count)]

    def tick(self, text: str | None = None, *, kind: str = "checkbox", group: str = "g") -> str:
        words, text = self.words, escape(text or self.words.pick(*OPTIONS))
        on = " checked" if words.maybe(0.4) else ""
        box = f'<input type="{kind}" name="{group}"{on}>'
        return (
            f"<div><label>{box} {text}</label></div>"
            if words.maybe(0.85)
            else f"<div><label>{text} {box}</label></div>"
        )

    def switch(self, text: str | None = None) -> str:
        words, text = self.words, escape(text or self.words.pick(*OPTIONS))
        if self.theme.bare:
            return self.tick(text)
        on = str(words.maybe(0.5)).lower()
        self._ids += 1
        key = f"s{self._ids}"
        knob = '<span class="knob"></span>'
        return (
            f'<div class="row between"><label for="{key}">{text}</label>'
            f'<button id="{key}" role="switch" aria-checked="{on}">{knob}</button></div>'
        )

    def options(self, texts: Sequence[str]) -> str:
        chosen = self.words.pick(*range(len(texts)))
        return "".join(f"<option{' selected' * (i == chosen)}>{escape(text)}</option>" for i, text in enumerate(texts))

    def select(self, texts: Sequence[str]) -> str:
        return f'<select class="in" style="width:auto">{self.options(texts)}</select>'

    def tabs(self, names: Sequence[str]) -> str:
        chosen = self.words.pick(*range(len(names)))
        parts = "".join(
            f'<button class="tab" role="tab" aria-selected="{str(i == chosen).lower()}">{escape(name)}</button>'
            for i, name in enumerate(names)
        )
        return f'<div class="tabs" role="tablist">{parts}</div>'

    def bar(self) -> str:
        """The navigation at the top of a page."""
        words = self.words
        links = "".join(f'<a href="#">{name}</a>' for name in words.some(MENU, words.pick(3, 4, 5)))
        brand = (
            f"<strong>{escape(words.noun().capitalize() + words.pick('', ' ' + words.noun().capitalize(), 'ly'))}"
            f"</strong>"
        )
        right = []
        if words.maybe(0.4):
            right.append(
                f'<input class="in" style="width:10rem" placeholder="{words.pick("Search", "Search…", "Find")}">'
            )
        right += [self.icon_button() for _ in range(words.pick(0, 1, 2, 3))]
        if words.maybe(0.5):
            right.append(self.button(words.pick("Log in", "Sign in", "Sign up", "Log out", "Account")))
        left = self.icon_button("menu") if words.maybe(0.25) else ""
        return (
            f'<div class="bar row between"><div class="row">{left}{brand}{links}</div><div class="row">'
            f"{''.join(right)}</div></div>"
        )

    def side(self) -> str:
        words = self.words
        icons = words.maybe(0.4)
        items = [
            f'<a href="#">{icon(words.pick(*NAMES), named=False) + " " if icons else ""}{name}</a>'
            for name in words.some(MENU, words.pick(4, 5, 6, 7))
        ]
        return f'<div class="side card">{"".join(items)}</div>'

    def crumbs(self) -> str:
        return f'<div class="muted">{" / ".join(self.link(name) for name in self.words.some(MENU, 3))}</div>'

    def pagination(self) -> str:
        last = self.words.pick(3, 4, 5, 6)
        chosen = self.words.pick(*range(1, last + 1))
        numbers = "".join(f'<a href="#" class="btn{" on" * (i == chosen)}">{i}</a>' for i in range(1, last + 1))
        before, after = self.words.pick(("Previous", "Next"), ("«", "»"), ("Prev", "Next"), ("Newer", "Older"))
        return (
            f'<div class="row"><a href="#" class="btn">{before}</a>{numbers}<a href="#" class="btn">{after}</a></div>'
        )

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """Cells are HTML."""
        top = "".join(f"<th>{head}</th>" for head in heads)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        border = ' border="1"' if self.theme.bare else ""
        return f"<table{border}><tr>{top}</tr>{body}</table>"

    def picture(self, height: str = "6rem") -> str:
        hue = self.words.chance.randrange(360)
        paint = f"linear-gradient({hue}deg,hsl({hue},45%,60%),hsl({hue + 60},50%,35%))"
        return f'<div style="height:{height};background:{paint}" class="box"></div>'

    def dialog(self) -> str:
        words = self.words
        insides: list[Callable[[], str]] = [
            lambda: f"<p>{escape(words.sentence(6, 14))}</p>",
            lambda: "".join(self.fields(2)),
            lambda: "".join(self.tick(text) for text in words.some(OPTIONS, 3)),
        ]
        inside = words.pick(*insides)()
        buttons = "".join(self.button(main=i == 0) for i in range(words.pick(1, 2, 2, 3)))
        title = escape(words.title(2))
        return (
            f'<div class="over"><div class="dialog col" role="dialog" style="width:{words.pick(18, 22, 28)}rem;'
            f"background:"
            f'{"#fff" if self.theme.bare else ""}"><div class="row between"><h3>{title}</h3>'
            f"{self.icon_button('close')}</div>"
            f'{inside}<div class="row">{buttons}</div></div></div>'
        )

    def footer(self) -> str:
        links = "".join(self.link(name) for name in self.words.some(MENU, 4))
        return (
            f'<div class="row pad muted">{links}<span>© {self.words.number(1999, 2033)} '
            f"{self.words.noun().capitalize()}</span></div>"
        )

    def _value(self, field: str) -> str:
        words = self.words
        known = {"email": words.email, "e-mail address": words.email, "name": words.name, "city": words.city}
        known |= {"first name": words.first, "age": words.figure, "amount": words.price, "price": words.price}
        known |= {"from": words.city, "to": words.city, "start date": words.date, "end date": words.date}
        return known.get(field, words.value)()
