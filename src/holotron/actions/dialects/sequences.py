"""One action of ours as several simpler ones in a row, and such a row as one action again."""

from __future__ import annotations

from collections.abc import Sequence

from holotron.actions.action import (
    Action,
    Back,
    Click,
    CloseTab,
    Forward,
    Goto,
    Hover,
    NewTab,
    Press,
    Refresh,
    Scroll,
    Select,
    SwitchTab,
    Type,
)

SELECT_ALL, ERASE, ENTER = Press(keys="Control+A"), Press(keys="Backspace"), Press(keys="Enter")
ADDRESS_BAR, OPEN_TAB, CLOSE = Press(keys="Control+L"), Press(keys="Control+T"), Press(keys="Control+W")
# What a browser on a desktop does with a key press.
SHORTCUTS: dict[str, Action] = {
    "Alt+ArrowLeft": Back(),
    "Alt+ArrowRight": Forward(),
    "F5": Refresh(),
    "Control+R": Refresh(),
    "Control+W": CloseTab(),
    **{f"Control+{number}": SwitchTab(index=number - 1) for number in range(1, 9)},
}
MAX_REPEAT = 100


def expand(action: Action, shortcuts: bool) -> list[Action]:
    """The action as a row of plain ones: a click, a text alone, one key press, …

    With shortcuts, what a browser does by itself becomes the key press for it, as on a desktop. An option is chosen by
    its first letters and Enter.
    """
    match action:
        case Type():
            row: list[Action] = []
            if action.x is not None and action.y is not None:
                row.append(Click(x=action.x, y=action.y, element=action.element))
            if action.clear:
                row += [SELECT_ALL, ERASE]
            return [*row, Type(text=action.text), *([ENTER] if action.enter else [])]
        case Press():
            return [Press(keys=action.keys)] * action.repeat
        case Select():
            return [Click(x=action.x, y=action.y), Type(text=action.option), ENTER]
        case NewTab(url=str(url)):
            return [OPEN_TAB, Type(text=url), ENTER] if shortcuts else [NewTab(), Goto(url=url)]
        case CloseTab(index=int(index)):
            return [*expand(SwitchTab(index=index), shortcuts), *expand(CloseTab(), shortcuts)]
    return _shortcut(action) if shortcuts else [action]


def _shortcut(action: Action) -> list[Action]:
    match action:
        case Goto():
            return [ADDRESS_BAR, Type(text=action.url), ENTER]
        case NewTab():
            return [OPEN_TAB]
        case CloseTab():
            return [CLOSE]
    return [next((Press(keys=keys) for keys, stands_for in SHORTCUTS.items() if stands_for == action), action)]


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
                return (Goto(url=url) if first == ADDRESS_BAR else NewTab(url=url)), 1 + typed[1]
            except ValueError:
                pass  # a search rather than an address
        return (NewTab(), 1) if first == OPEN_TAB else None
    if isinstance(first, Press) and first.keys in SHORTCUTS and first.repeat == 1:
        action = SHORTCUTS[first.keys]
        if isinstance(action, SwitchTab) and rest[1:2] == [CLOSE]:
            return CloseTab(index=action.index), 2
        return action, 1
    return None


def _write(rest: list[Action]) -> tuple[Action, int] | None:
    """A text at the head of the row, with the click, the clearing and the Enter around it."""
    taken, click, clear = 0, None, False
    if isinstance(rest[0], Click) and rest[0].button == "left":
        click, taken = rest[0], 1
    if rest[taken : taken + 1] == [SELECT_ALL]:
        erased = taken + 1 < len(rest) and rest[taken + 1] in (ERASE, Press(keys="Delete"))
        clear, taken = True, taken + 1 + erased
    typed = _typed(rest[taken:])
    if typed is None or (clear and typed[0].clear):
        return None
    text, length = typed
    point = {"x": click.x, "y": click.y, "element": click.element} if click else {}
    return text.model_copy(update={**point, "clear": clear or text.clear}), taken + length


def _typed(rest: list[Action]) -> tuple[Type, int] | None:
    """A text without a point at the head of the row, with the Enter after it."""
    if not rest or not isinstance(rest[0], Type) or rest[0].x is not None:
        return None
    if not rest[0].enter and rest[1:2] == [ENTER] and rest[2:3] != [ENTER]:
        return rest[0].model_copy(update={"enter": True}), 2
    return rest[0], 1


def _combine(rest: list[Action]) -> tuple[Action, int]:
    """What the head of the row and those after it are together."""
    match rest:
        case [Hover(x=x, y=y), Scroll(x=None) as scroll, *_]:
            return scroll.model_copy(update={"x": x, "y": y}), 2
        case [SwitchTab(index=index), CloseTab(index=None), *_]:
            return CloseTab(index=index), 2
        case [NewTab(url=None), Goto(url=url), *_]:
            return NewTab(url=url), 2
        case [Press(keys=keys, repeat=1), *_]:
            same = next((n for n, other in enumerate(rest) if other != rest[0]), len(rest))
            count = min(same, MAX_REPEAT)
            return Press(keys=keys, repeat=count), count
    return rest[0], 1
