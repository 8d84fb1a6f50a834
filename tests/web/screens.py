"""Screenshots that look like pages: a shop with a sign-in and a shelf, and a board of cards."""

from __future__ import annotations

import io
from functools import cache

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1280, 800
INK, PALE, BLUE, GREEN = "#1f2430", "#8a93a5", "#2f5fe0", "#1d9a5b"


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)


def _page(site: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (WIDTH, HEIGHT), "#f3f5f9")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, WIDTH, 64), "#ffffff")
    draw.line((0, 64, WIDTH, 64), "#dfe3ea")
    draw.rounded_rectangle((32, 18, 60, 46), 8, BLUE)
    draw.text((74, 20), site, INK, _font(22))
    return image, draw


def _field(draw: ImageDraw.ImageDraw, y: int, name: str, value: str, focused: bool) -> None:
    draw.text((440, y - 28), name, PALE, _font(17))
    draw.rounded_rectangle((440, y, 840, y + 50), 8, "#ffffff", BLUE if focused else "#cdd3de", 2)
    draw.text((456, y + 13), value, INK, _font(20))


def _button(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], words: str) -> None:
    draw.rounded_rectangle(box, 8, BLUE)
    draw.text(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), words, "#ffffff", _font(20), anchor="mm")


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@cache
def login(user: str = "", password: str = "", focus: int = -1, error: str = "") -> bytes:
    image, draw = _page("Harbour Books")
    draw.rounded_rectangle((390, 140, 890, 660), 16, "#ffffff", "#dfe3ea")
    draw.text((440, 180), "Sign in", INK, _font(34))
    if error:
        draw.text((440, 236), error, "#c42b3a", _font(18))
    _field(draw, 310, "User name", user, focus == 0)
    _field(draw, 420, "Password", "*" * len(password), focus == 1)
    _button(draw, (440, 520, 840, 572), "Sign in")
    draw.text((440, 600), "Forgotten your password?", BLUE, _font(17))
    return _png(image)


@cache
def shelf(scrolled: int = 0) -> bytes:
    image, draw = _page("Harbour Books")
    titles = ("The Voyage Out", "Night and Day", "Kew Gardens", "Jacob's Room", "Mrs Dalloway", "Orlando", "The Waves")
    colours = ("#d98b5f", "#6f9bd1", "#7fb38a", "#c77f9e", "#a58bd0", "#d1b15f", "#5fb0b0")
    for index in range(8):
        number = (index + scrolled) % len(titles)
        x, y = 80 + index % 4 * 285, 110 + index // 4 * 345
        draw.rounded_rectangle((x, y, x + 255, y + 315), 12, "#ffffff", "#dfe3ea")
        draw.rounded_rectangle((x + 68, y + 22, x + 188, y + 190), 6, colours[number])
        draw.text((x + 22, y + 212), titles[number], INK, _font(20))
        draw.text((x + 22, y + 242), f"${8 + number * 3 // 2}.50", PALE, _font(17))
        draw.text((x + 22, y + 274), "Add to basket", BLUE, _font(17))
    return _png(image)


@cache
def board(done: bool) -> bytes:
    image, draw = _page("Planboard")
    for column, name in enumerate(("To do", "Doing", "Done")):
        x = 60 + column * 400
        draw.rounded_rectangle((x, 110, x + 360, 740), 14, "#e8ecf3")
        draw.text((x + 22, 130), name, INK, _font(22))
    cards = [
        (0, 0, "Write release notes"),
        (0, 1, "Renew certificate"),
        (1, 0, "Fix login redirect"),
        (2, 0, "Draw the logo"),
    ]
    cards.append((2, 1, "Ship 0.1") if done else (0, 2, "Ship 0.1"))
    for column, row, words in cards:
        x, y = 78 + column * 400, 180 + row * 112
        draw.rounded_rectangle((x, y, x + 324, y + 94), 10, "#ffffff", BLUE if words == "Ship 0.1" else "#d7dce6", 2)
        draw.text((x + 20, y + 18), words, INK, _font(20))
        draw.rounded_rectangle((x + 20, y + 56, x + 90, y + 78), 11, "#e0f4e8")
        draw.text((x + 55, y + 67), "web", GREEN, _font(14), anchor="mm")
    return _png(image)
