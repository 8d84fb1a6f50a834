"""The baseline that knows too much: solvers that read the page, and the primitives that they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holotron.suites.miniwob.actions import Primitive
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.observation import MiniWoBObservation, MiniWoBResult
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.solvers import clicks, forms, mouse  # noqa: F401  importing them fills the registry
from holotron.suites.miniwob.solvers.registry import SOLVERS

MOST_STEPS = 200


@dataclass(frozen=True)
class Attempt:
    """One scripted episode. The same primitives on the same seed give the same result in any faithful environment."""

    task: str
    seed: int
    actions: tuple[Primitive, ...]
    result: MiniWoBResult


def solvable() -> list[str]:
    """The tasks that have a solver."""
    return sorted(SOLVERS)


async def solve(
    env: MiniWoBEnv, task: str, seed: int, on_step: Callable[[MiniWoBObservation, Primitive], None] | None = None
) -> Attempt:
    """Play one episode by script. `on_step` is told what was seen before each primitive, which costs a screenshot."""
    solver = SOLVERS.get(task)
    if solver is None:
        raise MiniWoBError(f"no solver for {task!r} yet; there are {len(SOLVERS)}: {', '.join(solvable())}")
    observation = await env.reset(task, seed)
    actions: list[Primitive] = []
    result = MiniWoBResult(done=False)
    async for action in solver(PageInspector(env)):
        if on_step is not None:
            on_step(observation, action)
        actions.append(action)
        await env.act(action)
        result = await env.result()
        if result.done or len(actions) == MOST_STEPS:
            break
        if on_step is not None:
            observation = await env.observe()
    return Attempt(task, seed, tuple(actions), result)


async def replay(env: MiniWoBEnv, task: str, seed: int, actions: Iterable[Primitive]) -> MiniWoBResult:
    """Play primitives that were recorded, without looking."""
    await env.reset(task, seed)
    result = MiniWoBResult(done=False)
    for action in actions:
        await env.act(action)
        result = await env.result()
    return result
