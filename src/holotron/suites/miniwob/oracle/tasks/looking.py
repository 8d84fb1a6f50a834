"""Tasks in which the thing to click has to be found first: behind tabs and menus, on other pages, in a tree."""

from __future__ import annotations

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import SUBMIT, click, click_on, hover, overwrite
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector

RESULTS_A_PAGE = 3
INTO_NAME = 26  # pixels from the left end of a row of the tree: past its icon, on the first letters


@teaches(
    *("click-tab-2", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard"),
    *("click-collapsible-2", "click-collapsible-2-nodelay"),
)
async def look_behind(page: PageInspector) -> Action:
    """Click the link if it is to be seen, else open what comes after that which is open, and the first after all."""
    if await page.shows(".alink", page.quoted[0]):
        return await click_on(page, ".alink", page.quoted[0])
    headers = await page.all("#area ul li" if page.task.startswith("click-tab") else "#area h3")
    opened = [index for index, header in enumerate(headers) if header.attributes.get("aria-expanded") == "true"]
    return click(headers[(opened[0] + 1) % len(headers) if opened else 0])


@teaches("click-collapsible", "click-collapsible-nodelay")
async def open_section(page: PageInspector) -> Action:
    header = await page.one("#area h3")
    return click(await page.one(SUBMIT) if header.attributes["aria-expanded"] == "true" else header)


@teaches("click-menu")
async def walk_menu(page: PageInspector) -> Action:
    """A click on an entry that leads on ends the episode: menus are opened by hovering."""
    path, entries = page.said(r"Select (.*)")[1].split(">"), await _entries(page)
    if path[-1] in entries:
        return click(entries[path[-1]])
    deepest = next((name for name in reversed(path[:-1]) if name in entries), path[0])
    return hover(entries[deepest]) if deepest in entries else hover((155, 205))


@teaches("click-menu-2")
async def click_in_menu(page: PageInspector) -> Action:
    named_by_icon: str = await page.read(
        "(icon => Object.keys(PROBLEM_SET).find(name => icon && icon.classList.contains(PROBLEM_SET[name])) || '')"
        "(document.querySelector('#query .ui-icon'))"
    )
    wanted, entries = named_by_icon or page.quoted[-1], await _entries(page)
    if wanted in entries:
        return click(entries[wanted])
    return hover(entries["Playback"]) if "Playback" in entries else await click_on(page, "#open-menu")


async def _entries(page: PageInspector) -> dict[str, PageElement]:
    """The entries of open menus by what they say."""
    return {entry.text: entry for entry in await page.all("#menu li > div") if entry.point is not None}


@teaches("click-pie", "click-pie-nodelay")
async def click_in_pie(page: PageInspector) -> Action:
    if await page.shows("#divWheel svg text", "+"):
        return await click_on(page, "#divWheel svg text", "+")
    return await click_on(page, "#divWheel svg text[id*='-title-']", page.quoted[0])


@teaches("search-engine")
async def open_search_result(page: PageInspector) -> Action:
    """With the numbers of the pages or with the arrows beside them."""
    by_number = page.chance.random() < 0.5
    text, place = page.quoted[0], int(page.said(r"click the (\d)")[1]) - 1
    field = await page.one("#search-text")
    if (field.value or "").lower() != text.lower():
        return overwrite(field, text)
    # Results of a search for something else have no place.
    found = [int(link.attributes["data-result"]) for link in await page.all("#page-content a")]
    if not found or found[0] < 0:
        return await click_on(page, "#search")
    if place in found:
        return await click_on(page, f"#page-content a[data-result='{place}']")
    number = str(place // RESULTS_A_PAGE + 1) if by_number else ">" if place > found[0] else "<"
    return await click_on(page, "#pagination .page-link", number)


@teaches("phone-book")
async def use_contact(page: PageInspector) -> Action:
    person, what = page.said(r"Find (.+) in the contact book and click on their (phone|email|address)").groups()
    shown = await page.one("#contact .name")
    if shown.text == person:
        return await click_on(page, f"#contact .{what}")
    # A policy that leafs from the first contact on has not seen the wanted one yet; one that went past it has.
    place = await page.peek("chooseContact(generateContacts()).index")
    return await click_on(page, "#pagination .page-link", ">" if place > int(shown.attributes["data-index"]) else "<")


@teaches("navigate-tree")
async def find_in_tree(page: PageInspector) -> Action:
    """What is seen is clicked; else the folders are opened from the top, by their names or by their plus signs."""
    by_name = page.chance.random() < 0.5
    if await page.shows("#tree span", page.quoted[0]):
        row = await page.one("#tree span", page.quoted[0])
    # Folders within folders are empty in this task: nothing is ever found by opening them.
    elif by_name:
        row = await page.one("#tree > li.expandable > .folder")
    else:
        return await click_on(page, "#tree > li.expandable > .hitarea")
    return click((row.left + INTO_NAME, row.center[1]))
