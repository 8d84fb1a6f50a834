"""What a template draws with: chance, words, and controls in the page's style."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from holotron.suites.kit import html
from holotron.suites.kit.draws import Draws
from holotron.suites.kit.words import ENDINGS, FIRST_NAMES, LAST_NAMES, ONSETS, PASSWORD_LETTERS, SENTENCES, VOWELS
from holotron.suites.pages.data import read_data
from holotron.suites.pages.style import PageStyle

COINED_SHARE = 0.4


@dataclass(frozen=True)
class PageContent:
    """A template's part of a page: what to do, its content, and the data that its script works on.

    script: None for the file in `behaviour` that has the template's name.
    """

    text: str
    body: str
    data: Mapping[str, Any]
    title: str
    script: str | None = None


class PageBuilder(Draws):
    """One page's random draws and style."""

    def __init__(self, chance: random.Random, style: PageStyle) -> None:
        super().__init__(chance)
        self.style = style

    def saying(self, name: str) -> str:
        """One of the ways to say it that wordings.toml has under this name, its fields still empty."""
        ways: list[str] = read_data("wordings")[name]
        return self.pick(*ways)

    def wording(self, name: str, /, **values: object) -> str:
        """A saying with these values as a task, with or without a capital letter and a full stop."""
        text = self.saying(name).format(**values)
        if self.maybe(0.35) and not text.startswith(('"', "http")):
            text = text[0].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
        # After a value a full stop could be taken for a part of it.
        return f"{text}." if text.split()[-1].isalpha() and self.maybe(0.3) else text

    # ---- words ----

    def coined(self) -> str:
        """A word that stands in no dictionary."""
        syllables = (self.pick(*ONSETS) + self.pick(*VOWELS) for _ in range(self.pick(1, 2, 2, 3)))
        return "".join(syllables) + self.pick(*ENDINGS)

    def fresh(self, words: Sequence[str]) -> list[str]:
        """These words, some of them coined anew, of longer ones the last part.

        What a task names must be copied and looked for; out of a list that is always the same it would be recalled.
        """
        found: dict[str, None] = {}
        for word in words:
            *before, last = word.split(" ")
            while self.maybe(COINED_SHARE) or word in found:
                coined = self.coined()
                word = " ".join([*before, coined.title() if last[0].isupper() else coined])
                if word not in found:
                    break
            found[word] = None
        return list(found)

    def person(self) -> str:
        return f"{self.pick(*self.fresh(FIRST_NAMES))} {self.pick(*self.fresh(LAST_NAMES))}"

    def people(self, count: int) -> list[str]:
        """Different in both names, so that each alone tells who is meant."""
        first, last = self.some(self.fresh(FIRST_NAMES), count), self.some(self.fresh(LAST_NAMES), count)
        return [f"{a} {b}" for a, b in zip(first, last, strict=True)]

    def user(self) -> str:
        name, number = self.pick(*self.fresh(FIRST_NAMES)).lower(), self.number(1, 99)
        return self.pick(name, name, f"{name}{number}", f"{name}.{self.pick(*self.fresh(LAST_NAMES)).lower()}")

    def mail(self, name: str | None = None) -> str:
        user = (name or self.pick(*self.fresh(FIRST_NAMES))).lower().replace(" ", self.pick(".", "_", ""))
        return f"{user}@{self.pick('example.com', 'mail.org', 'post.net', 'home.io')}"

    def password(self) -> str:
        scrambled = "".join(self.chance.choices(PASSWORD_LETTERS, k=self.number(4, 9)))
        return self.pick(scrambled, scrambled, self.coined(), f"{self.coined()}{self.number(1, 999)}")

    def price(self) -> str:
        return f"{self.number(2, 180)}.{self.pick('00', '50', '90', '95', '99')}"

    def phone(self) -> str:
        return f"0{self.number(100, 999)} {self.number(1000, 9999)}"

    def prose(self, count: int) -> str:
        return f"<p>{' '.join(self.some(SENTENCES, count))}</p>"

    # ---- controls ----

    def heading(self, text: str) -> str:
        return f"<h1>{escape(text)}</h1>"

    def field(self, name: str, label: str, kind: str = "text", value: str = "") -> str:
        """A text field with its label where this page has labels; kind "area" for several lines."""
        inside = self.style.labels == "inside" and not value  # a filled field would hide it
        hint = f' placeholder="{escape(label)}" aria-label="{escape(label)}"' if inside else ""
        if kind == "area":
            control = f'<textarea id="{name}" rows="4"{hint}>{escape(value)}</textarea>'
        else:
            control = f'<input id="{name}" type="{kind}" value="{escape(value)}" autocomplete="off"{hint}>'
        written = "" if inside else f'<label for="{name}">{escape(label)}{self._colon}</label>'
        return f'<div class="field{" inside" if inside else ""}">{written}{control}</div>'

    def select(self, name: str, label: str, options: Sequence[str], chosen: str | None = None) -> str:
        """A drop-down list; its label never stands inside."""
        return (
            f'<div class="field"><label for="{name}">{escape(label)}{self._colon}</label>'
            f'<select id="{name}">{html.options(options, chosen)}</select></div>'
        )

    def check(self, name: str, label: str, on: bool = False, switch: bool = False) -> str:
        kind = ' class="switch"' if switch else ""
        box = f'<input type="checkbox" id="{name}"{kind}{" checked" if on else ""}>'
        return f'<div class="check">{box}<label for="{name}">{escape(label)}</label></div>'

    def radios(self, name: str, label: str, options: Sequence[str], chosen: str | None = None) -> str:
        """Radio buttons with ids NAME-0, NAME-1, …"""
        buttons = "".join(
            f'<div class="check"><input type="radio" name="{name}" id="{name}-{index}"'
            f'{" checked" if option == chosen else ""}><label for="{name}-{index}">{escape(option)}</label></div>'
            for index, option in enumerate(options)
        )
        return f"<div><h3>{escape(label)}</h3>{buttons}</div>"

    def submit(self, *labels: str) -> str:
        """The button that sends a form."""
        return f'<button type="submit" id="submit" class="main">{escape(self.pick(*labels))}</button>'

    def button(self, name: str, label: str, classes: str = "") -> str:
        return f'<button type="button" id="{name}" class="{classes}">{escape(label)}</button>'

    def form(self, *parts: str) -> str:
        return f'<form novalidate id="form">{"".join(parts)}</form>'

    def form_in_row(self, field: str, *labels: str) -> str:
        """A form of one field with its button beside it."""
        return self.form(f'<div class="row">{field}<div class="field">{self.submit(*labels)}</div></div>')

    @property
    def _colon(self) -> str:
        return ":" if self.style.labels == "left" else ""


def capital(text: str) -> str:
    """With a capital letter at the beginning."""
    return text[0].upper() + text[1:]


def and_list(names: Sequence[str]) -> str:
    """One, two and three."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def dialog(inside: str, name: str = "", *, hidden: bool = False) -> str:
    """A dialog over the page."""
    about = (f' id="{name}"' if name else "") + (" hidden" if hidden else "")
    return f'<div class="veil"{about}><div class="dialog">{inside}</div></div>'


def opener(kind: str, label: str, classes: str, about: str = "") -> str:
    """Something to click on that leads to another view: a link, a button or a tile. `about`: further attributes."""
    match kind:
        case "link":
            return f'<p><a href="#" class="{classes}"{about}>{escape(label)}</a></p>'
        case "button":
            return f'<button type="button" class="{classes}"{about}>{escape(label)}</button>'
    return f'<div class="tile {classes}"{about} style="cursor:pointer">{escape(label)}</div>'


def view(name: str, *parts: str, first: bool = False) -> str:
    """A part of the page of which only one is shown at a time."""
    return f'<section data-view="{name}"{"" if first else " hidden"}>{"".join(parts)}</section>'
