"""Values an agent may type but never see: passwords, card numbers, keys."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, urlsplit

from PIL import Image, ImageDraw

from holotron.env.safety.policy import DEFAULT_PORTS, OriginPattern, plain_host

# How a secret is covered in a screenshot.
MARGIN = 2
COLOUR = (32, 32, 32)
MENTION = re.compile(r"\{\{secret:([\w.-]+)\}\}")


@dataclass(frozen=True, repr=False)
class Secret:
    """One value and the patterns of the origins it may be typed into."""

    value: str
    origins: Sequence[str]

    def __post_init__(self) -> None:
        if not self.value:
            raise ValueError("a secret must not be empty")
        if isinstance(self.origins, str) or not self.origins:
            raise ValueError(
                "a secret needs a list of the origins it may be typed into, such as ['https://example.com']"
            )
        for origin in self.origins:
            OriginPattern.parse(origin)

    def __repr__(self) -> str:
        return f"Secret(origins={list(self.origins)})"

    def may_enter(self, origin: str) -> bool:
        """Whether the value may be typed into a page of this origin, as browsers write it (`null` for none)."""
        parts = urlsplit(origin)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            return False
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        host = plain_host(parts.hostname)
        return any(OriginPattern.parse(pattern).matches(parts.scheme, host, port) for pattern in self.origins)


@dataclass(frozen=True)
class Login:
    """Who a browser is where a server asks by HTTP: a name, and the name of the secret that goes with it."""

    username: str
    secret: str


class Secrets:
    """Secrets by name. The agent writes `{{secret:NAME}}`; everything it gets to see goes through `redact`."""

    def __init__(self, secrets: Mapping[str, Secret] | None = None) -> None:
        self._secrets = dict(secrets or {})
        for name in self._secrets:
            if not MENTION.fullmatch("{{secret:" + name + "}}"):
                raise ValueError(f"{name!r} is no name for a secret; use letters, digits, '.', '_' and '-'")
        spellings = {spelling: name for name, secret in self._secrets.items() for spelling in _spellings(secret.value)}
        self._names = spellings
        longest_first = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __repr__(self) -> str:
        return f"Secrets({sorted(self._secrets)})"

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __contains__(self, name: str) -> bool:
        return name in self._secrets

    def __getitem__(self, name: str) -> Secret:
        return self._secrets[name]

    def introduction(self) -> Iterator[str]:
        """What an agent is told of each: its name and where it belongs, never the value."""
        for name, secret in self._secrets.items():
            mention = "{{secret:" + name + "}}"
            yield (
                f"there is a secret named {name!r}, which you never see: where it belongs, type {mention} and its value"
                f" is put in; only pages of {' and '.join(secret.origins)} get it"
            )

    def redact(self, text: str) -> str:
        """The text with every secret replaced by its mention, also where it is percent-, HTML- or JSON-encoded."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: "{{secret:" + self._names[found[0]] + "}}", text)


def split_mentions(text: str) -> Iterator[tuple[str, str | None]]:
    """The text as pieces: (text, None) to type as it is, ("", name) where a secret is mentioned."""
    end = 0
    for mention in MENTION.finditer(text):
        if mention.start() > end:
            yield text[end : mention.start()], None
        yield "", mention[1]
        end = mention.end()
    if end < len(text):
        yield text[end:], None


def paint_over(png: bytes, boxes: Sequence[Sequence[float]]) -> bytes:
    """The picture with these boxes (left, top, width, height) filled; the page itself is not touched."""
    if not boxes:
        return png
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw = ImageDraw.Draw(image)
    for left, top, width, height in boxes:
        if width > 0 and height > 0:
            draw.rectangle((left - MARGIN, top - MARGIN, left + width + MARGIN, top + height + MARGIN), fill=COLOUR)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _spellings(value: str) -> set[str]:
    return {
        value,
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        html.escape(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
    }
