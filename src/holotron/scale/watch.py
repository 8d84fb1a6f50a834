"""A cluster watched: how it is getting on now, how fast, and what has happened since the watch began."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holotron.scale.status import ray_status, server_status

LOOK_SECONDS = 2.0
WINDOW = 8  # looks over which a rate is measured
MOST_EVENTS = 200
COUNTS = ("moved", "rebuilt", "lost")
Status = Mapping[str, Any]


class ClusterWatch:
    """Looks every few seconds, in a thread of its own while the context is open. look: such as look_at."""

    def __init__(self, look: Callable[[], tuple[Status, list[str]]]) -> None:
        self._look = look
        self._looks: deque[tuple[float, Status]] = deque(maxlen=WINDOW)
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._over = threading.Event()
        self._told: Status = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        self.look()
        thread = threading.Thread(target=self._run, name="cluster-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def told(self) -> Status:
        """What the last look has seen: what `holotron status` tells, rates, and events, the latest first."""
        return self._told

    def look(self) -> None:
        seen, problems = self._look()
        now = time.monotonic()
        before = self._looks[-1][1] if self._looks else None
        events = [] if before is None else changes(before, seen)
        self._events.extendleft({"at": time.time(), "text": text} for text in events)
        self._looks.append((now, seen))
        then, first = self._looks[0]
        rated = with_rates(first, seen, now - then)
        self._told = {**rated, "now": time.time(), "problems": problems, "events": list(self._events)}

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()


def look_at(ray_address: str | None, endpoint: str | None, admin_key: str | None) -> tuple[dict[str, Any], list[str]]:
    """What can be seen of the cluster and the server, and why something cannot."""
    looks: dict[str | None, Callable[[str], dict[str, Any]]]
    looks = {ray_address: ray_status, endpoint: lambda url: server_status(url, admin_key)}
    found: dict[str, Any] = {}
    problems = []
    for place, look in looks.items():
        try:
            found |= {} if place is None else look(place)
        except Exception as error:  # of a cluster that is going away, Ray's own: the watch goes on
            problems.append(str(error) or type(error).__name__)
    return found, problems


def with_rates(before: Status, after: Status, seconds: float) -> dict[str, Any]:
    """What was seen last, with what hosts and replicas did each second since; nothing yet of a new process."""
    found = dict(after)
    for part, rate in (("hosts", "steps_per_second"), ("replicas", "tokens_per_second")):
        if part in after:
            known = {(each["name"], each.get("pid")): _work(each) for each in before.get(part, ())}
            done = [_work(each) - known.get((each["name"], each.get("pid")), _work(each)) for each in after[part]]
            rates = [more / seconds if seconds else 0.0 for more in done]
            found[part] = [each | {rate: value} for each, value in zip(after[part], rates, strict=True)]
            found[rate] = sum(rates)
    return found


def _work(each: Status) -> float:
    """Of a host its steps; of a replica the tokens that its engine has generated."""
    return float(each.get("steps", each.get("engine", {}).get("generated_tokens", 0)))


def changes(before: Status, after: Status) -> list[str]:
    """What has happened between two looks, in words."""
    # One that came back is there twice: as it was, and alive.
    alive = [{each["address"] for each in seen.get("machines", ()) if each["alive"]} for seen in (before, after)]
    told = []
    if "machines" in before and "machines" in after:
        told += [f"machine {address} joined" for address in sorted(alive[1] - alive[0])]
        told += [f"machine {address} is gone" for address in sorted(alive[0] - alive[1])]
    for part, one in (("hosts", "host"), ("replicas", "replica")):
        if part in before and part in after:
            told += _life(one, *({each["name"]: each for each in seen[part]} for seen in (before, after)))
    for name in COUNTS:
        if (more := after.get(name, 0) - before.get(name, 0)) > 0 and name in before:
            told.append(f"{more} session{'s' * (more != 1)} {name}")
    return told


def _life(one: str, before: Mapping[str, Status], after: Mapping[str, Status]) -> Iterable[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield f"{one} {name} has ended"
        elif old is None:
            yield f"{one} {name} was added"
        elif old["state"] != new["state"]:
            yield f"{one} {name}: {new['state']}"
        elif old.get("pid") != new.get("pid") or old.get("restarts", 0) != new.get("restarts", 0):
            yield f"{one} {name} died and was started again"
