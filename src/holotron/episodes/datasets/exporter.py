"""Episodes of a store as a data set for other trainers: chat messages, LLaVA's conversations, ScreenSpot's records.

Each is what training would learn of the same store (`views.py`): the words of a policy format for `openai`, a record
for every step for `llava`, and the steps with a known box for `screenspot`. `import_dataset` reads all three.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from holotron.actions.action import ActionError
from holotron.actions.describe import describe
from holotron.actions.dialects.pyautogui import to_pyautogui
from holotron.agent.chat import Message
from holotron.agent.policy_format import PolicyFormat
from holotron.episodes.datasets.drafts import PREVIOUS
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.datasets.spaces import PIXELS, UNIT, space_of_format
from holotron.episodes.datasets.turns import read_steps_before
from holotron.episodes.errors import Damaged
from holotron.episodes.files import whole_file, write_whole
from holotron.episodes.images import png_size
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.selection import Selection
from holotron.episodes.store import EpisodeStore
from holotron.episodes.views import View

DatasetFormat = Literal["openai", "llava", "screenspot"]
ImageName = Callable[[bytes, str], str]  # of a picture and its digest


def export_dataset(
    store: EpisodeStore,
    path: Path,
    format: DatasetFormat,
    policy_format: PolicyFormat,
    *,
    images: Literal["embed", "reference"] = "embed",
    successes: bool = True,
    left_out: Callable[[str], None] = lambda _: None,
) -> int:
    """Write what can be learned of a store's finished episodes into one file; how many records there are.

    Chat messages have their images inside; for the others these become files in the folder `images` beside the file.
    With "reference" all three name them as the store does. successes: only of episodes that succeeded. left_out: told
    of each episode that has no record.
    """
    if format not in get_args(DatasetFormat):
        raise DatasetError(f"there is no format {format!r}; choose one of {', '.join(get_args(DatasetFormat))}")

    def name(png: bytes, digest: str) -> str:
        kept = f"images/{digest[:2]}/{digest}.png"
        # A picture that was resized for the model is not in the store.
        if format == "openai" and (images == "embed" or digest not in store.images):
            return "data:image/png;base64," + base64.b64encode(png).decode()
        if images == "embed" and not (target := path.parent / kept).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, png, sync=False)
        return kept

    if format == "openai":
        view = View(
            [store.folder],
            Selection(successes=successes, corrections=False),
            policy_format=policy_format,
            on_damage=left_out,
        )
        records = _conversations(store, view, policy_format, name, left_out)
    else:
        each = _llava if format == "llava" else _screenspot
        infos = store.list_episodes(finished=True, on_damage=lambda error: left_out(str(error)))
        chosen = [info for info in infos if not successes or (info.outcome and info.outcome.success is True)]
        records = _by_episode(store, chosen, lambda info, steps: each(store, info, steps, name), left_out)
    count = 0
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        listed = format == "screenspot"  # which is a JSON list
        for count, record in enumerate(records, 1):
            file.write(("[\n" if count == 1 else ",\n") if listed else "")
            file.write(json.dumps(record, ensure_ascii=False) + ("" if listed else "\n"))
        if not count:
            raise DatasetError(f"{store.folder} has nothing that could be written as {format}")
        file.write("\n]\n" if listed else "")
    return count


def _conversations(
    store: EpisodeStore,
    view: View,
    policy_format: PolicyFormat,
    name: ImageName,
    left_out: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    for index in range(len(view)):
        try:
            example = view[index]
            info = store.info(str(example.about["episode"]))
        except ValueError as error:
            left_out(str(error))
            continue
        messages: list[dict[str, Any]] = []
        for turn in example.turns:
            messages += [_message(message, name) for message in turn.messages]
            messages.append({"role": "assistant", "content": turn.answer, **({} if turn.learn else {"weight": 0})})
        about = {
            "task": info.task.text,
            "policy_format": policy_format.spec,
            "space": space_of_format(policy_format.name),
        }
        yield {"messages": messages, "metadata": {**about, "episode": info.id}}


def _message(message: Message, name: ImageName) -> dict[str, Any]:
    picture = message.image
    part = {} if picture is None else {"type": "image_url", "image_url": {"url": name(picture, _digest(picture))}}
    # Answers that stand in a question are those of steps before it.
    history = {"weight": 0} if message.role == "assistant" else {}
    return {"role": message.role, "content": message.content(part), **history}


def _digest(png: bytes) -> str:
    return hashlib.sha256(png).hexdigest()


def _by_episode(
    store: EpisodeStore,
    infos: Iterable[EpisodeInfo],
    write: Callable[[EpisodeInfo, list[Step]], Iterable[dict[str, Any]]],
    left_out: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    for info in infos:
        try:
            records = list(write(info, list(store.steps(info.id))))
        except (Damaged, ActionError) as error:
            left_out(f"{info.id}: {error}")
            continue
        if not records:
            left_out(f"{info.id}: it has nothing of this kind")
        yield from records


def _llava(store: EpisodeStore, info: EpisodeInfo, steps: list[Step], name: ImageName) -> Iterator[dict[str, Any]]:
    task, _, before_first = info.task.text.partition(PREVIOUS)
    done = list(read_steps_before(before_first))
    for step in steps:
        seen = step.observation
        if step.action is None or seen.image is None:
            return  # what comes after could not be told
        action = step.action.parse()
        said = " ".join(describe(action).split())
        before = "\n".join(f"Step {number}: {each}" for number, each in enumerate(done, 1)) or "None"
        asked = f"<image>\nTask: {task}\n\nPrevious operations:\n{before}"
        thought = f"<think>\n{step.thought}\n</think>\n" if step.thought else ""
        code = "\n".join(to_pyautogui(action))
        answer = f"{thought}<operation>\n{said}\n</operation>\n<action>\n{code}\n</action>"
        # As in a view: where a teacher was asked, only what it would have done, too, is imitated.
        if step.actor != "disturbance" and (step.teacher is None or step.teacher.text == step.action.text):
            yield {
                "id": f"{info.id}.{step.index}",
                "image": name(store.image(seen.image), seen.image),
                "width": seen.width,
                "height": seen.height,
                "coordinate_space": UNIT,
                "conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}],
            }
        done.append(said)


def _screenspot(store: EpisodeStore, info: EpisodeInfo, steps: list[Step], name: ImageName) -> Iterator[dict[str, Any]]:
    box = info.task.extra.get("box")
    if not isinstance(box, str) or len(steps) != 1 or (digest := steps[0].observation.image) is None:
        return
    png = store.image(digest)
    about = {key: value for key, value in info.task.extra.items() if key != "box"}
    yield {
        "img_filename": name(png, digest),
        "bbox": [float(side) for side in box.split(",")],
        "instruction": info.task.text,
        "img_size": list(png_size(png)),
        "bbox_form": "xyxy",
        "coordinate_space": PIXELS,
        **about,
    }
