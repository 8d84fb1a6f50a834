"""What a run of online RL must remember besides weights: which groups were begun and learned from, and what is known
of tasks. Kept in a file beside each state, so that a run that was killed counts nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holotron.episodes.files import write_whole

NAME = "ledger-{step}.json"


@dataclass(frozen=True)
class OpenGroup:
    """A group that was begun and not judged yet. version: of the weights when it was begun."""

    number: int
    task: str
    seed: int
    version: int


@dataclass
class Ledger:
    """version: updates of the weights so far. begun: groups so far, which is the number of the next one.

    sampler, successes: the state of the TaskSampler and of the SuccessBuffer. totals: counts since the beginning.
    """

    version: int = 0
    begun: int = 0
    open: dict[int, OpenGroup] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    successes: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def count(self, **more: int) -> None:
        for name, value in more.items():
            self.totals[name] = self.totals.get(name, 0) + value

    def saving(self, folder: Path, step: int) -> Callable[[], None]:
        """What writes it as it is now, before the state of that step: one without the other is never looked for."""
        value = asdict(self) | {"open": [asdict(group) for group in self.open.values()]}
        return partial(write_whole, folder / NAME.format(step=step), json.dumps(value).encode(), sync=True)

    @classmethod
    def load(cls, folder: Path, step: int) -> Ledger:
        value = json.loads((folder / NAME.format(step=step)).read_text(encoding="utf-8"))
        groups = [OpenGroup(**group) for group in value.pop("open")]
        return cls(**value, open={group.number: group for group in groups})

    @staticmethod
    def tidy(folder: Path, *steps: int) -> None:
        """Remove those of other states than of these steps."""
        for path in folder.glob(NAME.format(step="*")):
            if path.name not in [NAME.format(step=step) for step in steps]:
                path.unlink(missing_ok=True)
