"""Agents that come by themselves, however busy the engine is: at random, in bursts, or as recorded episodes did."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path

from holotron.plan.errors import PlanError


@dataclass(frozen=True)
class LifeStep:
    """Tokens that a step appends and generates, and seconds between the last answer and it."""

    new_tokens: int
    generated_tokens: int
    pause: float = 0.0


Life = tuple[LifeStep, ...]


@dataclass(frozen=True)
class TracedEpisode:
    """A recorded episode: when it began, in seconds after the first one, and its steps."""

    at: float
    life: Life


class Arrivals:
    """When the next agents come. Without a rate, the trace's episodes come when they came, again and again."""

    def __init__(self, rate: float, burst: int, trace: Sequence[TracedEpisode], draw: random.Random) -> None:
        self._rate, self._burst, self._draw = rate, burst, draw
        self._lives = cycle([episode.life for episode in trace] or [None])
        self._gaps = cycle(_gaps(trace) if trace and not rate else [0.0])
        self._next = self._gap() if rate else 0.0

    def due(self, seconds: float) -> list[Life | None]:
        """Who has come by now; None is a life as the workload has it."""
        come: list[Life | None] = []
        while self._next <= seconds:
            come += [next(self._lives) for _ in range(self._burst if self._rate else 1)]
            self._next += self._gap()
        return come

    def _gap(self) -> float:
        return self._draw.expovariate(self._rate / self._burst) if self._rate else next(self._gaps)


def _gaps(trace: Sequence[TracedEpisode]) -> list[float]:
    """Seconds from each episode to the next; from the last one to the first their mean."""
    gaps = [after.at - before.at for before, after in pairwise(trace)]
    return [*gaps, max(sum(gaps) / len(gaps) if gaps else 0.0, 1.0 if not any(gaps) else 0.0)]


def read_trace(path: Path) -> list[TracedEpisode]:
    """From lines such as {"at": 0.0, "steps": [[2400, 96, 0], [2368, 41, 3.2]]}: tokens new and generated, pauses."""
    found: list[TracedEpisode] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"--trace {path}: it cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            life = tuple(LifeStep(int(new), int(made), float(pause)) for new, made, pause in record["steps"])
            episode = TracedEpisode(float(record["at"]), life)
        except (ValueError, TypeError, KeyError) as error:
            raise PlanError(
                f"--trace {path}, line {number}: it is not {{'at': …, 'steps': [[…]]}}: {error!r}"
            ) from error
        if not life or min(min(s.new_tokens - 1, s.generated_tokens - 1, s.pause) for s in life) < 0:
            raise PlanError(
                f"--trace {path}, line {number}: a step needs tokens, new and generated, and no negative pause"
            )
        found.append(episode)
    if not found:
        raise PlanError(f"--trace {path}: it has no episode")
    first = min(episode.at for episode in found)
    return sorted((TracedEpisode(e.at - first, e.life) for e in found), key=lambda e: e.at)


def write_trace(store: Path, out: Path) -> int:
    """The trace of an episode store; how many episodes it has. Steps of unknown length are left out."""
    from holotron.episodes.store import EpisodeStore  # a bare GPU machine reads traces, but no episodes

    episodes, found = EpisodeStore(store), 0
    with out.open("w", encoding="utf-8") as file:
        for episode_id in (info.id for info in episodes.list_episodes()):
            episode, steps, before = episodes.read(episode_id), [], 0
            for step in episode.steps:
                output = step.output
                if output is None or not output.prompt_tokens:
                    continue
                made = output.completion_tokens or len(output.token_ids or ())
                new = len(output.prompt_ids or ()) or output.prompt_tokens - before
                before = output.prompt_tokens + made
                if new > 0 and made > 0:
                    steps.append([new, made, round(step.timings.observe + step.timings.act, 3)])
            if steps:
                found += 1
                file.write(json.dumps({"at": round(episode.started, 3), "steps": steps}) + "\n")
    return found
