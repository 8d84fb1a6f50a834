"""MiniWoB++ in drawn variations: the same tasks on canvases, at places, zooms, colours and letters of a seed's own.

The task's page keeps its own coordinates, by which many tasks judge what was drawn or dragged. The browser draws it at
the zoom, the canvas is painted around that, and points are led back: a click beside the task is one beside its area.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, replace

from holotron.actions.action import Action
from holotron.env.environment import Observation
from holotron.env.executor import Point
from holotron.env.placement import Placement
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo
from holotron.suites.kit.variation import Look, css_colour, draw_look, draw_placement
from holotron.suites.miniwob.environment import PARKED, MiniWoBEnvironment
from holotron.suites.miniwob.suite import MiniWoBSuite, OracleTeacher
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH
from holotron.suites.suite import HELD_OUT_SEEDS

AREA = (WIDTH, HEIGHT)
OWN_LETTERS = ("daily-calendar",)  # whose rows other letters make so high that its teacher cannot reach them all
RESTYLE = """(css) => {
  if (!window.holotron_sheet) {
    Object.defineProperty(window, "holotron_sheet", { value: new CSSStyleSheet() });
    document.adoptedStyleSheets.push(window.holotron_sheet);
  }
  window.holotron_sheet.replaceSync(css);
}"""


def draw_variation(task: str, seed: int) -> tuple[Placement, Look]:
    """How a task looks with a seed: seeds for evaluation draw what those for training do not."""
    chance, held_out = random.Random(f"variation/{task}/{seed}"), seed in HELD_OUT_SEEDS
    return draw_placement(chance, AREA, held_out), draw_look(chance, held_out)


class VariedMiniWoB(MiniWoBEnvironment):
    """One page of MiniWoB++, shown as the seed of its episode says."""

    placement = Placement(AREA)
    look: Look | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.placement.size

    async def reset(self, task: Task, seed: int) -> Observation:
        self.placement, self.look = draw_variation(task.name or "", seed)
        return await super().reset(task, seed)

    async def show(self) -> None:
        """All of the viewport, which zooms fill."""

    async def restyle(self) -> None:
        look = self.look
        assert look is not None
        css = (
            f"body, #wrap, #area {{ background-color: {css_colour(look.ground)}; }}"
            f"#query {{ background-color: {css_colour(look.bar)} !important; }}"
        )
        if self.task not in OWN_LETTERS:
            css += f"#wrap, #wrap *:not(.ui-icon) {{ font-family: '{look.font}' !important; }}"
        await self.evaluate(f"({RESTYLE})({json.dumps(css)})")

    async def screenshot(self) -> bytes:
        shown = await self.capture(*AREA, self.placement.zoom)
        # The browser drew it at its zoom.
        return await asyncio.to_thread(replace(self.placement, zoom=1.0).place_png, shown)

    def aim(self, x: float, y: float) -> Point:
        super().aim(x, y)
        return self.placement.back(x, y, AREA) or PARKED

    async def scroll(self, dx: float, dy: float, at: Point | None = None) -> None:
        """By pixels of the canvas; without a point over the middle of the task, wherever that is shown."""
        middle, zoom = self.placement.scaled(AREA), self.placement.zoom
        here = at or (self.placement.left + middle[0] // 2, self.placement.top + middle[1] // 2)
        await super().scroll(dx / zoom, dy / zoom, here)


class VariedMiniWoBSuite(MiniWoBSuite):
    """The tasks, protocols and teachers of MiniWoB++; seeds for evaluation look as none for training do."""

    name = "miniwob-varied"
    near = 15  # the task is a part of the canvas
    page = VariedMiniWoB

    @property
    def environment(self) -> EnvironmentInfo:
        return EnvironmentInfo(name=self.name)

    def teacher(self, env: MiniWoBEnvironment) -> OracleTeacher:
        assert isinstance(env, VariedMiniWoB)
        return MovedTeacher(super().teacher(env).env, env.placement)


@dataclass(frozen=True)
class MovedTeacher(OracleTeacher):
    """The oracle, whose points are moved to where the canvas shows them, and who scrolls as far as on the bare task."""

    placement: Placement

    async def ask(self) -> Action | None:
        action = await super().ask()
        return None if action is None else self.placement.move(action, AREA)
