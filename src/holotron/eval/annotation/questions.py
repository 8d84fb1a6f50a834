"""What models are asked about a screen or a step, and how their answers are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holotron.actions.action import ActionError
from holotron.agent.chat import Message, numbered_screenshots
from holotron.agent.formats.base import load_object
from holotron.suites.screens.labels import ScreenElement

ELEMENTS = """List what can be operated or read on this screenshot. Answer with JSON alone:
{"elements": [{"name": "Save", "kind": "button", "box": [left, top, right, bottom]}, …]}
The name is the text that can be seen on it or beside it. Kinds are button, link, text field, text area, check box, \
radio button, switch, drop-down, option, tab, menu item, slider, icon, image, heading, text and cell. Sides are whole \
numbers from 0 to 1000 of the picture's width and height. Name each once, the most important ones first, at most"""

CAPTION = (
    "Describe this screenshot in one or two sentences: what application or page it is, and what state it is in. "
    "Say only what can be seen. Answer with the description alone."
)

FUNCTIONS = """For each of these elements of the screenshot write one short instruction that says what a person would \
want to achieve by using it, without naming it and without saying where it is. Answer with JSON alone: \
{"instructions": {"1": "…", "2": "…"}}. Boxes are left, top, right, bottom, in thousandths of the picture's sides."""

THOUGHT = """A person does a task on a computer. You see the screen before one step, and what was done then. Write the \
person's thought before that step: what the screen shows that matters, and why this is the right thing to do. One to \
three sentences in the first person, without coordinates. Answer with the thought alone."""

HINDSIGHT = """An agent tried a task on a computer and did not accomplish it. From what it did and the last \
screenshots write the instruction of a task that these very actions did accomplish, as a person would have given it: \
specific, and nothing that did not happen. If they accomplished nothing, answer NOTHING. Answer with the instruction \
alone."""

CHECK = {
    "caption": "Is this description of the screenshot right in everything it says?\nDescription: ",
    "thought": "Does this thought fit the screenshot, the task and the action that followed, without a mistake?\n",
}
YES_OR_NO = "\nAnswer with YES or NO."
SCALE = 1000


def elements_question(png: bytes, most: int) -> list[Message]:
    return [Message("user", f"{ELEMENTS} {most}.", png)]


def read_elements(text: str, size: tuple[int, int], most: int) -> list[ScreenElement]:
    """The elements of an answer in pixels, without those that are none; ActionError where it is no list."""
    found = load_object(text).get("elements")
    if not isinstance(found, list):
        raise ActionError(f"the answer has no list of elements: {text[:80]!r}")
    elements: dict[tuple[str, str, tuple[float, ...]], ScreenElement] = {}
    for each in found[:most]:
        element = _element(each, size)
        if element is not None:
            elements.setdefault((element.kind, element.name, element.box), element)
    return list(elements.values())


def _element(value: Any, size: tuple[int, int]) -> ScreenElement | None:
    if not isinstance(value, dict) or not isinstance(box := value.get("box"), list) or len(box) != 4:
        return None
    if not all(isinstance(side, int | float) and 0 <= side <= SCALE for side in box):
        return None
    left, top, right, bottom = (side * size[index % 2] / SCALE for index, side in enumerate(box))
    name, kind = (" ".join(str(value.get(key) or "").split()) for key in ("name", "kind"))
    if right - left < 1 or bottom - top < 1 or not kind or len(name) > 200:
        return None
    middle = (round((left + right) / 2), round((top + bottom) / 2))
    sides = (round(left, 1), round(top, 1), round(right, 1), round(bottom, 1))
    return ScreenElement(kind, name, name, None, (), "", "", "", "", sides, (middle,), True)


def functions_question(png: bytes, elements: Sequence[ScreenElement], size: tuple[int, int]) -> list[Message]:
    lines = []
    for number, each in enumerate(elements, 1):
        box = ", ".join(str(round(side * SCALE / size[index % 2])) for index, side in enumerate(each.box))
        lines.append(f'{number}. {each.kind} "{each.name}" at [{box}]')
    return [Message("user", FUNCTIONS + "\n" + "\n".join(lines), png)]


def read_functions(text: str, count: int) -> dict[int, str]:
    """Instructions by the place of their element; ActionError where the answer has none."""
    found = load_object(text).get("instructions")
    if not isinstance(found, dict):
        raise ActionError(f"the answer has no instructions: {text[:80]!r}")
    numbered = {int(key) - 1: value for key, value in found.items() if str(key).isdigit()}
    return {
        place: " ".join(said.split())
        for place, said in numbered.items()
        if 0 <= place < count and isinstance(said, str) and said.strip()
    }


def thought_question(png: bytes, task: str, before: Sequence[str], action: str) -> list[Message]:
    done = "\n".join(f"{number}. {each}" for number, each in enumerate(before, 1)) or "nothing"
    return [Message("user", f"{THOUGHT}\n\nTask: {task}\nDone before: {done}\nThen: {action}", png)]


def hindsight_question(task: str, actions: Sequence[str], screens: Sequence[bytes]) -> list[Message]:
    done = "\n".join(f"{number}. {each}" for number, each in enumerate(actions, 1))
    asked = f"{HINDSIGHT}\n\nThe task: {task}\nWhat it did:\n{done}"
    return [*numbered_screenshots(screens), Message("user", asked)]


def read_words(text: str) -> str:
    """A caption, thought or instruction as it was said; ActionError where there are no words, or far too many."""
    words = " ".join(text.strip().strip('"').split())
    if not words or len(words) > 1500:
        raise ActionError(f"the answer has {len(words)} characters")
    return words


def check_question(kind: str, png: bytes, said: str) -> list[Message]:
    return [Message("user", CHECK[kind] + said + YES_OR_NO, png)]


def read_yes(text: str) -> bool | None:
    """None where it is neither yes nor no, or both."""
    found = {word.upper() for word in re.findall(r"\b(yes|no)\b", text, re.IGNORECASE)}
    return found == {"YES"} if len(found) == 1 else None
