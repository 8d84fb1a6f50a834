"""Inboxes in which one mail has to be found and answered, forwarded, deleted or starred."""

from __future__ import annotations

import random
from typing import NamedTuple

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, fill
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.into_view import bring_into_view
from holotron.suites.miniwob.page_inspector import PageInspector

# The instruction says the same in a hundred ways; the page keeps it, once, with the mails' click handlers.
ORDER = (
    "(found => [found.action, found.email.name, found.reply ?? found.forward ?? ''])"
    "($._data(document.querySelector('#main .email-thread'), 'events').click[0].data.expectedDetails)"
)
SENDERS = "[...document.querySelectorAll('{list} .email-thread .email-sender')].map(sender => sender.textContent)"
BODY_OF_OPEN = "document.querySelector('#email .email-body').textContent"


class Order(NamedTuple):
    """What to do with the mail of whom; `text` is the answer, or to whom it is forwarded."""

    action: str
    sender: str
    text: str


@teaches(
    "email-inbox",
    "email-inbox-delete",
    "email-inbox-forward",
    "email-inbox-forward-nl",
    "email-inbox-forward-nl-turk",
    "email-inbox-important",
    "email-inbox-nl-turk",
    "email-inbox-noscroll",
    "email-inbox-reply",
    "email-inbox-star-reply",
)
async def handle_mail(eyes: PageInspector, chance: random.Random) -> Action | None:
    order = Order(*await eyes.read(ORDER))
    if await eyes.all("#reply"):
        return await _in_reply(eyes, order)
    if await eyes.all("#forward"):
        return await _in_forward(eyes, order)
    if await eyes.all("#email"):
        return await _in_mail(eyes, order)
    if await eyes.shows("#search-cancel"):
        return await _in_search(eyes, order)
    return await _in_inbox(eyes, order)


async def _in_inbox(eyes: PageInspector, order: Order) -> Action:
    row = await _row_of(eyes, "#main", order.sender)
    view = await eyes.one("#main")
    thread = (await eyes.all("#main .email-thread"))[row]
    if turn := bring_into_view(view, thread):
        return turn
    icons = {"delete": "#main .trash", "important": "#main .star"}
    return click((await eyes.all(icons.get(order.action, "#main .email-thread .email-left")))[row])


async def _in_mail(eyes: PageInspector, order: Order) -> Action:
    if await _sender_of_open(eyes) != order.sender:
        return click(await eyes.one("#close-email"))
    buttons = {"delete": ".trash", "important": ".star", "reply": ".email-reply", "forward": ".email-forward"}
    button = await eyes.one(f"#email {buttons[order.action]}")
    return bring_into_view(await eyes.one("#email"), button) or click(button)


async def _in_reply(eyes: PageInspector, order: Order) -> Action:
    if order.action != "reply" or await _sender_of_open(eyes) != order.sender:
        return click(await eyes.one("#close-reply"))
    return fill(await eyes.one("#reply-text"), order.text) or click(await eyes.one("#send-reply"))


async def _in_forward(eyes: PageInspector, order: Order) -> Action:
    text = await eyes.one("#forward-text")
    right = order.action == "forward" and await _sender_of_open(eyes) == order.sender
    if not right or text.value != await eyes.read(BODY_OF_OPEN):
        return click(await eyes.one("#close-forward"))
    return fill(await eyes.one(".forward-sender"), order.text) or click(await eyes.one("#send-forward"))


async def _in_search(eyes: PageInspector, order: Order) -> Action:
    if order.sender not in await eyes.read(SENDERS.format(list="#search")):
        return click(await eyes.one("#search-cancel"))
    row = await _row_of(eyes, "#search", order.sender)
    return click((await eyes.all("#search .email-thread .email-left"))[row])


async def _row_of(eyes: PageInspector, box: str, sender: str) -> int:
    senders: list[str] = await eyes.read(SENDERS.format(list=box))
    return senders.index(sender)


async def _sender_of_open(eyes: PageInspector) -> str:
    sender: str = await eyes.read("document.querySelector('#email .email-sender').textContent")
    return sender
