"""What screens say: plausible words and strings, drawn from a seed."""

from __future__ import annotations

import string

from holotron.suites.kit.draws import Draws
from holotron.suites.kit.words import (
    ADJECTIVES,
    BUTTONS,
    MAIL_DOMAINS,
    MONTHS,
    NOUNS,
    SCREEN_CITIES,
    SCREEN_FIRST_NAMES,
    SCREEN_LAST_NAMES,
    SMALL_WORDS,
    VERBS,
)


class Words(Draws):
    """A source of text: letters, digits and punctuation that mean nothing to HTML, so they need no escaping."""

    def first(self) -> str:
        return self.pick(*SCREEN_FIRST_NAMES)

    def name(self) -> str:
        return f"{self.first()} {self.pick(*SCREEN_LAST_NAMES)}"

    def city(self) -> str:
        return self.pick(*SCREEN_CITIES)

    def email(self) -> str:
        user = f"{self.first()}{self.pick('.', '_', '')}{self.pick(*SCREEN_LAST_NAMES)}"
        return f"{user}@{self.pick(*MAIL_DOMAINS)}".lower()

    def string(self, shortest: int = 2, longest: int = 8) -> str:
        """Letters that mean nothing, as reading must not rely on guessing."""
        letters = self.pick(string.ascii_lowercase, string.ascii_letters, string.ascii_letters + string.digits)
        return "".join(self.pick(*letters) for _ in range(self.number(shortest, longest)))

    def figure(self) -> str:
        value = self.chance.randrange(10 ** self.number(1, 5))
        return self.pick(f"{value}", f"{value}", f"{value:,}", f"{value / 10:.1f}", f"{self.chance.randrange(101)}%")

    def price(self) -> str:
        value = self.chance.randrange(100, 10 ** self.number(3, 6)) / 100
        return self.pick("${:,.2f}", "${:.0f}", "€{:.2f}", "£{:.2f}", "{:.2f} EUR").format(value)

    def date(self) -> str:
        year, month, day = self.number(1960, 2034), self.number(1, 12), self.number(1, 28)
        name = MONTHS[month - 1]
        return self.pick(
            f"{year}-{month:02d}-{day:02d}",
            f"{month:02d}/{day:02d}/{year}",
            f"{day} {name[:3]} {year}",
            f"{name} {day}, {year}",
            f"{name[:3]} {day}",
        )

    def time(self) -> str:
        hour, minute = self.chance.randrange(24), self.chance.randrange(0, 60, 5)
        return f"{hour}:{minute:02d}" if self.maybe(0.5) else f"{hour % 12 or 12}:{minute:02d} {'AP'[hour // 12]}M"

    def code(self) -> str:
        return f"{self.string(2, 3).upper()}-{self.chance.randrange(10000)}"

    def word(self) -> str:
        return self.pick(*self.pick(NOUNS, NOUNS, ADJECTIVES, VERBS))

    def noun(self) -> str:
        return self.pick(*NOUNS)

    def label(self) -> str:
        """A short caption of any sort."""
        draw = self.chance.random()
        if draw < 0.35:
            return self.word().capitalize()
        if draw < 0.5:
            return self.string()
        if draw < 0.6:
            return self.first()
        if draw < 0.75:
            return self.title(2)
        return self.pick(self.city, self.figure, self.date, self.code, self.price, self.word)()

    def title(self, words: int = 3) -> str:
        parts = [self.pick(*ADJECTIVES) for _ in range(words - 1)] + [self.noun()]
        return " ".join(part.capitalize() for part in parts) if self.maybe(0.5) else " ".join(parts).capitalize()

    def product(self) -> str:
        return f"{self.pick(*ADJECTIVES).capitalize()} {self.noun().capitalize()}{self.pick('', '', ' ' + self.code())}"

    def sentence(self, shortest: int = 4, longest: int = 12) -> str:
        parts = [
            self.pick(*SMALL_WORDS) if index % 3 == 1 or (index % 3 == 2 and self.maybe(0.3)) else self.word()
            for index in range(self.number(shortest, longest))
        ]
        return " ".join(parts).capitalize() + self.pick(".", ".", ".", "!", "?")

    def paragraph(self, sentences: int) -> str:
        return " ".join(self.sentence() for _ in range(sentences))

    def caption(self) -> str:
        return self.pick(*BUTTONS) if self.maybe(0.8) else self.label()

    def value(self) -> str:
        """Something typed into a field."""
        makers = (
            self.word,
            self.name,
            self.city,
            self.figure,
            self.date,
            self.email,
            self.string,
            self.code,
            self.first,
        )
        return self.pick(*makers)()
