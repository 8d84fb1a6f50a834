"""Regions of a screen, asked for as boxes: UI-Vision's layout task, with the figures that it publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holotron.actions.action import ActionError
from holotron.actions.coordinates import SCALE
from holotron.agent.chat import ChatModel, Message, say_once
from holotron.agent.formats.base import load_object
from holotron.eval.benchmark_files import GroundingItem
from holotron.eval.grounding_run import CORRECT, UNANSWERED, WRONG, WRONG_FORMAT, GroundingRun
from holotron.eval.targets import BoxTarget, Shares

SIDES = ("x1", "y1", "x2", "y2")
RIGHT = 0.5  # the overlap from which on a box counts as right, in the shares beside the published means
REGION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {side: {"type": "integer", "minimum": 0, "maximum": SCALE} for side in SIDES},
    "required": list(SIDES),
    "additionalProperties": False,
}


def region_prompt(region: str) -> str:
    return (
        "Where in the screenshot is this region, a part of the interface that serves one purpose? Answer with the box "
        "that holds all of it and no more, as JSON, 0 to 1000 of the screenshot's width and height: "
        f'{{"x1":…,"y1":…,"x2":…,"y2":…}}.\nRegion: {region}'
    )


def parse_region(text: str) -> Shares:
    """The box of an answer as shares of the sides; ActionError if it is none."""
    value = load_object(text)
    sides = [value.get(side) for side in SIDES]
    numbers = [side / SCALE for side in sides if isinstance(side, int | float)]
    if len(numbers) != len(SIDES):
        raise ActionError(f"the answer is no box: {text[:80]!r}")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def overlap(said: Shares | None, box: Shares) -> dict[str, float]:
    """As UI-Vision's code computes them: precision is the share of the target, and recall that of the answer.

    All are 0 without a box, or where its right or lower side is not behind the other.
    """
    if said is None or said[0] >= said[2] or said[1] >= said[3]:
        return {"iou": 0.0, "precision": 0.0, "recall": 0.0}
    width = max(0.0, min(said[2], box[2]) - max(said[0], box[0]))
    common = width * max(0.0, min(said[3], box[3]) - max(said[1], box[1]))
    of_said, of_box = ((each[2] - each[0]) * (each[3] - each[1]) for each in (said, box))
    union = of_said + of_box - common
    return {
        "iou": common / union if union > 0 else 0.0,
        "precision": common / of_box if of_box > 0 else 0.0,
        "recall": common / of_said,
    }


class RegionRun(GroundingRun):
    """Every family is asked for a box in the same words: none publishes its own."""

    async def _say(self, item: GroundingItem, policy: ChatModel, png: bytes) -> str:
        question = Message("user", region_prompt(item.instruction), png)
        return (await say_once(policy, [question], REGION_SCHEMA)).text

    def _verdict(self, item: GroundingItem, answer: Mapping[str, Any] | None) -> dict[str, Any]:
        assert isinstance(item.target, BoxTarget)
        said, verdict = None, UNANSWERED
        if answer is not None:
            try:
                said, verdict = parse_region(answer["text"]), WRONG
            except ActionError:
                verdict = WRONG_FORMAT
        found = overlap(said, item.target.box)
        verdict = CORRECT if found["iou"] >= RIGHT else verdict
        groups = {name: list(group) for name, group in item.groups.items()}
        return {"id": item.id, "groups": groups, "point": None, "box": said, "verdict": verdict, **found}

    def metric(self, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The report; accuracy is the share of boxes with an overlap of RIGHT and more."""
        means = {f"mean_{key}": sum(each[key] for each in verdicts) / len(verdicts) for key in overlap(None, (0,) * 4)}
        return self.write(self.figures(verdicts) | means)
