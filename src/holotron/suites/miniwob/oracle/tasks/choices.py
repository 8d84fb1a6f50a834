"""Tasks in which some of several things are marked or chosen, then submitted."""

from __future__ import annotations

import random
from collections.abc import Callable

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, scroll, select
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector

SUBMIT = "#subbtn"
BLIND_STEPS = 4  # how far to walk in a list towards what is not in view: it shows five rows


@teaches("click-option")
async def choose_option(eyes: PageInspector, chance: random.Random) -> Action | None:
    name = eyes.said(r"Select (.*) and click Submit")[1]
    boxes = await eyes.all("#boxes label input")
    labels = await eyes.all("#boxes label")
    wanted = next(box for box, label in zip(boxes, labels, strict=True) if label.text == name)
    return click(await eyes.one(SUBMIT) if wanted.checked else wanted)


async def tick(eyes: PageInspector, wanted: Callable[[str], bool]) -> Action:
    """Correct the first box that is wrongly ticked or not ticked; where none is, submit."""
    boxes = await eyes.all("#area label input")
    labels = await eyes.all("#area label")
    for box, label in zip(boxes, labels, strict=True):
        if box.checked != wanted(label.text):
            return click(box)
    return click(await eyes.one(SUBMIT))


@teaches("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
async def check_boxes(eyes: PageInspector, chance: random.Random) -> Action | None:
    names = eyes.said(r"Select (.*) and click Submit")[1].split(", ")
    return await tick(eyes, lambda text: text in names)


@teaches("click-checkboxes-soft")
async def check_similar_boxes(eyes: PageInspector, chance: random.Random) -> Action | None:
    names = eyes.said(r"similar to (.*) and click Submit")[1].split(", ")
    groups: list[list[str]] = await eyes.read("SYNONYMS")
    return await tick(eyes, lambda text: any(text in group and name in group for group in groups for name in names))


@teaches("number-checkboxes")
async def draw_number(eyes: PageInspector, chance: random.Random) -> Action | None:
    pattern: list[list[int]] = await eyes.read(f"PATTERNS[{eyes.quoted[0]}]")
    boxes = await eyes.all("#checkboxes input")
    for box, wanted in zip(boxes, [cell for row in pattern for cell in row], strict=True):
        if box.checked != bool(wanted):
            return click(box)
    return click(await eyes.one(SUBMIT))


@teaches("click-shades")
async def mark_shades(eyes: PageInspector, chance: random.Random) -> Action | None:
    color = eyes.said(r"shades of (\w+)")[1]
    for shade in await eyes.all("#area span"):
        if (shade.attributes["data-color"] == color) != (shade.attributes.get("class") == "selected"):
            return click(shade)
    return click(await eyes.one("#submit"))


@teaches("odd-or-even")
async def mark_odd_or_even(eyes: PageInspector, chance: random.Random) -> Action | None:
    odd, even = await eyes.all(".odd"), await eyes.all(".even")
    for row, number in enumerate(await eyes.all(".display-number")):
        right = odd[row] if int(number.text) % 2 else even[row]
        if "selected" not in right.attributes["class"]:
            return click(right)
    return click(await eyes.one("#submit"))


@teaches("choose-list")
async def choose_from_list(eyes: PageInspector, chance: random.Random) -> Action | None:
    wanted = eyes.said(r"Select (.*) from the list")[1]
    options = await eyes.one("#options")
    return click(await eyes.one("#area button")) if options.value == wanted else select(options, wanted)


@teaches("click-scroll-list")
async def choose_from_open_list(eyes: PageInspector, chance: random.Random) -> Action | None:
    """There is no click that adds to a choice, so the second option is walked to and ticked with the keyboard."""
    names = eyes.said(r"Select (.*) from the scroll list")[1].split(", ")
    view, options = await eyes.one("#options"), await eyes.all("#options option")
    chosen, outlined, focused = await eyes.read(
        "(options => [options.filter(option => option.selected).map(option => option.text),"
        " options.findIndex(option => getComputedStyle(option).outlineStyle !== 'none'),"
        " document.activeElement.id === 'options'])"
        "([...document.querySelectorAll('#options option')])"
    )
    if sorted(chosen) == sorted(names):
        return click(await eyes.one("#area button"))
    order = [option.text for option in options]
    if len(chosen) != 1 or chosen[0] not in names or not focused:
        return choose_only(view, options, order.index(names[0]))
    other = next(name for name in names if name != chosen[0])
    return walk(view, options, order.index(chosen[0]) if outlined < 0 else outlined, order.index(other))


def choose_only(view: PageElement, options: list[PageElement], wanted: int) -> Action:
    option = options[wanted]
    if in_view(view, option):
        return click(option)
    # What is typed to find an option in the list also finds a longer name that begins like it.
    if sum(other.text.startswith(option.text) for other in options) > 1:
        return scroll(view, down=option.top > view.top, amount=30)
    return select(view, option.text)


def walk(view: PageElement, options: list[PageElement], here: int, there: int) -> Action:
    if here == there:
        return Press(keys="Control+Space")
    steps = abs(there - here) if in_view(view, options[there]) else BLIND_STEPS
    return Press(keys="Control+ArrowDown" if there > here else "Control+ArrowUp", repeat=steps)


def in_view(view: PageElement, option: PageElement) -> bool:
    return option.point is not None and view.top <= option.top and option.top + option.height <= view.top + view.height
