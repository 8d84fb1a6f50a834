"""The one executor of actions: points become pixels, actions become what pointer, keys and browser do."""

from __future__ import annotations

from typing import ClassVar, NoReturn, Protocol

from holotron.actions import action as a
from holotron.actions.action import Button
from holotron.actions.coordinates import Space
from holotron.env.errors import ActionFailed

CLEAR_KEYS = ("Control+a", "Delete")
Point = tuple[float, float]


class Surface(Protocol):
    """What can be acted on, in pixels. Each surface decides how long it waits after an action.

    Subclasses get refusals for navigation, tabs and ends of tasks; `reason` says why there are none.
    """

    reason: ClassVar[str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        ...

    async def click(self, x: float, y: float, button: Button = "left", count: int = 1) -> None: ...

    async def hover(self, x: float, y: float) -> None: ...

    async def drag(self, start: Point, end: Point) -> None:
        """Press the left button at one point and let it go at another, with moves in between."""

    async def type_text(self, text: str) -> None:
        """Type where the focus is."""

    async def press(self, keys: str, repeat: int = 1) -> None:
        """Press a key or a chord, spelled as in actions, some times over."""

    async def scroll(self, dx: float, dy: float, at: Point | None = None) -> None:
        """Turn the wheel by so many pixels, over a point or the middle; positive is right and down."""

    async def select_option(self, x: float, y: float, choice: str) -> None:
        """Choose from the list at a point, by what the option shows."""

    async def wait(self, seconds: float) -> None: ...

    async def goto(self, url: str) -> None:
        self.refuse("goto")

    async def back(self) -> None:
        self.refuse("back")

    async def forward(self) -> None:
        self.refuse("forward")

    async def reload(self) -> None:
        self.refuse("refresh")

    async def new_tab(self, url: str | None = None) -> None:
        self.refuse("new_tab")

    async def switch_tab(self, index: int) -> None:
        self.refuse("switch_tab")

    async def close_tab(self, index: int | None = None) -> None:
        self.refuse("close_tab")

    async def answer(self, text: str) -> None:
        self.refuse("answer")

    async def give_up(self, why: str) -> None:
        self.refuse("infeasible")

    def refuse(self, action: str) -> NoReturn:
        raise ActionFailed(f"{action} does nothing here: {self.reason}")


async def execute(surface: Surface, action: a.Action) -> None:
    """Carry out one action. ActionFailed where the surface or the page cannot do it."""
    width, height = surface.size
    at = Space("pixels", width, height).from_relative
    match action:
        case a.Click():
            await surface.click(*at(action.x, action.y), button=action.button)
        case a.DoubleClick():
            await surface.click(*at(action.x, action.y), count=2)
        case a.Hover():
            await surface.hover(*at(action.x, action.y))
        case a.Drag():
            await surface.drag(at(action.x, action.y), at(action.to_x, action.to_y))
        case a.Type():
            if action.x is not None and action.y is not None:
                await surface.click(*at(action.x, action.y))
            for keys in CLEAR_KEYS if action.clear else ():
                await surface.press(keys)
            if action.text:
                await surface.type_text(action.text)
            if action.enter:
                await surface.press("Enter")
        case a.Press():
            await surface.press(action.keys, action.repeat)
        case a.Scroll():
            upright = action.direction in ("up", "down")
            sign = 1 if action.direction in ("down", "right") else -1
            pixels = sign * action.amount * (height if upright else width) / 100
            point = None if action.x is None or action.y is None else at(action.x, action.y)
            await surface.scroll(0.0 if upright else pixels, pixels if upright else 0.0, point)
        case a.Select():
            await surface.select_option(*at(action.x, action.y), action.option)
        case a.Wait():
            await surface.wait(action.seconds)
        case a.Goto():
            await surface.goto(action.url)
        case a.Back():
            await surface.back()
        case a.Forward():
            await surface.forward()
        case a.Refresh():
            await surface.reload()
        case a.NewTab():
            await surface.new_tab(action.url)
        case a.SwitchTab():
            await surface.switch_tab(action.index)
        case a.CloseTab():
            await surface.close_tab(action.index)
        case a.Answer():
            await surface.answer(action.text)
        case a.Infeasible():
            await surface.give_up(action.reason)
