"""How a data set is to be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from holotron.episodes.datasets.answers import ANSWERS
from holotron.episodes.datasets.layouts import LAYOUTS
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.datasets.spaces import BoxForm, check_space

THOUGHTS = ("full", "short", "none")


@dataclass(frozen=True)
class ImportSettings:
    """How a data set is read. None: found out from the data, an error where it does not tell.

    layout: a name of LAYOUTS. space, boxes: of its points and boxes. answers: how answers are written. thoughts: which
    words beside the action are kept. most_bad: the share of records that may be bad. limit: only so many drafts.
    """

    layout: str
    source: Path
    images: Path | None = None
    space: str | None = None
    boxes: BoxForm | None = None
    answers: str | None = None
    thoughts: str = "full"
    most_bad: float = 0.02
    limit: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.layout, tuple(LAYOUTS)),
            ("answers", self.answers, (None, *ANSWERS)),
            ("boxes", self.boxes, (None, *get_args(BoxForm))),
            ("thoughts", self.thoughts, THOUGHTS),
        ):
            if value not in known:
                raise DatasetError(f"{name} is {value!r}; choose one of {', '.join(filter(None, known))}")
        if self.space is not None:
            check_space(self.space)
        if not 0 <= self.most_bad < 1:
            raise DatasetError(f"the share of bad records is {self.most_bad}; it must be from 0 to below 1")

    @property
    def told(self) -> dict[str, str | None]:
        """What makes two imports the same."""
        return {
            "format": self.layout,
            "source": str(self.source.resolve()),
            "space": self.space,
            "boxes": self.boxes,
            "answers": self.answers,
            "thoughts": self.thoughts,
        }
