"""Tasks that are done by clicking one thing after another, all of it in view."""

from __future__ import annotations

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import SUBMIT, click, click_on
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

QUOTED = r'"([^"]*)"'
# What is clicked, and what the instruction says of it: a part of the selector where that has a gap, else its text.
ONE_CLICK = {
    "click-test": (SUBMIT, None),
    "click-test-2": ("#area button", r"button (\w+)\."),
    "click-test-transfer": ("#area button", r"button (\w+)\."),
    "click-button": ("#area button", QUOTED),
    "unicode-test": ("#area button", QUOTED),
    "click-link": (".alink", QUOTED),
    "click-dialog": ("button.ui-button", None),
    "click-tab": ("#area ul a", r"Click on (.*)\."),
    "click-widget": ('#area [data-type="{}"]', QUOTED),
    "click-color": ('#area [data-color="{}"]', r"on the (.+) colored"),
    "focus-text": ("#tt", None),
    "focus-text-2": ("#tt{}", r"([123])"),
    "grid-coordinate": ('circle[id="{}"]', r"coordinate (.*)[.]"),
}
KINDS = {"circle": "circle", "rect": "rectangle", "polygon": "triangle"}


@teaches(*ONE_CLICK)
async def click_once(page: PageInspector) -> Action:
    selector, pattern = ONE_CLICK[page.task]
    said = page.said(pattern)[1] if pattern else None
    return await click_on(page, selector.format(said), None if "{}" in selector else said)


@teaches("click-button-sequence")
async def click_two_buttons(page: PageInspector) -> Action | None:
    pushed: list[str] = await page.read("buttonsPushed")
    if "subbtn2" in pushed:
        return None
    return await click_on(page, "#subbtn2" if pushed else SUBMIT)


@teaches("click-dialog-2")
async def click_in_dialog(page: PageInspector) -> Action:
    name = page.quoted[0]
    if name == "x":
        return await click_on(page, ".ui-dialog-titlebar button")
    return await click_on(page, ".ui-dialog-buttonset button", name)


@teaches("click-shape")
async def click_shape(page: PageInspector) -> Action:
    fits: list[bool] = await page.peek(
        "(() => { const grid = shapes.genGrid().shapes; const one = grid[core.randi(0, grid.length)];"
        " const wanted = shapes.generalDesc(one); return grid.map(s => shapes.shapeMatchesText(s, wanted)); })()"
    )
    figures = zip(await page.all("#area_svg > *"), fits, strict=True)
    right = [figure for figure, fit in figures if fit and figure.point is not None]
    return click(min(right, key=lambda figure: (figure.center[1], figure.center[0])))


@teaches("identify-shape")
async def identify_shape(page: PageInspector) -> Action:
    tag, text = await page.read(
        "(figure => [figure.tagName, figure.textContent])(document.querySelector('#area_svg > *'))"
    )
    kind = KINDS.get(tag) or ("digit" if text.isdigit() else "letter")
    return await click_on(page, f'[data-type="{kind}"]')


@teaches("count-sides")
async def count_sides(page: PageInspector) -> Action:
    sides = await page.peek("(core.randi(0, 181), core.randi(3, 8))")
    return await click_on(page, f'[data-sides="{sides}"]')


@teaches("count-shape")
async def count_shape(page: PageInspector) -> Action:
    count = await page.peek("chooseShape(shapes.genGrid()).gtshapes.length")
    return await click_on(page, "#count-buttons button", str(count))


@teaches("ascending-numbers")
async def click_ascending(page: PageInspector) -> Action:
    """The numbers turn into black boxes after the first click; where each was is seen in the picture before."""
    boxes = await page.all("svg rect")
    return click(boxes[0] if boxes else await page.one("svg text", "1"))
