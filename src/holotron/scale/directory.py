"""Which replica has which session, and where new ones go."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from math import floor, inf
from typing import TypeVar

from holotron.scale.journal import JournalEntry
from holotron.scale.session_cap import SessionCap
from holotron.server.engine_client import EngineClient

BLOCK = 64  # tokens of a beginning that is remembered
MOST_BEGINNINGS = 200_000
MOST_NAMES = 100_000
IMAGE_EDGE = 1024
Key = TypeVar("Key", str, bytes)


@dataclass(eq=False)
class Replica:
    """One engine. Draining: it gets nothing new, and what it has moves away."""

    name: str
    client: EngineClient
    draining: bool = False
    sessions: set[str] = field(default_factory=set)
    turns: int = 0  # under way, and sessions on their way to it
    arriving: int = 0  # sessions that are being opened
    cap: SessionCap = field(default_factory=SessionCap)

    @property
    def is_up(self) -> bool:
        return self.client.is_connected

    @property
    def load(self) -> float:
        """Sessions for every one that it takes, and turns under way for ties."""
        cap = self.cap.of(self.client.stats, len(self.sessions))
        return (len(self.sessions) + self.turns) / (1.0 if cap == inf else cap)

    @property
    def room(self) -> float:
        """For so many more sessions."""
        sessions = len(self.sessions) + self.arriving
        return max(0.0, self.cap.of(self.client.stats, sessions) - sessions)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Counts among its turns meanwhile."""
        self.turns += 1
        try:
            yield
        finally:
            self.turns -= 1


@dataclass(eq=False)
class Place:
    """Where a session is: at a replica, or in the journal alone."""

    entry: JournalEntry
    replica: Replica | None = None
    users: int = 0  # turns and calls under way, during which it stays where it is
    last_used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # while it moves or is rebuilt
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Directory:
    """All replicas and sessions."""

    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}
        self.places: dict[str, Place] = {}
        self._by_name: OrderedDict[str, str] = OrderedDict()  # replicas by the names that clients gave
        self._by_beginning: OrderedDict[bytes, str] = OrderedDict()

    def up(self, *, besides: Replica | None = None) -> list[Replica]:
        """Replicas that take sessions."""
        return [r for r in self.replicas.values() if r.is_up and not r.draining and r is not besides]

    def roomiest(self, *, besides: Replica | None = None) -> Replica | None:
        """Of those, the one with most room."""
        return min(self.up(besides=besides), key=lambda replica: replica.load, default=None)

    def for_new(self, count: int = 1) -> Replica | None:
        """The replica for a new session; None where there is no room for so many, until one of them takes more."""
        up = self.up()
        if sum(floor(min(replica.room, count)) for replica in up) < count:
            for replica in up:
                replica.cap.is_wanted = True
            return None
        return min((replica for replica in up if replica.room >= 1), key=lambda replica: replica.load)

    def put(self, place: Place, replica: Replica | None) -> None:
        """Note that a session is there now; None: nowhere but in the journal."""
        if place.replica is not None:
            place.replica.sessions.discard(place.entry.id)
        place.replica = replica
        if replica is not None:
            replica.sessions.add(place.entry.id)
        self.places[place.entry.id] = place

    def forget(self, session_id: str) -> None:
        place = self.places.pop(session_id, None)
        if place is not None and place.replica is not None:
            place.replica.sessions.discard(session_id)

    def lose(self, replica: Replica) -> None:
        """A replica is gone with the memory of all its sessions."""
        for session_id in list(replica.sessions):
            self.put(self.places[session_id], None)

    # ---- requests without a session ----

    def for_request(self, name: str | None, beginnings: Sequence[bytes]) -> Replica | None:
        """The replica of a request's name, that which knows most of its beginning, or the one with most room."""
        known = self._by_name.get(name) if name is not None else None
        if known is None:
            known = next((self._by_beginning[b] for b in reversed(beginnings) if b in self._by_beginning), None)
        replica = self.replicas.get(known) if known is not None else None
        if replica is None or not replica.is_up or replica.draining:
            replica = self.roomiest()
        if replica is not None:
            _note(self._by_name, [name] if name is not None else [], replica.name, MOST_NAMES)
            _note(self._by_beginning, beginnings, replica.name, MOST_BEGINNINGS)
        return replica


def _note(known: OrderedDict[Key, str], keys: Iterable[Key], value: str, most: int) -> None:
    for key in keys:
        known[key] = value
        known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)


def beginnings(token_ids: Sequence[int], images: Sequence[tuple[int, bytes]], pool: str | None) -> list[bytes]:
    """Fingerprints of the first BLOCK tokens, of twice as many and so on, with the images among them.

    An image counts by its size and its ends, where files have their checksums: a mistake costs a prefill, no more.
    """
    state, left, found = blake2b((pool or "").encode(), digest_size=12), list(images), []
    tokens = memoryview(array("i", token_ids))
    for end in range(BLOCK, len(token_ids) + 1, BLOCK):
        state.update(tokens[end - BLOCK : end])
        while left and left[0][0] < end:
            data = left.pop(0)[1]
            state.update(len(data).to_bytes(8) + data[:IMAGE_EDGE] + data[-IMAGE_EDGE:])
        found.append(state.digest())
    return found
