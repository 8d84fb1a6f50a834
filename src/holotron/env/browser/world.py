"""Actions carried out in a real browser."""

from __future__ import annotations

from holotron.actions import action as a
from holotron.actions.space import Space
from holotron.env.browser.environment import BrowserEnv
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed

CLEAR_KEYS = ("Control+a", "Delete")


class BrowserWorld:
    """A BrowserEnv as the loop sees it. It has no opinion on whether the task is done."""

    def __init__(self, env: BrowserEnv) -> None:
        self.env = env
        self._space = Space("pixels", env.options.width, env.options.height)

    async def observe(self) -> Observation:
        looked = await self.env.observe()
        notices = [f"a {d.kind} said {d.message!r} and was answered with {d.answer!r}" for d in looked.dialogs]
        notices += [f"a download of {d.name!r} was {'saved' if d.path else 'refused'}" for d in looked.downloads]
        notices += [f"{r.kind} to {r.target} was refused: {r.rule}" for r in looked.refusals]
        notices += [*looked.errors, *looked.notices]
        tabs = tuple(f"{'*' if tab.current else ''}{tab.index}: {tab.title or tab.url}" for tab in looked.tabs)
        return Observation(
            looked.screenshot, looked.width, looked.height, looked.url, looked.title, tabs, tuple(notices)
        )

    async def status(self) -> TaskStatus:
        return TaskStatus()

    async def act(self, action: a.Action) -> None:
        env, at = self.env, self._space.from_relative
        match action:
            case a.Click():
                await env.click(*at(action.x, action.y), button=action.button)
            case a.DoubleClick():
                await env.click(*at(action.x, action.y), count=2)
            case a.Hover():
                await env.hover(*at(action.x, action.y))
            case a.Drag():
                await env.drag(at(action.x, action.y), at(action.to_x, action.to_y))
            case a.Type():
                await self._type(action)
            case a.Press():
                await env.press(action.keys, action.repeat)
            case a.Scroll():
                await self._scroll(action)
            case a.Select():
                await env.select_option(*at(action.x, action.y), action.option)
            case a.Goto():
                await env.goto(action.url)
            case a.Back():
                await env.back()
            case a.Forward():
                await env.forward()
            case a.Refresh():
                await env.reload()
            case a.Wait():
                await env.wait(action.seconds)
            case a.NewTab():
                await env.new_tab(action.url)
            case a.SwitchTab():
                await env.switch_tab(action.index)
            case a.CloseTab():
                await env.close_tab(action.index)
            case _:
                raise ActionFailed(f"{action.action} is not something a browser does")

    async def _type(self, action: a.Type) -> None:
        if action.x is not None and action.y is not None:
            await self.env.click(*self._space.from_relative(action.x, action.y))
        if action.clear:
            for keys in CLEAR_KEYS:
                await self.env.press(keys)
        if action.text:
            await self.env.type_text(action.text)
        if action.enter:
            await self.env.press("Enter")

    async def _scroll(self, action: a.Scroll) -> None:
        sign = 1 if action.direction in ("down", "right") else -1
        along = self._space.height if action.direction in ("up", "down") else self._space.width
        pixels = sign * action.amount * along / 100
        point = None
        if action.x is not None and action.y is not None:
            point = self._space.from_relative(action.x, action.y)
        dx, dy = (0.0, pixels) if action.direction in ("up", "down") else (pixels, 0.0)
        await self.env.scroll(dx, dy, at=point)
