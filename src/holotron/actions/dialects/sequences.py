"""One action of ours as several simpler ones in a row, and such a row as one action again."""

from __future__ import annotations

from collections.abc import Sequence

from holotron.actions import action as a
from holotron.actions.action import Action

SELECT_ALL, ERASE, ENTER = a.Press(keys="Control+A"), a.Press(keys="Backspace"), a.Press(keys="Enter")
ADDRESS_BAR, OPEN_TAB, CLOSE = a.Press(keys="Control+L"), a.Press(keys="Control+T"), a.Press(keys="Control+W")
# What a browser on a desktop does with a key press.
SHORTCUTS: dict[str, Action] = {
    "Alt+ArrowLeft": a.Back(),
    "Alt+ArrowRight": a.Forward(),
    "F5": a.Refresh(),
    "Control+R": a.Refresh(),
    "Control+W": a.CloseTab(),
    **{f"Control+{number}": a.SwitchTab(index=number - 1) for number in range(1, 9)},
}
MAX_REPEAT = 100


def expand(action: Action, shortcuts: bool) -> list[Action]:
    """The action as a row of plain ones: a click, a text alone, one key press, …

    With shortcuts, what a browser does by itself becomes the key press for it, as on a desktop. An option is chosen by
    its first letters and Enter.
    """
    match action:
        case a.Type():
            row: list[Action] = []
            if action.x is not None and action.y is not None:
                row.append(a.Click(x=action.x, y=action.y, element=action.element))
            if action.clear:
                row += [SELECT_ALL, ERASE]
            return [*row, a.Type(text=action.text), *([ENTER] if action.enter else [])]
        case a.Press():
            return [a.Press(keys=action.keys)] * action.repeat
        case a.Select():
            return [a.Click(x=action.x, y=action.y), a.Type(text=action.option), ENTER]
        case a.NewTab(url=str(url)):
            return [OPEN_TAB, a.Type(text=url), ENTER] if shortcuts else [a.NewTab(), a.Goto(url=url)]
        case a.CloseTab(index=int(index)):
            return [*expand(a.SwitchTab(index=index), shortcuts), *expand(a.CloseTab(), shortcuts)]
    return _shortcut(action) if shortcuts else [action]


def _shortcut(action: Action) -> list[Action]:
    match action:
        case a.Goto():
            return [ADDRESS_BAR, a.Type(text=action.url), ENTER]
        case a.NewTab():
            return [OPEN_TAB]
        case a.CloseTab():
            return [CLOSE]
    return [next((a.Press(keys=keys) for keys, stands_for in SHORTCUTS.items() if stands_for == action), action)]


def fold(row: Sequence[Action], shortcuts: bool) -> list[Action]:
    """The inverse of expand, for a row that may come from several actions."""
    folded: list[Action] = []
    rest = list(row)
    while rest:
        action, taken = (_browse(rest) if shortcuts else None) or _write(rest) or _combine(rest)
        folded.append(action)
        rest = rest[taken:]
    return folded


def _browse(rest: list[Action]) -> tuple[Action, int] | None:
    """A navigation at the head of the row, and how many it takes."""
    first = rest[0]
    if first in (ADDRESS_BAR, OPEN_TAB):
        typed = _typed(rest[1:])
        if typed and typed[0].enter:
            try:
                url = typed[0].text
                return (a.Goto(url=url) if first == ADDRESS_BAR else a.NewTab(url=url)), 1 + typed[1]
            except ValueError:
                pass  # a search rather than an address
        return (a.NewTab(), 1) if first == OPEN_TAB else None
    if isinstance(first, a.Press) and first.keys in SHORTCUTS and first.repeat == 1:
        action = SHORTCUTS[first.keys]
        if isinstance(action, a.SwitchTab) and rest[1:2] == [CLOSE]:
            return a.CloseTab(index=action.index), 2
        return action, 1
    return None


def _write(rest: list[Action]) -> tuple[Action, int] | None:
    """A text at the head of the row, with the click, the clearing and the Enter around it."""
    taken, click, clear = 0, None, False
    if isinstance(rest[0], a.Click) and rest[0].button == "left":
        click, taken = rest[0], 1
    if rest[taken : taken + 1] == [SELECT_ALL]:
        erased = taken + 1 < len(rest) and rest[taken + 1] in (ERASE, a.Press(keys="Delete"))
        clear, taken = True, taken + 1 + erased
    typed = _typed(rest[taken:])
    if typed is None or (clear and typed[0].clear):
        return None
    text, length = typed
    point = {"x": click.x, "y": click.y, "element": click.element} if click else {}
    return text.model_copy(update={**point, "clear": clear or text.clear}), taken + length


def _typed(rest: list[Action]) -> tuple[a.Type, int] | None:
    """A text without a point at the head of the row, with the Enter after it."""
    if not rest or not isinstance(rest[0], a.Type) or rest[0].x is not None:
        return None
    if not rest[0].enter and rest[1:2] == [ENTER] and rest[2:3] != [ENTER]:
        return rest[0].model_copy(update={"enter": True}), 2
    return rest[0], 1


def _combine(rest: list[Action]) -> tuple[Action, int]:
    """What the head of the row and those after it are together."""
    match rest:
        case [a.Hover(x=x, y=y), a.Scroll(x=None) as scroll, *_]:
            return scroll.model_copy(update={"x": x, "y": y}), 2
        case [a.SwitchTab(index=index), a.CloseTab(index=None), *_]:
            return a.CloseTab(index=index), 2
        case [a.NewTab(url=None), a.Goto(url=url), *_]:
            return a.NewTab(url=url), 2
        case [a.Press(keys=keys, repeat=1), *_]:
            same = next((n for n, other in enumerate(rest) if other != rest[0]), len(rest))
            count = min(same, MAX_REPEAT)
            return a.Press(keys=keys, repeat=count), count
    return rest[0], 1
