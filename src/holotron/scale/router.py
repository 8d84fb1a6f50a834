"""Many engines as one: sessions stay where they are, move when they must, and outlive the replica that had them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from holotron.engine.info import EngineStats
from holotron.scale.directory import Directory, Place, Replica, beginnings
from holotron.scale.journal import ImageKeeper, JournalEntry, KeptImage
from holotron.scale.routed_turn import MOST_TRIES, RoutedTurn
from holotron.server import messages as m
from holotron.server.engine_client import EngineClient, EngineDown, EngineRefused, PendingGeneration
from holotron.server.engine_service import EngineService

log = logging.getLogger(__name__)

WAIT_SECONDS = 120.0  # for a replica, where all are gone at the moment
BUSY_SECONDS = 0.2  # until a session is tried again whose turn, left by its client, is being ended
AGAIN_SECONDS = 5.0  # before a replica that could not start is tried again
ABOUT_A_SESSION = ("describe", "fork", "fork_after", "rollback", "park", "resume")
MOST_MOVES = 2  # that may be refused before a session which must leave is left to the journal
TO_ALL = ("pause", "unpause", "sleep", "wake", "flush", "load_adapter", "discard_weights")
CHANGING = ("commit_weights", "load_adapter", "unload_adapter")  # what a replica is brought to when it is started
MEANS = ("page_share", "slot_share", "redundancy", "epoch")  # figures of which a sum says nothing

# With a replica's name, and what to do when it is lost.
NewClient = Callable[[str, m.Start, Callable[[], None]], EngineClient]


class ReplicaRouter(EngineService):
    """Replicas behind one server."""

    def __init__(self, start: m.Start, count: int, new_client: NewClient) -> None:
        super().__init__(start)
        self.directory = Directory()
        self.counts = Counter({"moved": 0, "rebuilt": 0, "lost": 0})
        self.images = ImageKeeper()
        self.ready = None
        self.weights_lost = None
        self._new_client = new_client
        self._wanted = count
        self._numbers = itertools.count()
        self._turns: dict[int, RoutedTurn] = {}
        self._ids = itertools.count(1)
        self._abandoned: Exception | None = None
        self._changed = asyncio.Event()  # a replica came up
        self._paused: str | None = None
        self._ended_restarts = 0
        self._resizing = asyncio.Lock()

    # ---- replicas ----

    def start(
        self, on_failure: Callable[[str], None] = lambda _: None, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        self._on_failure, self._on_ready = on_failure, on_ready
        for _ in range(self._wanted):
            self._add()

    def _add(self) -> Replica:
        name = str(next(self._numbers))
        client = self._new_client(name, self._start, lambda: self.directory.lose(replica))
        replica = Replica(name, client)
        client.share(self)
        self.directory.replicas[name] = replica
        client.start(lambda reason: self._failed(replica, reason), lambda: self._came_up(replica))
        return replica

    def _failed(self, replica: Replica, reason: str) -> None:
        if self.ready is None:
            self._on_failure(reason)
            return
        log.error("replica %s cannot start: %s", replica.name, reason)

        def again() -> None:
            if replica.name in self.directory.replicas:
                replica.client.start(lambda reason: self._failed(replica, reason), lambda: self._came_up(replica))

        asyncio.get_running_loop().call_later(AGAIN_SECONDS, again)

    def _came_up(self, replica: Replica) -> None:
        if self._paused is not None:
            self.run_in_background(_ignoring(replica.client.call("pause", self._paused)))
        first, self.ready = self.ready is None, replica.client.ready
        self._changed.set()
        self._changed = asyncio.Event()
        if first:
            self._on_ready()
        else:
            self.run_in_background(self.rebalance())

    async def close(self) -> None:
        await asyncio.gather(*(replica.client.close() for replica in self.directory.replicas.values()))
        self.images.close()

    async def resize(self, count: int) -> None:
        """Have so many replicas: new ones get sessions of others; those that are too many are drained first."""
        async with self._resizing:
            while len(self.directory.replicas) < count:
                self._add()
            surplus = sorted(self.directory.replicas.values(), key=lambda replica: (replica.is_up, replica.load))
            for replica in surplus[: len(surplus) - count]:
                await self.drain(replica)
                await self._remove(replica)

    async def replace_replica(self, name: str) -> None:
        """Drain a replica and start another in its place: a new process, with the code and the device of now."""
        async with self._resizing:
            replica = self.directory.replicas[name]
            self._add()
            await self.drain(replica)
            await self._remove(replica)

    async def drain(self, replica: Replica) -> None:
        """Move all sessions of a replica away, each as soon as it is idle; it gets no others.

        One that no other replica takes is closed here, and computed again from the journal when it is next used.
        """
        replica.draining = True
        refused: Counter[str] = Counter()
        while replica.is_up and replica.sessions:
            place = self.directory.places[next(iter(replica.sessions))]
            if self.directory.roomiest() is None:
                await self._wait_for_change()
            elif place.users:
                place.idle.clear()
                await place.idle.wait()
            else:
                try:
                    moved = await self._move(place, None)
                except (EngineDown, EngineRefused) as error:
                    moved = False
                    refused[place.entry.id] += isinstance(error, EngineRefused) and error.kind != "busy"
                if refused[place.entry.id] == MOST_MOVES:
                    await self._leave_to_journal(place)
                elif not moved:
                    await asyncio.sleep(BUSY_SECONDS)

    async def _leave_to_journal(self, place: Place) -> None:
        async with place.lock:
            if place.replica is None or place.users:
                return
            with suppress(EngineDown, EngineRefused):
                await place.replica.client.call("close", place.entry.id)
            self.directory.put(place, None)

    async def _remove(self, replica: Replica) -> None:
        del self.directory.replicas[replica.name]
        self._ended_restarts += replica.client.restarts
        await replica.client.close()

    async def rebalance(self) -> None:
        """Move idle sessions from full replicas to empty ones, the longest unused first, until none has many more."""
        while len(up := self.directory.up()) > 1:
            fullest, emptiest = max(up, key=lambda r: r.load), min(up, key=lambda r: r.load)
            spare = len(fullest.sessions) - len(emptiest.sessions)
            if spare <= max(2, len(fullest.sessions) // 5):
                return
            places = [self.directory.places[id_] for id_ in fullest.sessions]
            idle = sorted((place for place in places if not place.users), key=lambda place: place.last_used)
            moved = [await self.move(place, emptiest) for place in idle[: max(1, spare // 2)]]
            if not any(moved):
                return

    async def move(self, place: Place, target: Replica | None = None) -> bool:
        """Move a session to another replica (the one with most room); False if it is at work, or stays for a reason."""
        try:
            return await self._move(place, target)
        except (EngineDown, EngineRefused):
            return False

    async def _move(self, place: Place, target: Replica | None) -> bool:
        async with place.lock:
            source, session_id = place.replica, place.entry.id
            target = target or self.directory.roomiest(besides=source)
            if source is None or target is None or target is source or place.users:
                return False
            try:
                port, ticket = await target.client.call("expect_session")
                await source.client.call("send_session", session_id, target.client.host, port, ticket)
            except (EngineDown, EngineRefused) as error:
                log.warning("the session %s stays at replica %s: %s", session_id, source.name, error)
                with suppress(EngineDown, EngineRefused):  # it may have arrived without a word about it
                    await target.client.call("close", session_id)
                raise
            self.directory.put(place, target)
            self.counts["moved"] += 1
            _log_session("moved", session_id, source=source.name, replica=target.name)
            return True

    # ---- sessions ----

    @asynccontextmanager
    async def at_home(self, place: Place) -> AsyncIterator[Replica]:
        """The replica that has the session, which stays there meanwhile; rebuilt first where its replica is gone."""
        while place.lock.locked() or place.replica is None or not place.replica.is_up:
            # Not left half done where a client goes meanwhile.
            await asyncio.shield(asyncio.ensure_future(self._settle(place)))
        replica = place.replica
        place.users += 1
        try:
            yield replica
        finally:
            place.users -= 1
            place.idle.set()

    async def _settle(self, place: Place) -> None:
        async with place.lock:
            if place.replica is None or not place.replica.is_up:
                await self._rebuild(place)

    async def _rebuild(self, place: Place) -> None:
        entry = place.entry
        try:
            images = [(start, image.read()) for start, image in entry.images]
        except OSError as error:
            self.counts["lost"] += 1
            self.forget(entry.id)
            raise EngineRefused("unknown", f"the session {entry.id!r} is lost with an image of it: {error}") from error
        for _ in range(MOST_TRIES):
            replica = await self._roomiest()
            try:
                with replica.working():
                    await replica.client.call("rebuild", entry.id, images, entry.tokens, entry.turns, **entry.options)
            except EngineDown:
                continue
            except EngineRefused:
                self.counts["lost"] += 1
                self.forget(entry.id)
                raise
            self.directory.put(place, replica)
            self.counts["rebuilt"] += 1
            _log_session("rebuilt", entry.id, replica=replica.name)
            return
        raise EngineDown(f"{MOST_TRIES} replicas in a row died before they had the session {entry.id!r}; ask again")

    async def _roomiest(self) -> Replica:
        """The replica with most room; waited for where there is none."""
        while (replica := self.directory.roomiest()) is None:
            await self._wait_for_change()
        return replica

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            raise EngineDown("no replica has come back; try again in a moment") from None

    def place_of(self, session_id: str) -> Place:
        place = self.directory.places.get(session_id)
        if place is None:
            raise EngineRefused("unknown", f"there is no session {session_id!r}: it was closed or never opened")
        return place

    # ---- what the server asks for ----

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        self.check_running()
        if method == "open":
            return await self._open(options)
        if method == "close":
            return await self._close(*args)
        if method in ABOUT_A_SESSION:
            return await self._about_a_session(method, *args, **options)
        if method == "update_weights":
            return await self._update_weights(*args, **options)
        if method == "unload_adapter":
            return await self._unload_adapter(*args)
        if method in ("weight_checksums", "held_checksum"):
            return await (await self._roomiest()).client.call(method, *args)
        if method not in TO_ALL:
            raise EngineRefused("invalid", "a trainer's group has one place for an engine: with replicas, send files")
        if method in ("pause", "unpause"):
            self._paused = args[0] if method == "pause" else None
        return await self._to_all(method, *args, **options)

    async def _to_all(self, method: str, *args: Any, **options: Any) -> Any:
        """Have every replica do something; one that dies meanwhile is brought to the same when it is back.

        One that refuses what changed others is started again, too: there is one model behind a server, or none.
        """
        up = [replica for replica in self.directory.replicas.values() if replica.is_up]
        calls = (replica.client.call(method, *args, **options) for replica in up)
        results = await asyncio.gather(*calls, return_exceptions=True)
        done = [result for result in results if not isinstance(result, BaseException)]
        refused = {r: e for r, e in zip(up, results, strict=True) if isinstance(e, Exception)}
        refused = {replica: error for replica, error in refused.items() if not isinstance(error, EngineDown)}
        for replica, error in refused.items():
            if not done or method not in CHANGING:
                raise error
            log.error("replica %s refuses what others took (%s); it is started again: %s", replica.name, method, error)
            replica.client.restart()
        return done[0] if done else None

    async def _update_weights(self, path: str, epoch: int) -> bool:
        """All replicas read the weights first; then, while none computes, all take them."""
        try:
            await self._to_all("stage_weights", path)
        except BaseException:
            await self._to_all("discard_weights")
            raise
        if self._paused is None:
            await self._to_all("pause", "keep")
        try:
            return bool(await self._to_all("commit_weights", epoch))
        finally:
            await self._to_all("discard_weights")  # where none has taken them
            if self._paused is None:
                await self._to_all("unpause")

    async def _unload_adapter(self, name: str) -> None:
        if having := sum(place.entry.options.get("adapter") == name for place in self.directory.places.values()):
            raise EngineRefused("busy", f"{having} sessions have the adapter {name!r}; close them first")
        await self._to_all("unload_adapter", name)

    async def _open(self, options: dict[str, Any]) -> str:
        for _ in range(MOST_TRIES):
            replica = await self._roomiest()
            if options:  # only the health check's session asks for nothing, and is opened at any time
                replica = self._with_room(1)
            replica.arriving += 1
            try:
                with suppress(EngineDown), replica.working():
                    session_id: str = await replica.client.call("open", **options)
                    self.directory.put(Place(JournalEntry(session_id, options)), replica)
                    return session_id
            finally:
                replica.arriving -= 1
        raise EngineDown("no replica lived long enough to open a session; try again in a moment")

    def _with_room(self, count: int) -> Replica:
        if (replica := self.directory.for_new(count)) is None:
            raise EngineRefused("full", "the replicas have as many sessions as they can keep; ask again, or close some")
        return replica

    async def _close(self, session_id: str) -> None:
        place = self.place_of(session_id)
        async with place.lock:  # not while it is between two replicas
            replica = place.replica
            self.forget(session_id)
        if replica is not None:
            with suppress(EngineDown):
                await replica.client.call("close", session_id)

    async def _about_a_session(self, method: str, session_id: str, *args: Any, **options: Any) -> Any:
        if method in ("fork", "fork_after"):
            self._with_room(args[0] if method == "fork" else 1)
        for _ in range(MOST_TRIES):
            place = self.place_of(session_id)
            async with self.at_home(place) as replica:
                try:
                    result = await replica.client.call(method, session_id, *args, **options)
                except EngineDown:
                    self.check_running()
                    continue
            self._journal(method, place, replica, result, args, options)
            return result
        raise EngineDown(f"{MOST_TRIES} replicas in a row died with the session {session_id!r}; ask again")

    # ---- the journal ----

    async def keep_image(self, data: bytes) -> KeptImage:
        """Have the file of an image kept for as long as a session has it."""
        return await self.images.keep(data)

    def note_turn(self, place: Place) -> None:
        """A turn has been added to the journal."""
        place.last_used = asyncio.get_running_loop().time()

    def forget(self, session_id: str) -> None:
        self.directory.forget(session_id)

    def _journal(
        self, method: str, place: Place, replica: Replica, result: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Note what the engine has done to a session."""
        place.last_used = asyncio.get_running_loop().time()
        if method == "rollback":
            place.entry.rollback(*args, **options)
        elif method in ("fork", "fork_after"):
            ids, turns = (result, None) if method == "fork" else ([result], args[0])
            for id_ in ids:
                self.directory.put(Place(place.entry.fork(id_, turns)), replica)

    def generate(self, turn: m.Generate) -> PendingGeneration:
        self.usable()
        place = None if turn.session is None else self.place_of(turn.session)
        if turn.sampling.seed is None and turn.sampling.temperature > 0:
            # Chosen here: another replica must be able to say the same again.
            turn = replace(turn, sampling=replace(turn.sampling, seed=random.getrandbits(62)))
        turn = replace(turn, id=next(self._ids))
        routed = self._turns[turn.id] = RoutedTurn(self, turn, place)
        routed.task.add_done_callback(lambda _: self._turns.pop(turn.id, None))
        return PendingGeneration(turn.id, turn.choices, routed.replies, self._leave, self._abort)

    def _leave(self, id_: int, running: bool) -> None:
        if running and (turn := self._turns.get(id_)) is not None:
            turn.leave()

    def _abort(self, id_: int) -> None:
        if (turn := self._turns.get(id_)) is not None:
            turn.abort()

    @asynccontextmanager
    async def replica_for(self, turn: m.Generate, place: Place | None) -> AsyncIterator[Replica]:
        """Where a turn is to be taken."""
        if place is not None:
            async with self.at_home(place) as replica:
                yield replica
            return
        name = None if turn.affinity is None else f"{turn.pool} {turn.affinity}"
        known = beginnings(turn.token_ids, turn.images, turn.pool)
        replica_ = self.directory.for_request(name, known)
        yield replica_ if replica_ is not None else await self._roomiest()

    # ---- figures ----

    def usable(self) -> None:
        self.check_running()
        if self.ready is None:
            raise EngineDown("the engine is being started; try again in a moment")
        lost = [r.client.weights_lost for r in self.directory.replicas.values()]
        if not self.directory.up() and any(lost):
            problem = next(filter(None, lost))
            raise EngineDown(f"replicas were started again without their weights: {problem}; send them again")

    def check_running(self) -> None:
        """The error that all requests get once the server stops."""
        if self._abandoned is not None:
            raise self._abandoned

    def abandon(self, error: Exception) -> None:
        self._abandoned = error
        for replica in self.directory.replicas.values():
            replica.client.abandon(error)

    @property
    def by_replica(self) -> Mapping[str, EngineStats]:
        return {name: replica.client.stats for name, replica in self.directory.replicas.items()}

    @property
    def session_counts(self) -> Mapping[str, int]:
        return self.counts

    @property
    def stats(self) -> EngineStats:
        """Of all replicas together."""
        told = [stats for stats in self.by_replica.values() if stats.values]
        keys = {key for stats in told for key in stats.values}
        summed = {key: sum(stats.values.get(key, 0.0) for stats in told) for key in keys}
        summed |= {key: summed[key] / len(told) for key in MEANS if key in summed}
        residency = sum((Counter(stats.residency) for stats in told), Counter[str]())
        return EngineStats(summed, dict(residency))

    @property
    def pid(self) -> int | None:
        return next((replica.client.pid for replica in self.directory.replicas.values()), None)

    @property
    def restarts(self) -> int:  # type: ignore[override]
        return self._ended_restarts + sum(r.client.restarts for r in self.directory.replicas.values())


def _log_session(what: str, session_id: str, **fields: str) -> None:
    log.info("session %s", what, extra={"fields": {"session": session_id, **fields}})


async def _ignoring(call: Any) -> None:
    with suppress(EngineDown, EngineRefused):
        await call
