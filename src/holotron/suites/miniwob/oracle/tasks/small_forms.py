"""Tasks with a few controls of different kinds: slider, boxes, fields, list, corner to pull, color field."""

from __future__ import annotations

import random

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, drag, fill, scroll, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

SUBMIT = "#subbtn"
LOWEST, HIGHEST = -10, 10  # of the slider
PULL = 25  # pixels by which a corner is pulled


@teaches("form-sequence")
async def slide_and_tick(eyes: PageInspector, chance: random.Random) -> Action | None:
    said = eyes.said(r"Select (-?\d+) with the slider, click the (\d)")
    wanted, value = int(said[1]), int(await eyes.read("$('#slider').slider('value')"))
    if value != wanted:
        if await eyes.read("document.activeElement.classList.contains('ui-slider-handle')"):
            return Press(keys="right" if wanted > value else "left", repeat=abs(wanted - value))
        slider = await eyes.one("#slider")
        part = (wanted - LOWEST) / (HIGHEST - LOWEST)
        return click((round(slider.left + slider.width * part), slider.center[1]))
    for place, box in enumerate(await eyes.all("#area input[type=checkbox]"), 1):
        if box.checked != (place == int(said[2])):
            return click(box)
    return click(await eyes.one(SUBMIT))


@teaches("form-sequence-2")
async def choose_and_type(eyes: PageInspector, chance: random.Random) -> Action | None:
    said = eyes.said(r'the (\d)\w+ radio button and enter the number "(-?\d+)" into the (\d)')
    radio = (await eyes.all("#area input[type=radio]"))[int(said[1]) - 1]
    if not radio.checked:
        return click(radio)
    for place, field in enumerate(await eyes.all("#area input[type=text]"), 1):
        if (typed := fill(field, said[2] if place == int(said[3]) else "")) is not None:
            return typed
    return click(await eyes.one(SUBMIT))


@teaches("form-sequence-3")
async def choose_and_press(eyes: PageInspector, chance: random.Random) -> Action | None:
    option = eyes.said(r"Choose (.*) from the dropdown")[1]
    if await eyes.read("$('#dropdown').val()") != option:
        if not await eyes.shows(".selectric-items li"):
            return click(await eyes.one(".selectric"))
        item, view = await eyes.one(".selectric-items li", option), await eyes.one(".selectric-scroll")
        if view.top <= item.center[1] - 5 and item.center[1] + 5 <= view.top + view.height:
            return click(item)
        return scroll(view.center, down=item.center[1] > view.center[1], amount=30)
    button = await eyes.one("#buttons button", eyes.quoted[0])
    return click(button if button.point is not None else await eyes.one(".selectric"))


@teaches("resize-textarea")
async def resize_text_area(eyes: PageInspector, chance: random.Random) -> Action | None:
    side, way = eyes.said("width|height")[0], 1 if "larger" in eyes.utterance else -1
    first = await eyes.peek("(height => ({ height, width: core.randi(10, 20) * 5 }))(core.randi(10, 15) * 5)")
    if (await eyes.read(f"$('#tt').{side}()") - first[side]) * way > PULL / 3:
        return click(await eyes.one("#submit"))
    x, y = (await eyes.one(".ui-resizable-se")).center
    return drag((x, y), (x + PULL * way, y) if side == "width" else (x, y + PULL * way))


@teaches("use-colorwheel", "use-colorwheel-2")
async def enter_color(eyes: PageInspector, chance: random.Random) -> Action | None:
    wanted: str = await eyes.read(
        "(patch => { const color = patch ? getComputedStyle(patch).backgroundColor"
        " : ui_utils.colorNameToHex(document.querySelector('#query').textContent.split(' ')[1]);"
        " return color.startsWith('#') ? color.slice(1)"
        " : color.match(/\\d+/g).map(part => Number(part).toString(16).padStart(2, '0')).join(''); })"
        "(document.querySelector('#query .cc'))"
    )
    field = await eyes.one("#col")
    if (field.value or "").lower() != wanted.lower():
        return write(field, wanted.upper(), clear=True)
    submit = await eyes.one(SUBMIT)
    return click(submit if submit.point is not None else (150.0, 195.0))
