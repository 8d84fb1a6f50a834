"""Menus that open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holotron.suites.kit.words import THINGS
from holotron.suites.pages.behaviour import shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template

MENUS: Mapping[str, Sequence[str]] = read_data("choices")["menus"]
SUBMENUS: Mapping[str, Sequence[str]] = read_data("choices")["submenus"]
# A menu opens by a click and closes by the next one elsewhere; a wrong entry is chosen for good.
MENU_SCRIPT = shared_script("menus")


def _list(name: str, inside: str) -> str:
    return f'<div class="list" id="{name}" hidden>{inside}</div>'


def _entries(menu: str, entries: Sequence[str]) -> str:
    return "".join(f'<div data-entry="{menu}/{entry}">{entry}</div>' for entry in entries)


def _bar(menus: dict[str, str], arrow: str = "") -> str:
    return "".join(
        f'<div class="menu"><button type="button" data-opens="m{index}">{name}{arrow}</button>'
        f"{_list(f'm{index}', inside)}</div>"
        for index, (name, inside) in enumerate(menus.items())
    )


@template()
def menu(s: PageBuilder) -> PageContent:
    names = [name for name in MENUS if s.maybe(0.7)] or ["File", "Edit"]
    chosen = s.pick(*names)
    entry = s.pick(*MENUS[chosen])
    text = s.wording("menu", entry=entry, menu=chosen)
    bar = _bar({name: _entries(name, MENUS[name]) for name in names}, s.pick("", " ▾"))
    page = s.heading("Untitled") + s.prose(4) + s.prose(3)
    body = f'<div class="row">{bar}</div><div style="margin-top:1.5em">{page}</div>'
    data = {"entry": f"{chosen}/{entry}", "path": [f"m{names.index(chosen)}"], "done": f"{entry}: done."}
    return PageContent(text, body, data, "Editor", MENU_SCRIPT)


@template()
def menu_nested(s: PageBuilder) -> PageContent:
    """One menu with lists in it that open beside it."""
    subs = s.some(list(SUBMENUS), 3)
    chosen = s.pick(*subs)
    entry = s.pick(*SUBMENUS[chosen])
    top = s.pick("Menu", "More", "Actions", "Document")
    text = s.wording("menu_nested", top=top, sub=chosen, entry=entry)
    inside = "".join(
        f'<div data-opens="s{index}">{name} ▸{_list(f"s{index}", _entries(name, SUBMENUS[name]))}</div>'
        for index, name in enumerate(subs)
    ) + _entries(top, ["Close"])
    body = s.heading(s.pick("Report", "Notes", "My drawing")) + f'<div class="row">{_bar({top: inside})}</div>'
    body += f'<div style="margin-top:1.5em">{s.prose(4)}</div>'
    data = {"entry": f"{chosen}/{entry}", "path": ["m0", f"s{subs.index(chosen)}"], "done": f"{chosen}: {entry}"}
    return PageContent(text, body, data, "Document", MENU_SCRIPT)


@template(held_out=True)
def menu_account(s: PageBuilder) -> PageContent:
    """A person's menu in the corner."""
    name = s.person()
    entries = s.some(
        ("Profile", "Settings", "Billing", "Messages", "Help", "Sign out", "Notifications"), s.number(3, 5)
    )
    entry = s.pick(*entries)
    text = s.wording("menu_account", entry=entry, name=name)
    corner = _bar({name: _entries("me", entries)}, " ▾").replace(
        'class="list"', 'class="list" style="left:auto;right:0"'
    )
    body = f'<div class="between">{s.heading(s.pick("Dashboard", "Overview", "Start"))}{corner}</div>{s.prose(3)}'
    tiles = "".join(
        f'<div class="tile"><h3>{thing.title()}s</h3>{s.number(3, 400)}</div>' for thing in s.some(s.fresh(THINGS), 4)
    )
    data = {"entry": f"me/{entry}", "path": ["m0"], "done": f"{entry} opened."}
    return PageContent(text, f'{body}<div class="grid">{tiles}</div>', data, "Dashboard", MENU_SCRIPT)
