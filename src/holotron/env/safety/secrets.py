"""Values an agent may type but never see: passwords, card numbers, keys."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from PIL import Image, ImageDraw

from holotron.env.safety.policy import DEFAULT_PORTS, OriginPattern, plain_host
from holotron.env.safety.spellings import spellings

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
        # Longest first: one secret may be part of another.
        self._names = sorted(self._secrets, key=lambda name: len(self._secrets[name].value), reverse=True)
        self._pattern = self._compiled(lambda value: value, 0)
        self._on_screen = self._compiled(lambda value: "".join(value.split()) or value, re.IGNORECASE)

    def _compiled(self, change: Callable[[str], str], flags: int) -> re.Pattern[str] | None:
        texts = [spellings(change(self._secrets[name].value)) for name in self._names]
        return re.compile("|".join(f"(?P<s{at}>{text})" for at, text in enumerate(texts)), flags) if texts else None

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
        """The text with every secret replaced by its mention, in all of its `spellings`."""
        if self._pattern is None:
            return text
        return self._pattern.sub(
            lambda found: "{{secret:" + self._names[int((found.lastgroup or "s0")[1:])] + "}}", text
        )

    def places(self, text: str) -> list[tuple[int, int]]:
        """Where a text that is shown without its blanks has secrets: styles change case and blanks."""
        return [] if self._on_screen is None else [found.span() for found in self._on_screen.finditer(text)]


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
