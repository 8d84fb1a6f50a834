"""The search for a hidden spot by the signal that the page shows as the mouse moves."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, hover
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

QUERY_HEIGHT = 50
SIGNALS = ("HOT", "WARM", "COLD", "ICE COLD")
LIMITS = (5, 10, 40)  # pixels from the spot at which one signal gives way to the next
# The page shows only its last signal; earlier ones are noted from the first question on.
RECORD = """(() => {
  if (window.signals === undefined) {
    window.signals = [];
    window.addEventListener('mousemove', event => {
      const signal = document.querySelector('#signal');
      if (signal) window.signals.push([event.pageX, event.pageY, signal.textContent]);
    });
  }
  return window.signals;
})()"""
Seen = tuple[tuple[int, int, str], ...]


@teaches("hot-cold")
async def find_hot_spot(page: PageInspector) -> Action:
    seen: Seen = tuple((int(x), int(y), str(signal)) for x, y, signal in await page.read(RECORD))
    for x, y, signal in seen:
        if signal == "HOT":
            return click((x, y))
    x, y = _next_probe(seen)
    return hover((x, y + QUERY_HEIGHT))


@cache
def _probes() -> NDArray[np.float64]:
    return np.array([(x, y) for y in range(8, 120, 6) for x in range(8, 152, 6)], dtype=np.float64)


@cache
def _spots() -> NDArray[np.float64]:
    return np.array([(x, y) for y in range(5, 120) for x in range(5, 155)], dtype=np.float64)


@cache
def _answers() -> NDArray[np.int8]:
    """What each probe would be told for each spot, as an index of SIGNALS."""
    return np.stack([_told(probe[0], probe[1]) for probe in _probes()])


def _told(x: float, y: float) -> NDArray[np.int8]:
    away = np.hypot(_spots()[:, 0] - x, _spots()[:, 1] - y)
    return np.digitize(away, LIMITS).astype(np.int8)


@cache
def _next_probe(seen: Seen) -> tuple[int, int]:
    """Where the answer tells most about the spot, given all that was seen; the middle of what is left, if little is."""
    possible = np.ones(len(_spots()), dtype=bool)
    for x, y, signal in seen:
        possible &= _told(x, y - QUERY_HEIGHT) == SIGNALS.index(signal)
    if not possible.any():
        return 80, 60
    left = _spots()[possible]
    middle = np.round(left.mean(axis=0))
    if (np.hypot(*(left - middle).T) < LIMITS[0]).all():
        return int(middle[0]), int(middle[1])
    answers = _answers()[:, possible]
    shares = np.stack([(answers == index).mean(axis=1) for index in range(len(SIGNALS))], axis=1)
    told = -(shares * np.log2(np.maximum(shares, 1e-12))).sum(axis=1)
    best = _probes()[int(told.argmax())]
    return int(best[0]), int(best[1])
