"""The labels of one screen: elements, instructions at three levels, a caption."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from holotron.agent.chat import Message
from holotron.episodes.labels import Label, LabelKind, PixelBox, label_id
from holotron.eval.annotation import questions as q
from holotron.eval.annotation.asking import EXACT, Annotators, Standing
from holotron.eval.annotation.screens import AnnotatedScreen, instructed, told_apart
from holotron.suites.screens.labels import ScreenElement


def screen_label(
    screen: AnnotatedScreen,
    kind: LabelKind,
    text: str,
    found: Standing,
    *,
    level: str = "",
    element: str = "",
    box: PixelBox | None = None,
    origin: str = "",
) -> Label:
    """A label of a screen; a thought belongs to its step, everything else to the picture, wherever it comes from."""
    place = (screen.episode, screen.step) if kind == "thought" else ()
    return Label(
        id=label_id(screen.digest, kind, text, level, box, *place),
        kind=kind,
        text=text,
        state=found.state,
        screen=screen.digest,
        size=screen.size,
        episode=screen.episode,
        step=screen.step,
        level=level,
        element=element,
        box=box,
        sources=found.sources,
        reason=found.reason,
        origin=origin or screen.name,
    )


async def label_screen(
    annotators: Annotators, screen: AnnotatedScreen, png: bytes, kinds: Sequence[str], most: int, per_screen: int
) -> list[Label]:
    """most: elements that a model names; per_screen: how many of them there are instructions for."""
    labels: list[Label] = []
    if {"elements", "instructions"} & {*kinds}:
        exact = screen.elements is not None
        elements = screen.elements if screen.elements is not None else await _named(annotators, screen, png, most)
        usable = [each for each in elements if each.usable]
        words = [""] * len(usable) if exact else told_apart(usable)
        asked = (_element(annotators, screen, png, *each, exact) for each in zip(usable, words, strict=True))
        standings = await asyncio.gather(*asked)
        if "elements" in kinds:
            labels += [
                screen_label(screen, "element", each.name, found, element=each.kind, box=each.box)
                for each, found in zip(usable, standings, strict=True)
            ]
        if "instructions" in kinds:
            known = {id(each): found for each, found in zip(usable, standings, strict=True)}
            chosen = list(instructed(elements, screen.digest, per_screen))
            labels += await _instructions(annotators, screen, png, chosen, [known[id(each)] for each, _, _ in chosen])
    if "captions" in kinds:
        key = f"{screen.digest} caption"
        text = await annotators.ask(key, [Message("user", q.CAPTION, png)], q.read_words)
        if text is not None:
            found = await annotators.check(key, q.check_question("caption", png, text))
            labels.append(
                screen_label(screen, "caption", text, found._replace(sources=(annotators.said(key), *found.sources)))
            )
    return labels


async def _named(annotators: Annotators, screen: AnnotatedScreen, png: bytes, most: int) -> Sequence[ScreenElement]:
    """What the model says is on a screen that has no page."""
    read = partial(q.read_elements, size=screen.size, most=most)
    return await annotators.ask(f"{screen.digest} elements", q.elements_question(png, most), read) or ()


async def _element(
    annotators: Annotators, screen: AnnotatedScreen, png: bytes, element: ScreenElement, words: str, exact: bool
) -> Standing:
    """What a page says of its element is exact; a model's word for one is tried by asking where that is."""
    if exact:
        return EXACT
    found = await annotators.point(screen.digest, screen.size, png, words, element.box)
    return found._replace(sources=(annotators.said(f"{screen.digest} elements"), *found.sources))


async def _instructions(
    annotators: Annotators,
    screen: AnnotatedScreen,
    png: bytes,
    chosen: Sequence[tuple[ScreenElement, str, str]],
    standings: Sequence[Standing],
) -> list[Label]:
    """Basic ones stand and fall with their element. Others that a page does not vouch for need a point of their own."""
    if not chosen:
        return []
    exact, functions_key = screen.elements is not None, f"{screen.digest} functions"
    question = q.functions_question(png, [element for element, _, _ in chosen], screen.size)
    functions = await annotators.ask(functions_key, question, partial(q.read_functions, count=len(chosen))) or {}
    labels = []
    for place, ((element, basic, spatial), own) in enumerate(zip(chosen, standings, strict=True)):
        for level, text, key in (
            ("basic", basic, ""),
            ("spatial", spatial, "" if exact else f"{screen.digest} elements"),
            ("functional", functions.get(place, ""), functions_key),
        ):
            found = own
            if text and key:
                found = await annotators.point(screen.digest, screen.size, png, text, element.box)
                if own.state != "accepted" and found.state == "accepted":
                    found = found._replace(state="review", reason="the element itself is not certain")
                known = own.sources[:1] if exact else ()
                found = found._replace(sources=(*known, annotators.said(key), *found.sources))
            if text:
                about = screen_label(
                    screen, "instruction", text, found, level=level, element=element.kind, box=element.box
                )
                labels.append(about)
    return labels
