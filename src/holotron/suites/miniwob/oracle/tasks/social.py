"""Timelines of posts whose buttons have to be clicked."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, scroll
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.into_view import bring_into_view, in_view
from holotron.suites.miniwob.page_inspector import NotFound, PageElement, PageInspector

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

    @property
    def wrong(self) -> bool:
        return self.active != self.counts


@teaches("social-media")
async def use_post(eyes: PageInspector, chance: random.Random) -> Action | None:
    user, name = eyes.said(r"user (@\S+),")[1], eyes.quoted[0]
    row = (await _users(eyes)).index(user)
    view, post = await eyes.one("#area"), (await eyes.all(".media"))[row]
    item = MENU_ITEMS.get(name)
    if item and await _menu_is_open(eyes, row):
        target = (await eyes.all(f".media li.{item}"))[row]
        return bring_into_view(view, target, TWO_POSTS) or click(target)
    if turn := bring_into_view(view, post, TWO_POSTS):
        return turn
    button = (await eyes.all(".media .more" if item else f".media .controls > .{name.lower()}"))[row]
    return click(button if _is_free(button) else await _opener_of_open_menu(eyes))


@teaches("social-media-all")
async def use_all_posts(eyes: PageInspector, chance: random.Random) -> Action | None:
    toggles = await _toggles(eyes, eyes.said(r"by (@\S+) and")[1])
    return await _next_toggle(eyes, toggles) or await _submit(eyes, TWO_POSTS)


@teaches("social-media-some")
async def use_some_posts(eyes: PageInspector, chance: random.Random) -> Action | None:
    wanted = int(eyes.said(r"on (\d+) posts? by")[1])
    toggles = await _toggles(eyes, eyes.said(r"by (@\S+) and")[1])
    view = await eyes.one("#area")
    chosen = sum(toggle.active for toggle in toggles if toggle.counts)
    if chosen >= wanted:
        surplus = [toggle for toggle in toggles if toggle.active and (not toggle.counts or chosen > wanted)]
        return await _next_toggle(eyes, surplus, any_state=True) or await _submit(eyes, TO_THE_END)
    mistaken = [toggle for toggle in toggles if not toggle.counts and in_view(view, toggle.post)]
    missing = [toggle for toggle in toggles if toggle.counts]
    return await _next_toggle(eyes, mistaken) or await _next_toggle(eyes, missing)


async def _next_toggle(eyes: PageInspector, toggles: list[Toggle], any_state: bool = False) -> Action | None:
    """Click the first one that is wrong: of those in view, else below, else above."""
    wrong = [toggle for toggle in toggles if any_state or toggle.wrong]
    view = await eyes.one("#area")
    for toggle in wrong:
        if in_view(view, toggle.post):
            return click(toggle.button)
    below = [toggle for toggle in wrong if toggle.post.top > view.top]
    if below:
        return bring_into_view(view, below[0].post, TWO_POSTS)
    return bring_into_view(view, wrong[-1].post, TWO_POSTS) if wrong else None


async def _submit(eyes: PageInspector, step: int) -> Action:
    view, button = await eyes.one("#area"), await eyes.one("#submitRow button")
    return click(button) if in_view(view, button) else scroll(view.point or view.center, True, step)


async def _toggles(eyes: PageInspector, user: str) -> list[Toggle]:
    kind, users, posts = eyes.quoted[0].lower(), await _users(eyes), await eyes.all(".media")
    toggles = []
    for index, button in enumerate(await eyes.all(".media .controls > span")):
        classes = button.attributes["class"].split()
        post = index // 4
        toggles.append(Toggle(button, posts[post], "active" in classes, users[post] == user and kind in classes))
    return toggles


async def _users(eyes: PageInspector) -> list[str]:
    users: list[str] = await eyes.read(
        "[...document.querySelectorAll('.media .username')].map(user => user.textContent)"
    )
    return users


async def _menu_is_open(eyes: PageInspector, row: int) -> bool:
    return "hide" not in (await eyes.all(".media ul"))[row].attributes["class"].split()


async def _opener_of_open_menu(eyes: PageInspector) -> PageElement:
    for menu, opener in zip(await eyes.all(".media ul"), await eyes.all(".media .more"), strict=True):
        if "hide" not in menu.attributes["class"].split():
            return opener
    raise NotFound("something other than a menu covers the button")


def _is_free(button: PageElement) -> bool:
    return button.point is not None
