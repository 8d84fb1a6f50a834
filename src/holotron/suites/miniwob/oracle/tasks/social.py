"""Timelines of posts whose buttons have to be clicked."""

from __future__ import annotations

from dataclasses import dataclass

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import bring_into_view, in_view, reach, reach_at_end
from holotron.suites.miniwob.page_inspector import NotFound, PageElement, PageInspector

USERS = ".media .username"
TWO_POSTS = 59  # percent of the screen's height: each view then begins with a whole post
TO_THE_END = 400  # percent, more than any timeline is long
MENU_ITEMS = {
    "Share via DM": "share",
    "Copy link to Tweet": "copy",
    "Embed Tweet": "embed",
    "Mute": "menu-user",
    "Block": "block-user",
    "Report": "report",
}


@dataclass(frozen=True)
class Toggle:
    """A button under a post, and whether it is to be clicked."""

    button: PageElement
    post: PageElement
    active: bool
    counts: bool


@teaches("social-media")
async def use_post(page: PageInspector) -> Action | None:
    user, name = page.said(r"user (@\S+),")[1], page.quoted[0]
    row = (await page.texts(USERS)).index(user)
    view, post = await page.one("#area"), (await page.all(".media"))[row]
    item = MENU_ITEMS.get(name)
    if item and (await _open_menus(page))[row]:
        return reach(view, (await page.all(f".media li.{item}"))[row], TWO_POSTS)
    if turn := bring_into_view(view, post, TWO_POSTS):
        return turn
    button = (await page.all(".media .more" if item else f".media .controls > .{name.lower()}"))[row]
    return click(button if button.point is not None else await _opener_of_open_menu(page))


@teaches("social-media-all")
async def use_all_posts(page: PageInspector) -> Action | None:
    wrong = [toggle for toggle in await _toggles(page) if toggle.active != toggle.counts]
    return await _next_toggle(page, wrong) or await _submit(page, TWO_POSTS)


@teaches("social-media-some")
async def use_some_posts(page: PageInspector) -> Action | None:
    wanted = int(page.said(r"on (\d+) posts? by")[1])
    toggles = await _toggles(page)
    view = await page.one("#area")
    chosen = sum(toggle.active for toggle in toggles if toggle.counts)
    if chosen >= wanted:
        surplus = [toggle for toggle in toggles if toggle.active and (not toggle.counts or chosen > wanted)]
        return await _next_toggle(page, surplus) or await _submit(page, TO_THE_END)
    mistaken = [toggle for toggle in toggles if toggle.active and not toggle.counts and in_view(view, toggle.post)]
    missing = [toggle for toggle in toggles if toggle.counts and not toggle.active]
    return await _next_toggle(page, mistaken) or await _next_toggle(page, missing)


async def _next_toggle(page: PageInspector, wrong: list[Toggle]) -> Action | None:
    """Click the first one: of those in view, else below, else above."""
    view = await page.one("#area")
    for toggle in wrong:
        if in_view(view, toggle.post):
            return click(toggle.button)
    below = [toggle for toggle in wrong if toggle.post.top > view.top]
    if below:
        return bring_into_view(view, below[0].post, TWO_POSTS)
    return bring_into_view(view, wrong[-1].post, TWO_POSTS) if wrong else None


async def _submit(page: PageInspector, step: int) -> Action:
    return reach_at_end(await page.one("#area"), await page.one("#submitRow button"), step)


async def _toggles(page: PageInspector) -> list[Toggle]:
    user = page.said(r"by (@\S+) and")[1]
    kind, users, posts = page.quoted[0].lower(), await page.texts(USERS), await page.all(".media")
    toggles = []
    for index, button in enumerate(await page.all(".media .controls > span")):
        classes = button.attributes["class"].split()
        post = index // 4
        toggles.append(Toggle(button, posts[post], "active" in classes, users[post] == user and kind in classes))
    return toggles


async def _open_menus(page: PageInspector) -> list[bool]:
    """For each post, whether its menu is open."""
    return ["hide" not in menu.attributes["class"].split() for menu in await page.all(".media ul")]


async def _opener_of_open_menu(page: PageInspector) -> PageElement:
    for is_open, opener in zip(await _open_menus(page), await page.all(".media .more"), strict=True):
        if is_open:
            return opener
    raise NotFound("something other than a menu covers the button")
