"""How many sessions a replica takes: more while all is well, fewer once it computes again what it knew."""

from __future__ import annotations

from math import inf

from holotron.engine.info import EngineStats

GROWTH, CUT = 1 / 8, 0.8
SIGNS = ("recomputed_tokens", "preempted")  # counts that grow where sessions push one another out


class SessionCap:
    """Of one replica. It begins with the state slots, and grows when more are wanted: host memory holds others.

    What a session takes is not known before it has lived, so that the replica's own counts decide.
    """

    def __init__(self) -> None:
        self._most = 0.0
        self._seen: EngineStats | None = None
        self.is_wanted = False  # somebody was told to wait

    def of(self, stats: EngineStats, sessions: int) -> float:
        """The cap after what the replica last told of itself; infinite until it has said something."""
        values = stats.values
        if stats is self._seen or not values:
            return max(1.0, self._most) if self._seen is not None else inf
        before, self._seen = self._seen.values if self._seen is not None else {}, stats
        grown = [values.get(name, 0.0) - before.get(name, 0.0) for name in SIGNS]
        if not before or min(grown) < 0:  # a new process
            self._most = values.get("slots", 1.0)
        elif max(grown) > 0 and values.get("epoch") == before.get("epoch"):  # new weights have it compute again, too
            self._most = min(self._most, sessions) * CUT
        elif self.is_wanted:
            self._most += max(1.0, self._most * GROWTH)
        self.is_wanted = False
        return max(1.0, self._most)
