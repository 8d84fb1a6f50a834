"""What a step costs the processors, by kind of process: recorded actions through the path of an evaluation."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holotron.agent.agent import Budget
from holotron.agent.chat import Chat, Message, Reply
from holotron.agent.policy_format import NanoFormat
from holotron.episodes.fleet import Counters
from holotron.episodes.record import PolicyInfo
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.miniwob.tasks import all_tasks
from holotron.suites.play import Play, play_tasks

RECORDED = Path("benchmarks/results/house/episodes.json")
TASKS = tuple(name for name, task in all_tasks().items() if task.pix2act)[::3]
SAMPLES = 6  # times that each recorded episode is played
SECONDS_BETWEEN_LOOKS = 0.5
ENDED = "ended"  # where nothing else is known of a process
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Recorded:
    """A model that answers what was done before after the same screenshots; where they are others, a click."""

    actions: Mapping[tuple[str, ...], str]
    unknown: list[int] = field(default_factory=list)
    name: str = "recorded"

    @classmethod
    def read(cls, path: Path = RECORDED) -> Recorded:
        found: dict[tuple[str, ...], str] = {}
        for each in json.loads(path.read_bytes())["played"]:
            episode = each["before"]
            for index, action in enumerate(episode["actions"]):
                found[tuple(episode["screens"][: index + 1])] = action
        return cls(found)

    async def open(self) -> Chat:
        return _Answers(self)


class _Answers:
    def __init__(self, model: Recorded) -> None:
        self._model, self._seen = model, tuple[str, ...]()

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        image = new[-1].image
        assert image is not None
        self._seen += (hashlib.sha256(image).hexdigest()[:16],)
        action = self._model.actions.get(self._seen)
        if action is None:
            self._model.unknown.append(len(self._seen))
        return Reply(action or '{"action":"click","x":500,"y":600}')

    async def close(self) -> None: ...


@dataclass
class Spent:
    """Processor time of this process and all below it since the first look, those that ended meanwhile included."""

    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, tuple[str, float]] = field(default_factory=dict)
    begun: bool = False

    def look(self) -> Mapping[str, float]:
        """Seconds by kind of process."""
        for pid, kind, seconds in _family(os.getpid()):
            if not self.begun:
                self.first[pid] = seconds
            self.last[pid] = kind or self.last.get(pid, (ENDED,))[0], seconds
        self.begun = True
        spent = defaultdict[str, float](float)
        for pid, (kind, seconds) in self.last.items():
            spent[kind] += seconds - self.first.get(pid, 0.0)
        return spent


def _family(root: int) -> Iterator[tuple[int, str, float]]:
    """Processes with what they are, which those that have ended do not tell, and the seconds they used."""
    below: dict[int, list[int]] = {}
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            stats[int(entry.name)] = stat
            below.setdefault(int(stat[1]), []).append(int(entry.name))
    left = [root]
    while left:
        pid = left.pop()
        left += below.get(pid, [])
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        yield pid, _kind(pid, root, command), (int(stats[pid][11]) + int(stats[pid][12])) / TICK


def _kind(pid: int, root: int, command: str) -> str:
    if pid == root or not command:
        return command and "parent"
    if "--type=" in command:
        kind = command.partition("--type=")[2].split()[0]
        return {"renderer": "renderer", "gpu-process": "GPU process"}.get(kind, "other of Chromium")
    program = command.partition(" ")[0]
    if "node" in program:
        return "Playwright's driver"
    return "worker" if "python" in program else "browser"


async def measure_steps(workers: int = 2, sessions: int = 12, tasks: Sequence[str] = TASKS) -> dict[str, Any]:
    """Milliseconds of processor time for each step, by kind of process; what was played, and as recorded or not."""
    model, suite = Recorded.read(), MiniWoBSuite()
    seeds = sorted({each["seed"] for each in json.loads(RECORDED.read_bytes())["played"] if each["suite"] == "miniwob"})
    todo = [
        suite.task(name, seed).model_copy(update={"sample": sample})
        for sample in range(SAMPLES)
        for seed in seeds
        for name in tasks
    ]
    spent, counters = Spent(), Counters()
    looks: list[tuple[int, float, Mapping[str, float]]] = []

    def changed(now: Counters) -> None:
        nonlocal counters
        counters = now
        if now.steps and (not looks or time.monotonic() - looks[-1][1] > SECONDS_BETWEEN_LOOKS):
            looks.append((now.steps, time.monotonic(), spent.look()))

    with tempfile.TemporaryDirectory() as folder:
        how = Play(suite, Path(folder), PolicyInfo(model=model.name), NanoFormat(), Budget(steps=10), suite.rule)
        await play_tasks(how, todo, model, workers=workers, sessions=sessions, on_change=changed)
    # From the first steps on, without the start of browsers, to the last: the same episodes in every run.
    (began, start, before), (ended, end, after) = looks[0], looks[-1]
    steps = ended - began
    by = {kind: round(1000 * (after[kind] - before.get(kind, 0.0)) / steps, 2) for kind in sorted(after)}
    return {
        "cpu_ms_per_step": round(sum(by.values()), 2),
        "by_process": by,
        "steps_counted": steps,
        "steps_per_second": round(steps / (end - start), 1),
        "steps": counters.steps,
        "episodes": counters.finished,
        "rewarded": round(counters.rewarded, 3),
        "other_screens": len(model.unknown),
    }
