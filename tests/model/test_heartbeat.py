"""Work that takes long is heard of, and work that tells of itself is not talked over."""

from __future__ import annotations

import threading

from holotron.model.heartbeat import Heartbeat


def test_it_is_told_while_nothing_else_is():
    told, twice = [], threading.Event()

    def tell(message: str) -> None:
        told.append(message)
        if len(told) == 2:
            twice.set()

    with Heartbeat("loading", tell, seconds=0.01) as heartbeat:
        assert twice.wait(60)
        heartbeat.now("measuring")
    assert told[0].startswith("loading: ")
    assert told[0].endswith(" s so far")


def test_short_work_says_nothing():
    told = []
    with Heartbeat("loading", told.append, seconds=3600):
        pass
    assert told == []
