"""The text editor: words to style or to color."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import SUBMIT, click_on, double_click, drag
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

STYLES = {"bold": "bold", "italics": "italic", "underlined": "underline"}
BRIGHT = {
    "red": "#e60000", "orange": "#ff9900", "yellow": "#ffff00",
    "green": "#008a00", "blue": "#0066cc", "purple": "#9933ff",
}  # fmt: skip
PALETTE = ".ql-color.ql-expanded"
Range = tuple[int, int]
Look = tuple[tuple[str, Any], ...]


@teaches("text-editor")
async def style_text(page: PageInspector) -> Action | None:
    first: str = await page.read("editor.getText()")
    said = page.said(r"(?:the text (?P<word>\S+)|everything) the (?:style (?P<style>\w+)|color (?P<color>\w+))")
    wanted: Look = ((STYLES[said["style"]], True),) if said["style"] else (("color", BRIGHT[said["color"]]),)
    goal = None
    if said["word"]:
        if (start := first.find(said["word"])) < 0:
            return None  # the word was typed over
        goal = start, start + len(said["word"])
    change = _next_change(await _looks(page), goal, wanted)
    is_open = await page.shows(f"{PALETTE} .ql-picker-item")
    if change is None:
        return await click_on(page, ".ql-color .ql-picker-label" if is_open else SUBMIT)
    place, name, value = change
    if not await _selected(page, place):
        if is_open:
            return await click_on(page, ".ql-color .ql-picker-label")
        return await _select(page, place, first)
    if name != "color":
        return await click_on(page, f"button.ql-{name}")
    if not is_open:
        return await click_on(page, ".ql-color .ql-picker-label")
    shade = f'[data-value="{value}"]' if value else ":not([data-value])"
    return await click_on(page, f"{PALETTE} .ql-picker-item{shade}")


async def _looks(page: PageInspector) -> list[Look]:
    """What each character, but for the line's end, is styled with."""
    parts: list[dict[str, Any]] = await page.read("editor.getContents().ops")
    looks: list[Look] = []
    for part in parts:
        looks += [tuple(sorted(part.get("attributes", {}).items()))] * len(part["insert"])
    return looks[:-1]


def _next_change(looks: list[Look], goal: Range | None, wanted: Look) -> tuple[Range, str, Any] | None:
    """The first style to add or take away, and where: strange ones go first."""
    start, end = goal or (0, len(looks))
    edges = sorted({0, start, end, len(looks), *(i for i in range(1, len(looks)) if looks[i] != looks[i - 1])})
    for left, right in pairwise(edges):
        inside = start <= left and right <= end
        for name, _ in looks[left]:
            if not inside or name != wanted[0][0]:
                return (left, right), name, None
    if any(look != wanted for look in looks[start:end]):
        return (start, end), *wanted[0]
    return None


async def _selected(page: PageInspector, place: Range) -> bool:
    """Spaces beside a word do no harm."""
    index, length, text = await page.read(
        "(() => { const held = editor.selection.savedRange, now = editor.getSelection() ?? held;"
        " return [now.index, now.length, editor.getText()]; })()"
    )
    chosen: str = text[index : index + length]
    left = index + len(chosen) - len(chosen.lstrip())
    return bool(chosen.strip()) and (left, left + len(chosen.strip())) == place


async def _select(page: PageInspector, place: Range, text: str) -> Action:
    left, top, height = await page.read(
        "(box => [box.left, box.top, box.height])(document.querySelector('.ql-container').getBoundingClientRect())"
    )
    start, end = place
    if (start, end) == (0, len(text.rstrip("\n"))):
        return drag((left + 6, top + 8), (left + 145, top + height - 10))
    one, last = await page.read(f"[editor.getBounds({start}, 1), editor.getBounds({end - 1}, 1)]")
    middle = top + one["top"] + one["height"] / 2
    if text[start:end].isalpha():
        return double_click((left + (one["left"] + last["right"]) / 2, middle))
    # A double click leaves out a full stop or comma, so these words are swept over, from space to space.
    return drag((left + one["left"] - 1, middle), (left + last["right"] + 2, top + last["top"] + last["height"] / 2))
