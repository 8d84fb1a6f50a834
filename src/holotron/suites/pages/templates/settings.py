"""Switches, radio buttons and lists of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template

SWITCHES: Sequence[str] = read_data("choices")["switches"]
CHOICES: Mapping[str, Sequence[str]] = read_data("choices")["settings"]


def _switching(s: PageBuilder) -> tuple[list[str], list[bool], list[bool], str]:
    """Names, how they stand, how they shall stand, and how that is said."""
    names = s.some(SWITCHES, s.number(4, 7))
    before = [s.maybe() for _ in names]
    flipped = sorted(s.some(range(len(names)), s.number(1, 2)))
    after = [on != (index in flipped) for index, on in enumerate(before)]
    said = [f"{'on' if after[index] else 'off'} {names[index]}" for index in flipped]
    text = s.wording("settings_switches", what=" and ".join(said))
    return names, before, after, text


@template()
def settings_switches(s: PageBuilder) -> PageContent:
    """Switches that take effect when they are saved."""
    names, before, after, text = _switching(s)
    switch = s.maybe(0.7)
    rows = "".join(
        f'<div class="item">{s.check(f"w{i}", name, before[i], switch)}</div>' for i, name in enumerate(names)
    )
    save = s.pick("Save", "Save changes", "Apply", "OK")
    heading = s.heading(s.pick("Settings", "Preferences", "Options"))
    buttons = s.button("save", save, "main") + s.button("cancel", "Reset")
    body = view("form", heading, rows, f'<div class="row" style="margin-top:1em">{buttons}</div>', first=True)
    if s.maybe() and not text.startswith("Settings"):
        text = text.rstrip(".") + s.pick(" and save", ", then save", " and save it")
    return PageContent(text, body, {"before": before, "after": after}, "Settings")


@template(held_out=True)
def settings_instant(s: PageBuilder) -> PageContent:
    """Switches at the far end of their rows that take effect at once."""
    names, before, after, text = _switching(s)
    rows = "".join(
        f'<div class="item between"><span>{name}</span>'
        f'<input type="checkbox" class="switch"{" checked" if before[i] else ""}></div>'
        for i, name in enumerate(names)
    )
    heading = s.heading(s.pick("Settings", "Control panel", "Device"))
    return PageContent(text, heading + rows, {"after": after}, "Settings")


@template()
def settings_choices(s: PageBuilder) -> PageContent:
    names = s.some(list(CHOICES), s.number(2, 4))
    before = {name: s.pick(*CHOICES[name]) for name in names}
    changed = s.some(names, s.number(1, min(2, len(names))))
    after = {
        name: s.pick(*(o for o in CHOICES[name] if o != before[name])) if name in changed else before[name]
        for name in names
    }
    text = s.wording("settings_choices", what=" and ".join(f"{name.lower()} to {after[name]}" for name in changed))
    if text.lower().startswith(("settings", "i want")):
        text = text.replace(" to ", " ")
    parts, lists, radios = [], [], []
    for index, name in enumerate(names):
        if s.maybe(0.55):
            parts.append(s.select(f"c{index}", name, CHOICES[name], before[name]))
            lists.append([f"#c{index}", after[name]])
        else:
            parts.append(s.radios(f"c{index}", name, CHOICES[name], before[name]))
            radios.append(f"#c{index}-{CHOICES[name].index(after[name])}")
    save = s.pick("Save", "Save settings", "Apply", "Update")
    title = s.pick("Settings", "Preferences", "Regional settings")
    data = {"lists": lists, "radios": radios, "order": [f"#c{index}" for index in range(len(names))]}
    return PageContent(text, s.heading(title) + "".join(parts) + s.button("save", save, "main"), data, title)
