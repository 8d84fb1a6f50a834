"""Answers under way, by the names that their clients know, so that they can be ended from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class Abortable(Protocol):
    """An answer under way. `forget` is called when it is over."""

    forget: Callable[[], None]

    def abort(self) -> None: ...


class RunningAnswers:
    """Each under the id of its request and its own; to other callers than its owner it does not exist."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], Abortable] = {}

    def add(self, caller: str, names: Iterable[str], answer: Abortable) -> None:
        places = [(caller, name) for name in names]
        self._answers.update(dict.fromkeys(places, answer))

        def forget() -> None:
            for place in places:
                self._answers.pop(place, None)

        answer.forget = forget

    def abort(self, caller: str | None, name: str | None) -> int:
        """End the caller's answer of that name, or all of them; how many that are. None: whoever's they are."""
        own = ((place[1], answer) for place, answer in self._answers.items() if caller in (None, place[0]))
        found = {id(answer): answer for known, answer in own if name in (None, known)}
        for answer in found.values():
            answer.abort()
        return len(found)
