"""Finding out what is at a point or has the focus, across frames, and acting on it."""

from __future__ import annotations

from collections.abc import Sequence

from playwright.async_api import Error

from holotron.env.browser import scripts
from holotron.env.browser.frames import FrameBox
from holotron.env.browser.isolated_world import IsolatedWorld, IsolatedWorldGone
from holotron.env.browser.tabs import LiveTab
from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.secrets import Secret


async def label_at(tab: LiveTab, x: float, y: float) -> str:
    """What is written on the thing at a point; empty if nothing is."""
    label = await tab.world.run(scripts.LABEL_AT, x, y)
    if label is None:
        frame = await _frame_at(tab, x, y)
        label = await frame.world.run(scripts.LABEL_AT, x - frame.left, y - frame.top)
    return label or ""


async def label_of_focus(tab: LiveTab) -> str:
    """What is written on what a key such as Enter would set off."""
    label = await tab.world.run(scripts.LABEL_OF_FOCUS)
    if label is None:
        label = await (await _focused_frame(tab)).run(scripts.LABEL_OF_FOCUS)
    return label or ""


async def select(tab: LiveTab, x: float, y: float, choices: Sequence[str]) -> None:
    """Choose options, by what they show or by their value, of the `<select>` at a point."""
    answer = await tab.world.run(scripts.SELECT, x, y, list(choices))
    if answer.get("framed"):
        frame = await _frame_at(tab, x, y)
        answer = await frame.world.run(scripts.SELECT, x - frame.left, y - frame.top, list(choices))
    if problem := answer.get("problem"):
        options = "".join(f"\n- {option}" for option in answer.get("options", ()))
        raise ActionFailed(problem + (f"; there are:{options}" if options else ""))


async def type_secret(tab: LiveTab, name: str, secret: Secret) -> None:
    """Put a secret where the focus is, if that is a page it may be told to.

    The value is inserted by a script in the very document that was checked, which is gone if anything else takes its
    place. Keys would go wherever the focus is by the time they arrive.
    """
    world = tab.world
    answer = await world.run(scripts.FOCUS_ORIGIN)
    if answer.get("framed"):
        world = await _focused_frame(tab)
        answer = await world.run(scripts.FOCUS_ORIGIN)
    origin = answer.get("origin", "null")
    if not secret.may_enter(origin):
        raise Refused(
            f"the secret {name!r} may not be typed into a page of {origin}",
            f"{name!r} may be typed into {', '.join(secret.origins)}",
        )
    answer = await world.run(scripts.INSERT, secret.value, again=False)
    if answer.get("moved"):
        raise ActionFailed(f"the page moved the focus while the secret {name!r} was typed")
    if answer.get("problem"):
        raise ActionFailed(f"the secret {name!r} was not typed: nothing that takes text has the focus")


async def boxes_of(tab: LiveTab, texts: Sequence[str]) -> list[list[float]]:
    """Boxes, in pixels of the viewport, around everything that shows one of these texts."""
    boxes: list[list[float]] = await tab.world.run(scripts.FIND_TEXTS, list(texts))
    for frame in await tab.frames.boxes():
        try:
            inside = await frame.world.run(scripts.FIND_TEXTS, list(texts))
        except (Error, IsolatedWorldGone):
            continue  # the frame is going, and so is what it shows
        boxes += [[x + frame.left, y + frame.top, width, height] for x, y, width, height in inside]
    return boxes


async def _frame_at(tab: LiveTab, x: float, y: float) -> FrameBox:
    """The innermost frame at a point."""
    found = [frame for frame in await tab.frames.boxes() if frame.holds(x, y)]
    if not found:
        raise ActionFailed("the frame at this point does not answer")
    return found[-1]


async def _focused_frame(tab: LiveTab) -> IsolatedWorld:
    """The frame that has the focus."""
    for frame in await tab.frames.boxes():
        if await frame.world.run(scripts.HAS_FOCUS):
            return frame.world
    raise ActionFailed("the frame that has the focus does not answer")
