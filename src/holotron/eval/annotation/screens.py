"""The screens of a run: each looked at once, kept as a picture and a line, and labelled by its page or by a model."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from holotron.episodes.datasets.pictures import SourcePictures
from holotron.episodes.images import ImageFolder, png_size
from holotron.episodes.line_log import LineLog
from holotron.eval.annotation.inputs import Item, read_item
from holotron.eval.annotation.pages import PageSource
from holotron.suites.screens.describe import Describer
from holotron.suites.screens.labels import ScreenElement, choose

SCREENS = "screens.jsonl"
_PLACES = (" right of ", " left of ", " below ", " above ", " in the row of ", "the first ", "the last ")


@dataclass(frozen=True)
class AnnotatedScreen:
    """A screen. elements: what its page says is on it; None where there was no page to ask."""

    name: str
    digest: str
    size: tuple[int, int]
    episode: str = ""
    step: int | None = None
    elements: tuple[ScreenElement, ...] | None = None


class ScreenLog:
    """screens.jsonl, as a context manager: what was looked at is not looked at again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SCREENS
        self.screens: dict[str, AnnotatedScreen] = {}
        self._images = ImageFolder(folder / "images")
        self._log = LineLog(self.path, sync=False)

    def __enter__(self) -> Self:
        for line in self._log.open():
            screen = _read(json.loads(line))
            self.screens[screen.name] = screen
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    async def look(
        self, item: Item, pictures: SourcePictures, pages: PageSource | None, again: bool
    ) -> AnnotatedScreen:
        """The screen of an item; again: the page of a stored step is opened to ask what is on it."""
        if item.name in self.screens:
            return self.screens[item.name]
        elements: tuple[ScreenElement, ...] | None = None
        if item.path is None:
            assert pages is not None
            png, elements = await pages.look(item.url)
        else:
            png = await asyncio.to_thread(read_item, item, pictures)
            if again and pages is not None and item.url.startswith(("http://", "https://")):
                elements = await pages.look_again(item.url, png, png_size(png))
        digest = await asyncio.to_thread(self._images.put, png, False)
        screen = AnnotatedScreen(item.name, digest, png_size(png), item.episode, item.step, elements)
        await asyncio.to_thread(self._append, screen)
        return screen

    def _append(self, screen: AnnotatedScreen) -> None:
        self._log.append(json.dumps(asdict(screen), ensure_ascii=False).encode(errors="replace") + b"\n")
        self.screens[screen.name] = screen


def _read(value: dict[str, Any]) -> AnnotatedScreen:
    found = value.pop("elements")
    elements = None if found is None else tuple(_element(each) for each in found)
    return AnnotatedScreen(**{**value, "size": (value["size"][0], value["size"][1])}, elements=elements)


def _element(value: dict[str, Any]) -> ScreenElement:
    spots = tuple((spot[0], spot[1]) for spot in value["spots"])
    return ScreenElement(**{**value, "states": tuple(value["states"]), "box": tuple(value["box"]), "spots": spots})


def told_apart(elements: Sequence[ScreenElement]) -> list[str]:
    """Each element in words that fit it alone, where there are such; else by its name and kind."""
    describer = Describer(elements)
    plain = (f'the "{each.name}" {each.kind}' if each.name else f"the {each.kind}" for each in elements)
    return [next(describer.descriptions(each), words) for each, words in zip(elements, plain, strict=True)]


def instructed(elements: Sequence[ScreenElement], digest: str, most: int) -> Iterator[tuple[ScreenElement, str, str]]:
    """Up to so many elements, the same for the same screen, with a basic and a spatial description that fit one alone.

    A description that there is none of is empty.
    """
    describer = Describer(elements)
    for element in choose(elements, random.Random(digest), most):
        ways = list(dict.fromkeys(describer.descriptions(element)))
        placed = [way for way in ways if any(place in f"{way} " for place in _PLACES)]
        basic = next((way for way in ways if way not in placed), "")
        yield element, basic, next(iter(placed), "")
