"""Tasks in which some of several things are marked or chosen, then submitted."""

from __future__ import annotations

from collections.abc import Callable

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, click_on, click_wrong, press_toward, select
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import scroll
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector

BLIND_STEPS = 4  # how far to walk in a list towards what is not in view: it shows five rows


@teaches("click-option")
async def choose_option(page: PageInspector) -> Action:
    name = page.said(r"Select (.*) and click Submit")[1]
    wanted = next(box for box, label in await _labelled(page) if label == name)
    return await click_wrong(page, [(wanted, not wanted.checked)])


@teaches("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
async def check_boxes(page: PageInspector) -> Action:
    names = page.said(r"Select (.*) and click Submit")[1].split(", ")
    return await _tick(page, lambda text: text in names)


@teaches("click-checkboxes-soft")
async def check_similar_boxes(page: PageInspector) -> Action:
    names = page.said(r"similar to (.*) and click Submit")[1].split(", ")
    groups: list[list[str]] = await page.read("SYNONYMS")
    return await _tick(page, lambda text: any(text in group and name in group for group in groups for name in names))


async def _tick(page: PageInspector, wanted: Callable[[str], bool]) -> Action:
    return await click_wrong(page, [(box, box.checked != wanted(label)) for box, label in await _labelled(page)])


async def _labelled(page: PageInspector) -> list[tuple[PageElement, str]]:
    boxes, labels = await page.all("#area label input"), await page.all("#area label")
    return [(box, label.text) for box, label in zip(boxes, labels, strict=True)]


@teaches("number-checkboxes")
async def draw_number(page: PageInspector) -> Action:
    pattern: list[list[int]] = await page.read(f"PATTERNS[{page.quoted[0]}]")
    wanted = [bool(cell) for row in pattern for cell in row]
    boxes = zip(await page.all("#checkboxes input"), wanted, strict=True)
    return await click_wrong(page, [(box, box.checked != ticked) for box, ticked in boxes])


@teaches("click-shades")
async def mark_shades(page: PageInspector) -> Action:
    color = page.said(r"shades of (\w+)")[1]
    shades = [(shade, shade.attributes) for shade in await page.all("#area span")]
    marks = [(shade, (has["data-color"] == color) != (has.get("class") == "selected")) for shade, has in shades]
    return await click_wrong(page, marks, "#submit")


@teaches("odd-or-even")
async def mark_odd_or_even(page: PageInspector) -> Action:
    rows = zip(await page.all(".display-number"), await page.all(".odd"), await page.all(".even"), strict=True)
    right = [odd if int(number.text) % 2 else even for number, odd, even in rows]
    return await click_wrong(page, [(mark, "selected" not in mark.attributes["class"]) for mark in right], "#submit")


@teaches("choose-list")
async def choose_from_list(page: PageInspector) -> Action:
    wanted = page.said(r"Select (.*) from the list")[1]
    options = await page.one("#options")
    return await click_on(page, "#area button") if options.value == wanted else select(options, wanted)


@teaches("click-scroll-list")
async def choose_from_open_list(page: PageInspector) -> Action:
    """There is no click that adds to a choice, so the second option is walked to and ticked with the keyboard."""
    names = page.said(r"Select (.*) from the scroll list")[1].split(", ")
    view, options = await page.one("#options"), await page.all("#options option")
    chosen, outlined = await page.read(
        "(options => [options.filter(option => option.selected).map(option => option.text),"
        " options.findIndex(option => getComputedStyle(option).outlineStyle !== 'none')])"
        "([...document.querySelectorAll('#options option')])"
    )
    if sorted(chosen) == sorted(names):
        return await click_on(page, "#area button")
    order = [option.text for option in options]
    if len(chosen) != 1 or chosen[0] not in names or not await page.has_focus("#options"):
        return _choose_only(view, options, order.index(names[0]))
    other = next(name for name in names if name != chosen[0])
    return _walk(view, options, order.index(chosen[0]) if outlined < 0 else outlined, order.index(other))


def _choose_only(view: PageElement, options: list[PageElement], wanted: int) -> Action:
    option = options[wanted]
    if _in_list(view, option):
        return click(option)
    # What is typed to find an option in the list also finds a longer name that begins like it.
    if sum(other.text.startswith(option.text) for other in options) > 1:
        return scroll(view, down=option.top > view.top, amount=30)
    return select(view, option.text)


def _walk(view: PageElement, options: list[PageElement], here: int, there: int) -> Action:
    if here == there:
        return Press(keys="Control+Space")
    blindly = BLIND_STEPS if there > here else -BLIND_STEPS
    missing = there - here if _in_list(view, options[there]) else blindly
    return press_toward(missing, "Control+ArrowUp", "Control+ArrowDown")


def _in_list(view: PageElement, option: PageElement) -> bool:
    return option.point is not None and view.top <= option.top and option.top + option.height <= view.top + view.height
