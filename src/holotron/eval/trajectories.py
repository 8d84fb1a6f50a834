"""Episodes as folders that the judges of others read.

webvoyager        task<id>/interact_messages.json, task<id>/screenshot1.png, …
online-mind2web   <id>/result.json, <id>/trajectory/0_full_screenshot.png, …
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holotron.actions.describe import describe
from holotron.episodes.files import write_whole
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.eval.judging import answer_of, factual_actions


def write_trajectories(store: EpisodeStore, episodes: Sequence[EpisodeInfo], out: Path, layout: str) -> int:
    """Write those that are not there yet; how many were written. Attempts after the first have their number behind."""
    written = 0
    for info in episodes:
        name = (info.task.name or info.id) + (f".{info.task.seed}" if info.task.seed else "")
        folder = out / (f"task{name}" if layout == "webvoyager" else name)
        last = folder / ("interact_messages.json" if layout == "webvoyager" else "result.json")
        if last.exists():
            continue
        steps = list(store.steps(info.id))
        pictures = folder if layout == "webvoyager" else folder / "trajectory"
        pictures.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate(steps):
            if step.observation.image is not None:
                file = f"screenshot{number + 1}.png" if layout == "webvoyager" else f"{number}_full_screenshot.png"
                write_whole(pictures / file, store.image(step.observation.image), sync=False)
        content = _messages(info, steps) if layout == "webvoyager" else _result(info, steps)
        write_whole(last, json.dumps(content, ensure_ascii=False, indent=1).encode(errors="replace"), sync=False)
        written += 1
    return written


def _messages(info: EpisodeInfo, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """A conversation as WebVoyager's own runs leave it: its judge finds the task and the answer by these phrases."""
    words = " ".join(info.task.text.split())  # it looks for them on one line
    task = f"Now given a task: {words}  Please interact with {info.task.url} and get the answer."
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"Episode {info.id} of {info.policy.model}."}]
    answer = answer_of(steps)
    for number, step in enumerate(steps, 1):
        asked = f"{task}\n" if number == 1 else ""
        picture = {"type": "image_url", "image_url": {"url": f"screenshot{number}.png"}}
        messages.append({"role": "user", "content": [{"type": "text", "text": f"{asked}Observation:"}, picture]})
        action = "Wait" if step.action is None else describe(step.action.parse())
        if number == len(steps) and answer is not None:
            action = f"ANSWER; [{answer}]"
        messages.append({"role": "assistant", "content": f"Thought: {step.thought or step.note}\nAction: {action}"})
    return messages


def _result(info: EpisodeInfo, steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "task_id": info.task.name,
        "task": info.task.text,
        "website": info.task.url,
        "final_result_response": answer_of(steps) or "",
        "action_history": list(factual_actions(steps)),
        "thoughts": [step.thought for step in steps],
    }
