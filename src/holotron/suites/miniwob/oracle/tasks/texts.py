"""Tasks with a text to scroll, to select, to copy, or to style."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import SUBMIT, click, click_on, double_click, drag, fill, submit
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import scroll
from holotron.suites.miniwob.page_inspector import PageInspector

TO_THE_END = 1000  # percent of the screen: all of any text
NTH = r"(\d)(st|nd|rd)"
# The page does not tell what was copied, so it is made to note it from the first question on; a copy that was made
# before is made again. A copy of nothing leaves the clipboard as it was.
LAST_COPIED = """(window.last_copied ??= (() => {
  const noted = { text: null };
  addEventListener("copy", () => {
    const field = document.activeElement;
    noted.text = field.value?.slice(field.selectionStart, field.selectionEnd) || noted.text;
  });
  return noted;
})()).text"""
STYLES = {"bold": "bold", "italics": "italic", "underlined": "underline"}
BRIGHT = {
    "red": "#e60000", "orange": "#ff9900", "yellow": "#ffff00",
    "green": "#008a00", "blue": "#0066cc", "purple": "#9933ff",
}  # fmt: skip
PALETTE, OPENS_PALETTE = ".ql-color.ql-expanded", ".ql-color .ql-picker-label"
Range = tuple[int, int]
Style = tuple[tuple[str, Any], ...]


@teaches("scroll-text")
async def enter_last_word(page: PageInspector) -> Action:
    text: str = await page.read("document.querySelector('#text-area').defaultValue")
    typed = fill(await page.one("#answer-input"), text.split()[-1].strip(".,"))
    if typed is not None and await page.room_below("#text-area") > 3:
        return scroll(await page.one("#text-area"), down=True, amount=TO_THE_END)
    return typed or await submit(page)


@teaches("scroll-text-2")
async def scroll_to_end(page: PageInspector) -> Action:
    down, area = "bottom" in page.utterance, "#text-area"
    left = await page.room_below(area) if down else await page.read(f"document.querySelector('{area}').scrollTop")
    if left > 3:
        return scroll(await page.one(area), down=down, amount=TO_THE_END)
    return await submit(page)


@teaches("sign-agreement")
async def sign_agreement(page: PageInspector) -> Action:
    if not page.quoted:
        return await click_on(page, "#cancel")
    name = await page.one("#name")
    if "disabled" in name.attributes:
        return scroll((await page.one("#text-area")).center, down=True, amount=TO_THE_END)
    return fill(name, page.quoted[0]) or await click_on(page, "#area button", page.quoted[1])


@teaches("highlight-text", "highlight-text-2")
async def highlight_text(page: PageInspector) -> Action:
    if paragraph := page.task == "highlight-text-2":
        element = f"document.querySelectorAll('#randomText p')[{int(page.said(NTH)[1]) - 1}]"
    else:
        element = "document.querySelector('#randomText')"
    marked, wanted, box, first, last = await page.read(
        "(element => { const range = document.createRange(); range.selectNodeContents(element);"
        f" const lines = [...range.getClientRects()].filter(line => line.width > {2 if paragraph else 0});"
        " const place = box => [box.left, box.right, box.top + box.height / 2];"
        " return [...[String(getSelection()), element.textContent].map(text => text.replace(/\\s/g, '')),"
        " ...[element.getBoundingClientRect(), lines[0], lines.at(-1)].map(place)]; })"
        f"({element})"
    )
    if marked == wanted:
        return await submit(page)
    if paragraph:
        # Beside a line the mouse means its nearer end, so nothing has to be met exactly.
        return drag((box[0] - 3, first[2]), (box[1] + 3, last[2]))
    # From right before the first to right after the last letter. A drag that begins on marked text would carry it away.
    end = min(last[1] + 2, 158), last[2]
    return click(end) if marked else drag((first[0], first[2]), end)


@teaches("copy-paste", "copy-paste-2")
async def copy_and_paste(page: PageInspector) -> Action:
    source = await page.one(f"#text-{page.said(NTH)[1]}" if page.task == "copy-paste-2" else "#to-copy")
    target = await page.one("#answer-input")
    if target.value == source.value:
        return await submit(page)
    copied = await page.read(LAST_COPIED) == source.value
    place = target if copied else source
    if not await page.has_focus(f"#{place.attributes['id']}"):
        return click(place)
    selected = "(field => field.selectionEnd - field.selectionStart === field.value.length)(document.activeElement)"
    if place.value and not await page.read(selected):
        return Press(keys="Control+A")
    return Press(keys="Control+V" if copied else "Control+C")


@teaches("text-editor")
async def style_text(page: PageInspector) -> Action | None:
    first: str = await page.read("editor.getText()")
    said = page.said(r"(?:the text (?P<word>\S+)|everything) the (?:style (?P<style>\w+)|color (?P<color>\w+))")
    wanted: Style = ((STYLES[said["style"]], True),) if said["style"] else (("color", BRIGHT[said["color"]]),)
    goal = None
    if said["word"]:
        if (start := first.find(said["word"])) < 0:
            return None  # the word was typed over
        goal = start, start + len(said["word"])
    change = _next_change(await _styles(page), goal, wanted)
    is_open = await page.shows(f"{PALETTE} .ql-picker-item")
    if change is None:
        return await click_on(page, OPENS_PALETTE if is_open else SUBMIT)
    place, name, value = change
    if not await _selected(page, place):
        if is_open:
            return await click_on(page, OPENS_PALETTE)
        return await _select(page, place, first)
    if name != "color":
        return await click_on(page, f"button.ql-{name}")
    if not is_open:
        return await click_on(page, OPENS_PALETTE)
    shade = f'[data-value="{value}"]' if value else ":not([data-value])"
    return await click_on(page, f"{PALETTE} .ql-picker-item{shade}")


async def _styles(page: PageInspector) -> list[Style]:
    """What each character, but for the line's end, is styled with."""
    parts: list[dict[str, Any]] = await page.read("editor.getContents().ops")
    styles: list[Style] = []
    for part in parts:
        styles += [tuple(sorted(part.get("attributes", {}).items()))] * len(part["insert"])
    return styles[:-1]


def _next_change(styles: list[Style], goal: Range | None, wanted: Style) -> tuple[Range, str, Any] | None:
    """The first style to add or take away, and where: strange ones go first."""
    start, end = goal or (0, len(styles))
    edges = sorted({0, start, end, len(styles), *(i for i in range(1, len(styles)) if styles[i] != styles[i - 1])})
    for left, right in pairwise(edges):
        inside = start <= left and right <= end
        for name, _ in styles[left]:
            if not inside or name != wanted[0][0]:
                return (left, right), name, None
    if any(style != wanted for style in styles[start:end]):
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
