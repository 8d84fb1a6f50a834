"""Published grounding benchmarks: an instruction, a screenshot, a box; right is a point in the box, edges included.

Whether boxes are `[x, y, width, height]` or corners, in pixels or in shares, differs between a benchmark and copies of
it: that is detected (`episodes/datasets/spaces.py`), and asked for where it is not certain. Boxes are taken
as published, also where one reaches over the edge of its picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotron.episodes.datasets.drafts import Draft
from holotron.episodes.datasets.importer import complete, source_drafts
from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.datasets.records import BadRecord, DatasetError
from holotron.episodes.datasets.settings import ImportSettings
from holotron.episodes.datasets.spaces import corners, space_of

Shares = tuple[float, float, float, float]
STRAY = 0.02  # the share of published boxes that may be outside their pictures while their form is detected


@dataclass(frozen=True)
class GroundingBenchmark:
    """size: how many items were published. cell: the fields whose values name an item's cell in the published table.

    Without fields the cell is the task's name, platform and kind. published: scores of named models, in percent, as
    their authors or an independent run report them.
    """

    name: str
    size: int
    cell: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)

    def cell_of(self, draft: Draft) -> str:
        if not self.cell:
            return draft.name
        return "-".join(str(draft.extra.get(key, "unknown")) for key in self.cell)


BENCHMARKS = {
    each.name: each
    for each in (
        GroundingBenchmark(
            "screenspot",
            1272,
            published={
                "GUI-Actor-2B": 86.5,
                "UI-TARS-2B": 82.3,
                "UGround-V1-2B": 77.1,
                "ShowUI-2B": 75.1,
                "TinyClick (0.27B)": 73.8,
            },
        ),
        GroundingBenchmark(
            "screenspot-v2",
            1272,
            published={
                "Holo2-235B": 95.9,
                "UI-Venus-1.5-8B": 95.9,
                "Qwen3-VL-8B": 94.3,
                "GUI-Owl-1.5-8B": 93.7,
                "Holo2-4B": 93.2,
                "Qwen3-VL-2B": 88.9,
                "UI-TARS-2B": 84.7,
                "Qwen2.5-VL-3B": 80.9,
            },
        ),
        GroundingBenchmark(
            "screenspot-pro",
            1581,
            ("group", "ui_type"),
            published={
                "GUI-Owl-1.5-8B": 71.1,
                "Holo2-235B": 70.6,
                "UI-Venus-1.5-8B": 68.4,
                "Holo2-4B": 57.2,
                "Qwen3-VL-8B": 56.4,
                "Qwen3-VL-2B": 43.9,
                "UI-TARS-2B": 27.7,
                "Qwen2.5-VL-3B": 25.9,
            },
        ),
    )
}


@dataclass(frozen=True)
class GroundingItem:
    """One question. id: where it stands, which is the same in every run. box: as shares of the picture's sides."""

    id: str
    images: Path
    image: str
    instruction: str
    size: tuple[int, int]
    box: Shares
    cell: str


@dataclass(frozen=True)
class LoadedBenchmark:
    """The items that can be asked, what could not be read (place and reason), and in which form the boxes were."""

    items: Sequence[GroundingItem]
    left_out: Sequence[str]
    space: str
    boxes: str


def load_benchmark(
    benchmark: GroundingBenchmark, settings: ImportSettings, pictures: SourcePictures
) -> LoadedBenchmark:
    """The items of a benchmark's files. DatasetError where the form of boxes is not certain or too many are bad."""
    most_bad = settings.most_bad
    settings = complete(replace(settings, most_bad=max(settings.most_bad, STRAY)), {})[0]
    left_out: list[str] = []
    items: list[GroundingItem] = []
    for draft in source_drafts(settings, lambda record, problem: left_out.append(f"{record.where}: {problem}")):
        try:
            items.append(_item(benchmark, settings, draft, len(items), pictures))
        except BadRecord as problem:
            left_out.append(f"{draft.where}: {problem}")
    if not items or len(left_out) > most_bad * (len(items) + len(left_out)):
        first = f", such as {left_out[0]}" if left_out else ""
        raise DatasetError(
            f"{len(left_out)} of {len(items) + len(left_out)} items cannot be asked{first}; a score without them would "
            "be another benchmark's. Mend the data, or allow some with --max-bad"
        )
    return LoadedBenchmark(items, left_out, settings.space or "", settings.boxes or "")


def _item(
    benchmark: GroundingBenchmark, settings: ImportSettings, draft: Draft, number: int, pictures: SourcePictures
) -> GroundingItem:
    [step] = draft.steps
    assert step.box is not None
    width, height = size = pictures.size(draft.images, step.image)
    left, top, right, bottom = corners(step.box, settings.boxes or "xyxy")
    if right < left or bottom < top:
        raise BadRecord("bad box", f"the box {list(step.box)} has its right or lower side before the other")
    space = space_of(settings.space or "pixels", size, step.stated)
    (left, top), (right, bottom) = space.on_image(left, top, size), space.on_image(right, bottom, size)
    name = f"{draft.where}#{draft.extra.get('id', number)}"
    shares = left / width, top / height, right / width, bottom / height
    return GroundingItem(name, draft.images, step.image, draft.instruction, size, shares, benchmark.cell_of(draft))
