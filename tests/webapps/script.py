"""Tasks done by a script, which knows where things are from the page's elements and acts as a policy does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from holotron.actions.action import Click, Press, Scroll, Type
from holotron.suites.webapps.environment import AppEnvironment

SECONDS = 60.0  # in which an element must be there
# The middle of the first element of a path that has a size, in pixels of the view.
POINT = """path => { const all = document.evaluate(path, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
  for (let i = 0; i < all.snapshotLength; i++) { const box = all.snapshotItem(i).getBoundingClientRect();
    if (box.width && box.height) return [box.left + box.width / 2, box.top + box.height / 2]; } return null; }"""
Step = tuple[str, str]  # click PATH; press KEYS; write TEXT, where the focus is


async def perform(env: AppEnvironment, steps: Sequence[Step]) -> int:
    """Do the steps, paths of elements being XPath; how many actions it took."""
    done = 0
    for what, how in steps:
        if what == "click":
            (x, y), scrolled = await _find(env, how)
            done += scrolled
            await env.act(Click(x=x, y=y))
        else:
            await env.act(Press(keys=how) if what == "press" else Type(text=how))
        done += 1
    return done


async def _find(env: AppEnvironment, path: str) -> tuple[tuple[int, int], int]:
    """Where an element is, in thousandths of the view, scrolled to if need be; and how often it was scrolled."""
    width, height = env.size
    deadline, scrolled = time.monotonic() + SECONDS, 0
    while time.monotonic() < deadline:
        found = await env.evaluate(f"({POINT})({json.dumps(path)})")
        if found is None:
            await asyncio.sleep(0.1)
            continue
        x, y = found
        if 0 <= y < height:
            return (round(1000 * x / width), round(1000 * y / height)), scrolled
        await env.act(Scroll(direction="down" if y > 0 else "up", amount=40, x=round(1000 * x / width), y=500))
        scrolled += 1
    raise AssertionError(f"{path} is not in view")
