"""Actions carried out on a MiniWoB++ task, which knows itself whether it is solved."""

from __future__ import annotations

from holotron.actions import action as a
from holotron.actions.keys import playwright_keys
from holotron.actions.space import Space
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.protocols import Rule, is_success
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH

SPACE = Space("pixels", WIDTH, HEIGHT)
AT_ONCE = 10.0  # seconds; longer waits than this have no use in tasks that take ten


class MiniWoBWorld:
    """An episode that was reset. Success is judged by the protocol's rule."""

    def __init__(self, env: MiniWoBEnv, rule: Rule = "positive") -> None:
        self.env = env
        self._rule = rule

    async def observe(self) -> Observation:
        looked = await self.env.observe()
        return Observation(looked.png, looked.width, looked.height, f"miniwob:{self.env.task}", self.env.task)

    async def status(self) -> TaskStatus:
        result = await self.env.result()
        if not result.done:
            return TaskStatus()
        reward = result.raw_reward if result.raw_reward == result.raw_reward else 0.0
        return TaskStatus(True, reward, is_success(self._rule, self.env.task, result.raw_reward))

    async def act(self, action: a.Action) -> None:
        try:
            await self._act(action)
        except MiniWoBError as error:
            raise ActionFailed(str(error)) from error

    async def _act(self, action: a.Action) -> None:
        env, at = self.env, SPACE.from_relative
        match action:
            case a.Click():
                await env.click(*at(action.x, action.y), button=action.button)
            case a.DoubleClick():
                await env.click(*at(action.x, action.y), count=2)
            case a.Hover():
                await env.move(*at(action.x, action.y))
            case a.Drag():
                await env.drag((at(action.x, action.y), at(action.to_x, action.to_y)))
            case a.Type():
                await self._type(action)
            case a.Press():
                for _ in range(action.repeat):
                    await env.press(playwright_keys(action.keys))
            case a.Scroll():
                await self._scroll(action)
            case a.Select():
                # A click opens the list, on whose options the mouse has no effect; typing ahead finds them.
                await env.click(*at(action.x, action.y))
                await env.type_text(action.option)
                await env.press("Enter")
            case a.Wait():
                from holotron.suites.miniwob.actions import Wait

                await env.act(Wait(min(action.seconds, AT_ONCE)))
            case _:
                raise ActionFailed(f"{action.action} does nothing here: the task is one page without an address bar")

    async def _type(self, action: a.Type) -> None:
        if action.x is not None and action.y is not None:
            await self.env.click(*SPACE.from_relative(action.x, action.y))
        if action.clear:
            await self.env.press("Control+a")
            await self.env.press("Delete")
        if action.text:
            await self.env.type_text(action.text)
        if action.enter:
            await self.env.press("Enter")

    async def _scroll(self, action: a.Scroll) -> None:
        sign = 1 if action.direction in ("down", "right") else -1
        vertical = action.direction in ("up", "down")
        pixels = sign * action.amount * (HEIGHT if vertical else WIDTH) / 100
        x, y = (WIDTH // 2, HEIGHT // 2)
        if action.x is not None and action.y is not None:
            x, y = SPACE.from_relative(action.x, action.y)
        await self.env.scroll(x, y, pixels if vertical else 0.0, 0.0 if vertical else pixels)
