"""Tasks with a text to scroll, to select or to copy."""

from __future__ import annotations

import random

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, drag, fill, scroll
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

SUBMIT = "#subbtn"
TO_THE_END = 1000  # percent of the screen: all of any text


@teaches("scroll-text")
async def enter_last_word(eyes: PageInspector, chance: random.Random) -> Action | None:
    text: str = await eyes.read("document.querySelector('#text-area').defaultValue")
    typed = fill(await eyes.one("#answer-input"), text.split()[-1].strip(".,"))
    if typed is not None and await _left_below(eyes) > 3:
        return scroll(await eyes.one("#text-area"), down=True, amount=TO_THE_END)
    return typed or click(await eyes.one(SUBMIT))


@teaches("scroll-text-2")
async def scroll_to_end(eyes: PageInspector, chance: random.Random) -> Action | None:
    down = "bottom" in eyes.utterance
    left = await _left_below(eyes) if down else await eyes.read("document.querySelector('#text-area').scrollTop")
    if left > 3:
        return scroll(await eyes.one("#text-area"), down=down, amount=TO_THE_END)
    return click(await eyes.one(SUBMIT))


@teaches("sign-agreement")
async def sign_agreement(eyes: PageInspector, chance: random.Random) -> Action | None:
    if not eyes.quoted:
        return click(await eyes.one("#cancel"))
    name = await eyes.one("#name")
    if "disabled" in name.attributes:
        x, y = (await eyes.one("#text-area")).center
        return scroll((x, y), down=True, amount=TO_THE_END)
    return fill(name, eyes.quoted[0]) or click(await eyes.one("#area button", eyes.quoted[1]))


@teaches("highlight-text-2")
async def highlight_paragraph(eyes: PageInspector, chance: random.Random) -> Action | None:
    nth = int(eyes.said(r"(\d)(st|nd|rd)")[1])
    paragraph = f"document.querySelectorAll('#randomText p')[{nth - 1}]"
    if await eyes.read(f"String(getSelection()).replace(/\\s/g, '') === {paragraph}.textContent.replace(/\\s/g, '')"):
        return click(await eyes.one(SUBMIT))
    left, right, first, last = await eyes.read(
        f"(p => {{ const range = document.createRange(); range.selectNodeContents(p);"
        " const box = p.getBoundingClientRect(), lines = [...range.getClientRects()].filter(line => line.width > 2);"
        " const middle = line => line.top + line.height / 2;"
        f" return [box.left, box.right, middle(lines[0]), middle(lines.at(-1))]; }})({paragraph})"
    )
    # Beside a line the mouse means its nearer end, so nothing has to be met exactly.
    return drag((left - 3, first), (right + 3, last))


@teaches("copy-paste-2")
async def copy_and_paste(eyes: PageInspector, chance: random.Random) -> Action | None:
    nth = eyes.said(r"(\d)(st|nd|rd)")[1]
    area, answer = f"document.querySelector('#text-{nth}')", await eyes.one("#answer-input")
    # The page does not tell what was copied, so it is made to note it from the first question on.
    copied, text, focus, selected = await eyes.read(
        "(area => { if (window.copied === undefined) { window.copied = '';"
        " window.addEventListener('copy', () => { const from = document.activeElement;"
        " window.copied = from.value?.slice(from.selectionStart, from.selectionEnd) || window.copied; }); }"
        " const all = area.selectionStart === 0 && area.selectionEnd === area.value.length;"
        f" return [window.copied, area.value, document.activeElement.id, all]; }})({area})"
    )
    if answer.value == text:
        return click(await eyes.one(SUBMIT))
    if copied == text:
        if focus != "answer-input":
            return click(answer)
        return Press(keys="ctrl+a") if answer.value and not await _answer_selected(eyes) else Press(keys="ctrl+v")
    if focus != f"text-{nth}":
        return click(await eyes.one(f"#text-{nth}"))
    return Press(keys="ctrl+c" if selected else "ctrl+a")


async def _answer_selected(eyes: PageInspector) -> bool:
    return bool(
        await eyes.read(
            "(field => field.selectionEnd - field.selectionStart === field.value.length)"
            "(document.querySelector('#answer-input'))"
        )
    )


async def _left_below(eyes: PageInspector) -> float:
    """How many pixels of the text lie below what is shown."""
    left: float = await eyes.read(
        "(area => area.scrollHeight - area.clientHeight - area.scrollTop)(document.querySelector('#text-area'))"
    )
    return left
