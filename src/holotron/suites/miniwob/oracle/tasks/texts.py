"""Tasks with a text to scroll, to select or to copy."""

from __future__ import annotations

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import SUBMIT, click, click_on, drag, fill, scroll
from holotron.suites.miniwob.oracle.registry import teaches
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


@teaches("scroll-text")
async def enter_last_word(page: PageInspector) -> Action:
    text: str = await page.read("document.querySelector('#text-area').defaultValue")
    typed = fill(await page.one("#answer-input"), text.split()[-1].strip(".,"))
    if typed is not None and await page.room_below("#text-area") > 3:
        return scroll(await page.one("#text-area"), down=True, amount=TO_THE_END)
    return typed or await click_on(page, SUBMIT)


@teaches("scroll-text-2")
async def scroll_to_end(page: PageInspector) -> Action:
    down, area = "bottom" in page.utterance, "#text-area"
    left = await page.room_below(area) if down else await page.read(f"document.querySelector('{area}').scrollTop")
    if left > 3:
        return scroll(await page.one(area), down=down, amount=TO_THE_END)
    return await click_on(page, SUBMIT)


@teaches("sign-agreement")
async def sign_agreement(page: PageInspector) -> Action:
    if not page.quoted:
        return await click_on(page, "#cancel")
    name = await page.one("#name")
    if "disabled" in name.attributes:
        return scroll((await page.one("#text-area")).center, down=True, amount=TO_THE_END)
    return fill(name, page.quoted[0]) or await click_on(page, "#area button", page.quoted[1])


@teaches("highlight-text")
async def highlight_text(page: PageInspector) -> Action:
    marked, all_of_it = await page.read(
        r"[getSelection().toString(), document.querySelector('#randomText').textContent]"
        r".map(text => text.replace(/\s/g, ''))"
    )
    if marked == all_of_it:
        return await click_on(page, SUBMIT)
    # From right before the first to right after the last letter.
    left, first, right, last = await page.read(
        "(element => { const range = document.createRange(); range.selectNodeContents(element);"
        " const lines = [...range.getClientRects()].filter(line => line.width > 0), a = lines[0], b = lines.at(-1);"
        " return [a.left, a.top + a.height / 2, b.right, b.top + b.height / 2]; })"
        "(document.querySelector('#randomText'))"
    )
    end = min(right + 2, 158), last
    # A drag that begins on marked text would carry it away.
    return click(end) if marked else drag((left, first), end)


@teaches("highlight-text-2")
async def highlight_paragraph(page: PageInspector) -> Action:
    paragraph = f"document.querySelectorAll('#randomText p')[{int(page.said(NTH)[1]) - 1}]"
    if await page.read(f"String(getSelection()).replace(/\\s/g, '') === {paragraph}.textContent.replace(/\\s/g, '')"):
        return await click_on(page, SUBMIT)
    left, right, first, last = await page.read(
        f"(p => {{ const range = document.createRange(); range.selectNodeContents(p);"
        " const box = p.getBoundingClientRect(), lines = [...range.getClientRects()].filter(line => line.width > 2);"
        " const middle = line => line.top + line.height / 2;"
        f" return [box.left, box.right, middle(lines[0]), middle(lines.at(-1))]; }})({paragraph})"
    )
    # Beside a line the mouse means its nearer end, so nothing has to be met exactly.
    return drag((left - 3, first), (right + 3, last))


@teaches("copy-paste", "copy-paste-2")
async def copy_and_paste(page: PageInspector) -> Action:
    source = await page.one(f"#text-{page.said(NTH)[1]}" if page.task == "copy-paste-2" else "#to-copy")
    target = await page.one("#answer-input")
    if target.value == source.value:
        return await click_on(page, SUBMIT)
    copied = await page.read(LAST_COPIED) == source.value
    place = target if copied else source
    if not await page.has_focus(f"#{place.attributes['id']}"):
        return click(place)
    selected = "(field => field.selectionEnd - field.selectionStart === field.value.length)(document.activeElement)"
    if place.value and not await page.read(selected):
        return Press(keys="Control+A")
    return Press(keys="Control+V" if copied else "Control+C")
