"""Actions in words, for a person."""

from __future__ import annotations

from holotron.actions import action as a
from holotron.actions.action import shown


def describe(action: a.Action) -> str:
    """What an action does, in a few words."""
    match action:
        case a.Click() | a.DoubleClick() | a.Hover():
            verb = {"click": "Click", "double_click": "Double-click", "hover": "Point at"}[action.action]
            if isinstance(action, a.Click) and action.button != "left":
                verb = f"{action.button.capitalize()}-click"
            return f"{verb} {_where(action)}"
        case a.Drag():
            return f"Drag from ({action.x}, {action.y}) to ({action.to_x}, {action.to_y})"
        case a.Type():
            place = f" into {_where(action)}" if action.x is not None or action.element else ""
            ways = " after clearing it" * action.clear + " and press Enter" * action.enter
            return f"Type {shown(action.text)}{place}{ways}"
        case a.Press():
            return f"Press {action.keys}" + (f" {action.repeat} times" if action.repeat > 1 else "")
        case a.Scroll():
            place = f" at ({action.x}, {action.y})" if action.x is not None else ""
            return f"Scroll {action.direction} by {action.amount}%{place}"
        case a.Select():
            return f"Choose {shown(action.option)} at ({action.x}, {action.y})"
        case a.Goto():
            return f"Go to {action.url[:200]}"
        case a.Back() | a.Forward():
            return f"Go {action.action}"
        case a.Refresh():
            return "Load the page again"
        case a.Wait():
            return f"Wait {action.seconds:g} s"
        case a.NewTab():
            return "Open a new tab" + (f" at {action.url[:200]}" if action.url else "")
        case a.SwitchTab():
            return f"Go to tab {action.index}"
        case a.CloseTab():
            return "Close this tab" if action.index is None else f"Close tab {action.index}"
        case a.Answer():
            return f"Answer {shown(action.text)}"
        case a.Infeasible():
            return f"Give up: {shown(action.reason)}"


def _where(action: a.Click | a.DoubleClick | a.Hover | a.Type) -> str:
    point = f"({action.x}, {action.y})" if action.x is not None else ""
    return f"{shown(action.element)} {point}".strip() if action.element else point
