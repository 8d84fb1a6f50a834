"""Lists of tasks and played episodes for tests of judges: made here, in the published layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from holotron.actions.action import Action, Answer, Click
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, ObservationRecord, Outcome, PolicyInfo, Step, StepAction
from holotron.episodes.store import EpisodeStore
from tests.episodes.samples import png

SITES = {
    "Wolfram Alpha": 46, "Allrecipes": 45, "Booking": 44, "ESPN": 44, "Apple": 43, "ArXiv": 43,
    "Cambridge Dictionary": 43, "Google Search": 43, "Huggingface": 43, "BBC News": 42, "Coursera": 42,
    "Google Flights": 42, "Amazon": 41, "GitHub": 41, "Google Map": 41,
}  # fmt: skip
IDS = [f"{site}--{number}" for site, count in SITES.items() for number in range(count)]


def webvoyager_file(folder: Path, url: str = "http://127.0.0.1:9/", ids: Sequence[str] = IDS) -> Path:
    """The list of 643 tasks; each asks for its own number."""
    rows = [
        {"web_name": each.partition("--")[0], "id": each, "ques": f"Find number {IDS.index(each)}.", "web": url}
        for each in ids
    ]
    path = folder / "WebVoyager_data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def played(
    store: EpisodeStore,
    name: str,
    text: str,
    answer: str | None = "here it is",
    *,
    title: str = "Results",
    url: str = "http://shop.example/results",
    benchmark: str = "webvoyager-original-643",
    seed: int = 0,
    pages: int = 2,
) -> str:
    """An episode that clicked on each page and then answered, or ran out of steps."""
    task = Task(text=text, url="http://shop.example/", benchmark=benchmark, name=name, seed=seed)
    with store.begin(task, PolicyInfo(model="scripted"), EnvironmentInfo(name="browser")) as writer:
        for index in range(pages + 1):
            last = index == pages
            action: Action = Answer(text=answer) if last and answer is not None else Click(x=10 + index, y=20)
            seen = ObservationRecord(width=8, height=6, url=url, title=title if last else "Home")
            step = Step(index=index, observation=seen, thought="so be it", action=StepAction.of(action, 8, 6))
            writer.add_step(step, png(index + 10 * seed))
        writer.finish(Outcome(reason="answered" if answer is not None else "step_limit", detail=answer or ""))
        return writer.info.id
