"""Where a page shows secrets: every text that is laid out, whatever tree it belongs to and however it is cut up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from playwright.async_api import CDPSession, Error

from holotron.env.browser.tabs import LiveTab
from holotron.env.safety.secrets import Secrets

Box = tuple[float, float, float, float]


async def secret_boxes(tab: LiveTab, secrets: Secrets) -> list[Box]:
    """Boxes (left, top, width, height), in pixels of the viewport, around everything that shows a secret.

    Texts are joined in the order in which they are laid out, so that one cut into pieces is found. Shadow trees, also
    closed ones, and texts of style sheets are among them; pictures and canvases are not.
    """
    corners: dict[CDPSession, dict[str, tuple[float, float]]] = {tab.session: {tab.frame_id: (0.0, 0.0)}}
    for frame in await tab.frames.boxes():
        corners.setdefault(frame.world.session, {})[frame.world.frame_id] = (frame.left, frame.top)
    boxes = []
    for session, frames in corners.items():
        try:
            snapshot = await session.send("DOMSnapshot.captureSnapshot", {"computedStyles": []})
        except Error:
            if session is tab.session:
                raise
            continue  # the frame is going, and so is what it shows
        for document in snapshot["documents"]:
            corner = frames.get(_string(snapshot, document["frameId"]))
            if corner is not None:
                left, top = corner[0] - document["scrollOffsetX"], corner[1] - document["scrollOffsetY"]
                found = [*_texts(snapshot, document, secrets), *_fields(snapshot, document, secrets)]
                boxes += [(x + left, y + top, width, height) for x, y, width, height in found]
    return boxes


def _texts(snapshot: dict[str, Any], document: dict[str, Any], secrets: Secrets) -> Iterator[Box]:
    """The boxes of texts: one for each line of each piece."""
    shown, texts = document["textBoxes"], document["layout"]["text"]
    pieces = []
    for layout, start, length in zip(shown["layoutIndex"], shown["start"], shown["length"], strict=True):
        # Positions count units of UTF-16.
        units = _string(snapshot, texts[layout]).encode("utf-16-le", "surrogatepass")[2 * start : 2 * (start + length)]
        pieces.append("".join(units.decode("utf-16-le", "replace").split()))
    ends = list(accumulate(map(len, pieces)))
    for first, last in secrets.places("".join(pieces)):
        for piece, end, box in zip(pieces, ends, shown["bounds"], strict=True):
            if end > first and end - len(piece) < last:
                yield tuple(box)


def _fields(snapshot: dict[str, Any], document: dict[str, Any], secrets: Secrets) -> Iterator[Box]:
    """The boxes of fields and lists, whose texts are laid out in trees of the browser's own."""
    nodes, layout = document["nodes"], document["layout"]
    names = [_string(snapshot, name) for name in nodes["nodeName"]]
    texts: dict[int, list[str]] = {}
    for kind in ("inputValue", "textValue"):
        for node, value in zip(nodes[kind]["index"], nodes[kind]["value"], strict=True):
            texts.setdefault(node, []).append(_string(snapshot, value))
    for node, name in enumerate(names):
        given = nodes["attributes"][node]
        attributes = {
            _string(snapshot, key): _string(snapshot, value) for key, value in zip(given[::2], given[1::2], strict=True)
        }
        if name in ("INPUT", "TEXTAREA"):
            if attributes.get("type", "").lower() == "password":
                texts.pop(node, None)
            texts.setdefault(node, []).append(attributes.get("placeholder", ""))
        elif name == "#text" and (place := _inside(nodes["parentIndex"], names, node, "SELECT")) is not None:
            texts.setdefault(place, []).append(_string(snapshot, nodes["nodeValue"][node]))
    rows = {node: row for row, node in enumerate(layout["nodeIndex"])}
    for node, shown in texts.items():
        if node in rows and any(secrets.places("".join(text.split())) for text in (*shown, "".join(shown))):
            yield tuple(layout["bounds"][rows[node]])


def _inside(parents: list[int], names: list[str], node: int, wanted: str) -> int | None:
    """The nearest element of this name around a node, up to a few levels."""
    for _ in range(4):
        node = parents[node]
        if node < 0 or names[node] == wanted:
            return node if node >= 0 else None
    return None


def _string(snapshot: dict[str, Any], index: int) -> str:
    return str(snapshot["strings"][index]) if index >= 0 else ""
