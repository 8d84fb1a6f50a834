"""Finding out what is at a point or has the focus, across frames, and acting on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holotron.env.browser.frames import FrameBox
from holotron.env.browser.isolated_world import IsolatedWorld
from holotron.env.browser.tabs import LiveTab
from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.secrets import Secret

# A JavaScript function of a query's name and its arguments. In an isolated world it sees the page's elements, but the
# page neither sees it nor can change what its functions mean.
QUERIES = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


async def label_at(tab: LiveTab, x: float, y: float) -> str:
    """What is written on the thing at a point; empty if nothing is."""
    return (await _ask_at(tab, "label_at", x, y)).get("label") or ""


async def label_of_focus(tab: LiveTab) -> str:
    """What is written on what Enter would set off."""
    answer, _ = await _ask_focused(tab, "label_of_focus")
    return answer.get("label") or ""


async def is_editing(tab: LiveTab) -> bool:
    """Whether keys go into a field."""
    answer, _ = await _ask_focused(tab, "label_of_focus")
    return bool(answer.get("editable"))


async def select(tab: LiveTab, x: float, y: float, choices: Sequence[str]) -> None:
    """Choose options, by what they show or by their value, of the `<select>` at a point."""
    answer = await _ask_at(tab, "select", x, y, list(choices))
    if problem := answer.get("problem"):
        options = "".join(f"\n- {option}" for option in answer.get("options", ()))
        raise ActionFailed(problem + (f"; there are:{options}" if options else ""))


async def fill(tab: LiveTab, text: str) -> bool:
    """Give a field for dates, times or colours this value, as in `2026-01-31`; whether such a field has the focus."""
    answer, _ = await _ask_focused(tab, "fill", text)
    return bool(answer.get("filled"))


async def type_secret(tab: LiveTab, name: str, secret: Secret) -> None:
    """Put a secret where the focus is, if that is a page it may be told to.

    The value is inserted by a script in the very document that was checked, which is gone if anything else takes its
    place. Keys would go wherever the focus is by the time they arrive.
    """
    answer, world = await _ask_focused(tab, "focus_origin")
    origin = answer.get("origin", "null")
    if not secret.may_enter(origin):
        raise Refused(
            f"the secret {name!r} may not be typed into a page of {origin}",
            f"{name!r} may be typed into {', '.join(secret.origins)}",
        )
    answer = await world.run(QUERIES, "insert", secret.value, again=False)
    if answer.get("framed"):
        raise ActionFailed(f"the page moved the focus while the secret {name!r} was typed")
    if answer.get("problem"):
        raise ActionFailed(f"the secret {name!r} was not typed: nothing that takes text has the focus")


async def world_at(tab: LiveTab, x: float, y: float) -> IsolatedWorld:
    """The world of the document at a point: the page's, or that of the innermost frame."""
    if not (await _ask(tab.world, "frame_at", x, y))["framed"]:
        return tab.world
    frame = await _frame_at(tab, x, y)
    await _ask(frame.world, "frame_at", x - frame.left, y - frame.top)  # which finds closed shadow roots
    return frame.world


async def world_of_focus(tab: LiveTab) -> IsolatedWorld:
    """The world of the document that has the focus."""
    return (await _ask_focused(tab, "focus_origin"))[1]


async def _ask(world: IsolatedWorld, query: str, *given: Any) -> dict[str, Any]:
    """One document's answer; a closed shadow root that is in the way is opened for this query and later ones."""
    answer: dict[str, Any] = await world.run(QUERIES, query, *given)
    point = given[:2] if query.endswith("_at") or query == "select" else ()
    while answer.get("host") and await world.closed_root(QUERIES, ["reach", *point], "keep_root"):
        answer = await world.run(QUERIES, query, *given)
    return answer


async def _ask_at(tab: LiveTab, query: str, x: float, y: float, *more: object) -> dict[str, Any]:
    """The answer of the document at a point: the page's, or that of the innermost frame."""
    answer = await _ask(tab.world, query, x, y, *more)
    if answer.get("framed"):
        frame = await _frame_at(tab, x, y)
        answer = await _ask(frame.world, query, x - frame.left, y - frame.top, *more)
    return answer


async def _frame_at(tab: LiveTab, x: float, y: float) -> FrameBox:
    """The innermost frame at a point."""
    found = [frame for frame in await tab.frames.boxes() if frame.holds(x, y)]
    if not found:
        raise ActionFailed("the frame at this point does not answer")
    return found[-1]


async def _ask_focused(tab: LiveTab, query: str, *given: object) -> tuple[dict[str, Any], IsolatedWorld]:
    """The answer of the document that has the focus, and its world."""
    answer = await _ask(tab.world, query, *given)
    if not answer.get("framed"):
        return answer, tab.world
    for frame in await tab.frames.boxes():
        if (await _ask(frame.world, "has_focus"))["focused"]:
            return await _ask(frame.world, query, *given), frame.world
    raise ActionFailed("the frame that has the focus does not answer")
