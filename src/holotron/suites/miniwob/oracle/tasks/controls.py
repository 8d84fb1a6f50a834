"""Tasks about a few controls that are turned, slid, chosen from or pulled, then submitted."""

from __future__ import annotations

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, click_on, click_wrong, drag, fill_in, press_toward, submit, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import scroll
from holotron.suites.miniwob.page_inspector import PageInspector

SLIDER_HANDLE = ".ui-slider-handle"
SLIDER_END = 20  # use-slider-2: its sliders go from 0 to this
LOWEST, HIGHEST = -10, 10  # of the slider of form-sequence
MOST_KEYS = 100  # in one action
PULL = 25  # pixels by which a corner is pulled


@teaches("use-spinner")
async def turn_spinner(page: PageInspector) -> Action:
    """One click on an arrow, which brings the focus there, then the rest of the way by key."""
    missing = int(page.said(r"Select (-?\d+)")[1]) - int((await page.one("#spinner")).value or 0)
    if missing == 0:
        return await submit(page)
    if await page.has_focus("#spinner"):
        return press_toward(missing, "ArrowDown", "ArrowUp")
    return await click_on(page, ".ui-spinner-up" if missing > 0 else ".ui-spinner-down")


@teaches("use-slider")
async def move_slider(page: PageInspector) -> Action:
    """By key, since the number is shown but not where the slider's scale begins and ends."""
    missing = int(page.said(r"Select (-?\d+)")[1]) - int((await page.one("#val")).text)
    if missing == 0:
        return await submit(page)
    if await page.has_focus(SLIDER_HANDLE):
        return press_toward(max(-MOST_KEYS, min(missing, MOST_KEYS)), "ArrowLeft", "ArrowRight")
    return await click_on(page, SLIDER_HANDLE)


@teaches("use-slider-2")
async def move_three_sliders(page: PageInspector) -> Action:
    wanted = [int(number) for number in page.said(r"\[(\d+),(\d+),(\d+)\]").groups()]
    for number, value in enumerate(wanted, start=1):
        if int((await page.one(f"#val-{number}")).text) != value:
            bar, handle = await page.one(f"#slider-{number}"), await page.one(f"#slider-{number} {SLIDER_HANDLE}")
            return drag(handle.center, (round(bar.left + bar.width * value / SLIDER_END), handle.center[1]))
    return await submit(page)


@teaches("form-sequence")
async def slide_and_tick(page: PageInspector) -> Action:
    said = page.said(r"Select (-?\d+) with the slider, click the (\d)")
    wanted, value = int(said[1]), int(await page.read("$('#slider').slider('value')"))
    if value != wanted:
        if await page.has_focus(SLIDER_HANDLE):
            return press_toward(wanted - value, "left", "right")
        slider = await page.one("#slider")
        part = (wanted - LOWEST) / (HIGHEST - LOWEST)
        return click((round(slider.left + slider.width * part), slider.center[1]))
    boxes = enumerate(await page.all("#area input[type=checkbox]"), 1)
    return await click_wrong(page, [(box, box.checked != (place == int(said[2]))) for place, box in boxes])


@teaches("form-sequence-2")
async def choose_and_type(page: PageInspector) -> Action:
    said = page.said(r'the (\d)\w+ radio button and enter the number "(-?\d+)" into the (\d)')
    radio = (await page.all("#area input[type=radio]"))[int(said[1]) - 1]
    if not radio.checked:
        return click(radio)
    fields = enumerate(await page.all("#area input[type=text]"), 1)
    return await fill_in(page, *((field, said[2] if place == int(said[3]) else "") for place, field in fields))


@teaches("form-sequence-3")
async def choose_and_press(page: PageInspector) -> Action:
    option = page.said(r"Choose (.*) from the dropdown")[1]
    if await page.read("$('#dropdown').val()") != option:
        if not await page.shows(".selectric-items li"):
            return await click_on(page, ".selectric")
        item, view = await page.one(".selectric-items li", option), await page.one(".selectric-scroll")
        if view.top <= item.center[1] - 5 and item.center[1] + 5 <= view.top + view.height:
            return click(item)
        return scroll(view.center, down=item.center[1] > view.center[1], amount=30)
    button = await page.one("#buttons button", page.quoted[0])
    return click(button if button.point is not None else await page.one(".selectric"))


@teaches("resize-textarea")
async def resize_text_area(page: PageInspector) -> Action:
    side, way = page.said("width|height")[0], 1 if "larger" in page.utterance else -1
    first = await page.peek("(height => ({ height, width: core.randi(10, 20) * 5 }))(core.randi(10, 15) * 5)")
    if (await page.read(f"$('#tt').{side}()") - first[side]) * way > PULL / 3:
        return await click_on(page, "#submit")
    x, y = (await page.one(".ui-resizable-se")).center
    return drag((x, y), (x + PULL * way, y) if side == "width" else (x, y + PULL * way))


@teaches("use-colorwheel", "use-colorwheel-2")
async def enter_color(page: PageInspector) -> Action:
    wanted: str = await page.read(
        "(patch => { const color = patch ? getComputedStyle(patch).backgroundColor"
        " : ui_utils.colorNameToHex(document.querySelector('#query').textContent.split(' ')[1]);"
        " return color.startsWith('#') ? color.slice(1)"
        " : color.match(/\\d+/g).map(part => Number(part).toString(16).padStart(2, '0')).join(''); })"
        "(document.querySelector('#query .cc'))"
    )
    field = await page.one("#col")
    if (field.value or "").lower() != wanted.lower():
        return write(field, wanted.upper(), clear=True)
    button = await page.one("#subbtn")  # the open color picker may cover it: a click beside both closes that
    return click(button if button.point is not None else (150.0, 195.0))
