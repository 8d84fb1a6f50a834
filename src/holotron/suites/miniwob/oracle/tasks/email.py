"""Inboxes in which one mail has to be found and answered, forwarded, deleted or starred."""

from __future__ import annotations

from typing import NamedTuple

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, click_on, fill_in
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import bring_into_view, reach
from holotron.suites.miniwob.page_inspector import PageInspector

# The instruction says the same in a hundred ways; the page keeps it, once, with the mails' click handlers.
ORDER = (
    "(found => [found.action, found.email.name, found.reply ?? found.forward ?? ''])"
    "($._data(document.querySelector('#main .email-thread'), 'events').click[0].data.expectedDetails)"
)


class Order(NamedTuple):
    """What to do with the mail of whom; `text` is the answer, or to whom it is forwarded."""

    action: str
    sender: str
    text: str


@teaches(
    *("email-inbox", "email-inbox-noscroll", "email-inbox-nl-turk", "email-inbox-delete", "email-inbox-important"),
    *("email-inbox-forward", "email-inbox-forward-nl", "email-inbox-forward-nl-turk"),
    *("email-inbox-reply", "email-inbox-star-reply"),
)
async def handle_mail(page: PageInspector) -> Action | None:
    order = Order(*await page.read(ORDER))
    if await page.all("#reply"):
        return await _in_reply(page, order)
    if await page.all("#forward"):
        return await _in_forward(page, order)
    if await page.all("#email"):
        return await _in_mail(page, order)
    if await page.shows("#search-cancel"):
        return await _in_search(page, order)
    return await _in_inbox(page, order)


async def _in_inbox(page: PageInspector, order: Order) -> Action:
    row = (await _senders(page, "#main")).index(order.sender)
    thread = (await page.all("#main .email-thread"))[row]
    if turn := bring_into_view(await page.one("#main"), thread):
        return turn
    icons = {"delete": "#main .trash", "important": "#main .star"}
    return click((await page.all(icons.get(order.action, "#main .email-thread .email-left")))[row])


async def _in_mail(page: PageInspector, order: Order) -> Action:
    if await _sender_of_open(page) != order.sender:
        return await click_on(page, "#close-email")
    buttons = {"delete": ".trash", "important": ".star", "reply": ".email-reply", "forward": ".email-forward"}
    return reach(await page.one("#email"), await page.one(f"#email {buttons[order.action]}"))


async def _in_reply(page: PageInspector, order: Order) -> Action:
    if order.action != "reply" or await _sender_of_open(page) != order.sender:
        return await click_on(page, "#close-reply")
    return await fill_in(page, ("#reply-text", order.text), then="#send-reply")


async def _in_forward(page: PageInspector, order: Order) -> Action:
    right = order.action == "forward" and await _sender_of_open(page) == order.sender
    if not right or (await page.one("#forward-text")).value != (await page.texts("#email .email-body"))[0]:
        return await click_on(page, "#close-forward")
    return await fill_in(page, (".forward-sender", order.text), then="#send-forward")


async def _in_search(page: PageInspector, order: Order) -> Action:
    senders = await _senders(page, "#search")
    if order.sender not in senders:
        return await click_on(page, "#search-cancel")
    return click((await page.all("#search .email-thread .email-left"))[senders.index(order.sender)])


async def _senders(page: PageInspector, box: str) -> list[str]:
    return await page.texts(f"{box} .email-thread .email-sender")


async def _sender_of_open(page: PageInspector) -> str:
    return (await page.texts("#email .email-sender"))[0]
