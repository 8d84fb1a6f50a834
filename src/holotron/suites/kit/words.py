"""Words, names and sentences that generated pages and screens are filled with, as words.toml has them."""

from __future__ import annotations

import tomllib
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def _listed(name: str) -> tuple[str, ...]:
    """In a text entries are separated by blanks; a + stands for a blank within one."""
    entries = _LISTS[name]
    return tuple(entry.replace("+", " ") for entry in entries.split()) if isinstance(entries, str) else tuple(entries)


FIRST_NAMES = _listed("first_names")
LAST_NAMES = _listed("last_names")
CITIES = _listed("cities")
COUNTRIES = _listed("countries")
COLOURS = _listed("colours")
SCREEN_FIRST_NAMES = _listed("screen_first_names")
SCREEN_LAST_NAMES = _listed("screen_last_names")
SCREEN_CITIES = _listed("screen_cities")
SCREEN_COUNTRIES = _listed("screen_countries")
SCREEN_COLOURS = _listed("screen_colours")
ORDINALS = _listed("ordinals")
MONTHS = _listed("months")

# ---- things and deeds ----

THINGS = _listed("things")
TODOS = _listed("todos")
TOPICS = _listed("topics")
SUBJECTS = _listed("subjects")
DEPARTMENTS = _listed("departments")
ROLES = _listed("roles")
BRANDS = _listed("brands")
LINKS = _listed("links")
SENTENCES = _listed("sentences")

# ---- words for texts without meaning ----

NOUNS = _listed("nouns")
ADJECTIVES = _listed("adjectives")
VERBS = _listed("verbs")
SMALL_WORDS = _listed("small_words")

# ---- captions of controls ----

BUTTONS = _listed("buttons")
FIELDS = _listed("fields")
MENU = _listed("menu")
TABLE_HEADS = _listed("table_heads")
STATUS = _listed("status")
OPTIONS = _listed("options")
MAIL_DOMAINS = _listed("mail_domains")

# ---- what coined words, passwords and codes are made of ----

PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
ONSETS = _listed("onsets")
VOWELS = _listed("vowels")
ENDINGS = _listed("endings")
