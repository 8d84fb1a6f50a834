"""Published grounding benchmarks: which files they are, what counts as right, and which groups their tables have."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PUBLISHED = Path(__file__).with_name("published.csv")
JSON_OR_PARQUET = ("*.json", "*.jsonl", "*.parquet")
CAPABILITY, SETTING = "capability", "setting"  # fields that come from other files and from the file's name


@dataclass(frozen=True)
class PublishedScore:
    """In percent, as the model's authors or an independent run report it."""

    model: str
    score: float
    source: str


@dataclass(frozen=True)
class GroundingBenchmark:
    """size: how many items were published, None if that is not known; without refusals: items whose element is not
    there, so many of them.

    groupings: names of groupings, each with the fields whose values name an item's group. mean: the grouping over
    whose groups a mean is published, too. files: patterns of the names of its files. edges: whether the edges of a box
    belong to it. unordered: corners of boxes may be swapped. regions: boxes are asked for, not points. hub: the data
    set's id on the Hugging Face hub; else elsewhere tells where it is.
    """

    name: str
    size: int | None
    groupings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = JSON_OR_PARQUET
    mean: str | None = None
    refusals: int = 0
    edges: bool = True
    unordered: bool = False
    regions: bool = False
    hub: str | None = None
    elsewhere: str = ""

    @cached_property
    def published(self) -> tuple[PublishedScore, ...]:
        """Best first."""
        with PUBLISHED.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["benchmark"] == self.name]
        scores = (PublishedScore(row["model"], float(row["score"]), row["source"]) for row in rows)
        return tuple(sorted(scores, key=lambda each: -each.score))


SCREENSPOT = {"cell": ("platform", "kind"), "group": ("platform",), "kind": ("kind",)}
OSWORLD_G = {"capability": (CAPABILITY,), "target": ("box_type",)}
OSWORLD_G_AT = "a git repository, github.com/xlang-ai/OSWorld-G: clone it and give --data OSWorld-G/benchmark"
BENCHMARKS = {
    each.name: each
    for each in (
        GroundingBenchmark("screenspot", 1272, SCREENSPOT, mean="cell", hub="rootsautomation/ScreenSpot"),
        GroundingBenchmark("screenspot-v2", 1272, SCREENSPOT, mean="cell", hub="OS-Copilot/ScreenSpot-v2"),
        GroundingBenchmark(
            "screenspot-pro",
            1581,
            {"cell": ("group", "ui_type"), "group": ("group",), "kind": ("ui_type",), "application": ("application",)},
            mean="cell",
            hub="likaixin/ScreenSpot-Pro",
        ),
        # Most published scores leave the refusals out.
        GroundingBenchmark("osworld-g", 510, OSWORLD_G, ("OSWorld-G.json",), refusals=54, elsewhere=OSWORLD_G_AT),
        GroundingBenchmark(
            "osworld-g-refined", 510, OSWORLD_G, ("OSWorld-G_refined.json",), refusals=54, elsewhere=OSWORLD_G_AT
        ),
        GroundingBenchmark(
            "groundui-1k",
            1000,
            {"platform": ("platform",), "source": ("source",)},
            ("metadata*.jsonl", "*.parquet"),
            edges=False,
            hub="agent-studio/GroundUI-1K",
        ),
        GroundingBenchmark("webclick", 1639, {"bucket": ("bucket",)}, JSON_OR_PARQUET, hub="Hcompany/WebClick"),
        GroundingBenchmark("showdown-clicks", 557, {}, ("data.csv",), hub="generalagents/showdown-clicks"),
        GroundingBenchmark(
            "ui-vision",
            5479,
            {"setting": (SETTING,), "kind": ("element_type",), "platform": ("platform",)},
            ("element_grounding_*.json",),
            mean="setting",
            unordered=True,
            hub="ServiceNow/ui-vision",
        ),
        GroundingBenchmark(
            "ui-vision-layout",
            None,
            {"platform": ("platform",)},
            ("layout_grounding.json",),
            regions=True,
            hub="ServiceNow/ui-vision",
        ),
    )
}
