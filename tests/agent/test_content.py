"""Small screens without their margins: what is cut out, and that points meet the same pixels."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw

from holotron.actions.action import Click, Drag, Press, Scroll
from holotron.actions.coordinates import Space
from holotron.agent.formats.content import LARGEST, SHAPE, find_content
from holotron.agent.policy_format import NANO, JsonFormat
from holotron.env.placement import Placement

BAR = (255, 238, 85)


def widget() -> Image.Image:
    """A task as it is taught: a bar at the top, a button, ground below."""
    image = Image.new("RGB", SHAPE, (255, 255, 255))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 159, 49), fill=BAR)
    draw.rectangle((20, 90, 60, 110), fill=(10, 20, 30))
    return image


def png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG", compress_level=1)
    return written.getvalue()


@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (90, 140, 200)])
@pytest.mark.parametrize(("left", "top"), [(0, 0), (60, 0), (0, 70), (60, 70), (140, 190)])
def test_margins_are_cut_off_wherever_the_screen_stands(colour: tuple[int, int, int], left: int, top: int) -> None:
    canvas = Placement((300, 400), left, top, colour=colour).place(widget())
    content = find_content(png(canvas))
    assert content is not None
    assert (content.part.left, content.part.top, content.part.size) == (-left, -top, SHAPE)
    assert content.part.place_png(png(canvas)) == png(widget())


def test_what_has_no_margins_is_shown_whole() -> None:
    filled = Image.effect_noise((200, 200), 80).convert("RGB")
    page = Placement((LARGEST + 1, 480), 50, 50).place(widget())
    blank = Image.new("RGB", (300, 300), (9, 9, 9))
    for whole in (widget(), filled, page, blank):
        assert find_content(png(whole)) is None
        assert NANO.shown(png(whole)) == png(whole)
    assert find_content(None) is None
    assert NANO.shown(None) is None


def test_points_meet_the_same_pixels_there_and_back() -> None:
    placement = Placement((457, 391), 133, 87)
    canvas = png(placement.place(widget()))
    content = find_content(canvas)
    assert content is not None
    here, there = Space("pixels", *SHAPE), Space("pixels", 457, 391)
    for x in range(160):
        for y in range(0, 210, 7):
            seen = Click(x=here.to_relative(x, y)[0], y=here.to_relative(x, y)[1])
            done = content.to_screen(seen)
            assert there.from_relative(done.x, done.y) == (x + 133, y + 87)
            again = content.from_screen(done)
            assert here.from_relative(again.x, again.y) == (x, y)
    down = content.to_screen(Scroll(direction="down", amount=33))
    assert down == Scroll(direction="down", amount=33 * 210 // 391)
    assert content.from_screen(down) == Scroll(direction="down", amount=32)
    moved = content.to_screen(Drag(x=500, y=500, to_x=0, to_y=0))
    assert moved == Drag(x=466, y=491, to_x=291, to_y=223)
    assert content.to_screen(Press(keys="Enter")) == Press(keys="Enter")


@pytest.mark.parametrize("zoom", [0.8, 1.25, 2.0])
def test_a_zoomed_screen_is_shown_at_the_size_taught(zoom: float) -> None:
    placement = Placement((480, 460), 91, 33, zoom)
    content = find_content(png(placement.place(widget())))
    assert content is not None
    assert content.part.size == SHAPE
    shown = Image.open(io.BytesIO(content.part.place_png(png(placement.place(widget()))))).convert("RGB")
    for point in ((40, 100), (5, 5), (100, 150)):  # button, bar, ground
        assert shown.getpixel(point) == widget().getpixel(point)
    pixel = Space("pixels", 480, 460)
    for x, y in ((40, 100), (2, 2), (157, 207), (80, 30)):
        across, down = Space("pixels", *SHAPE).to_relative(x, y)
        done = content.to_screen(Click(x=across, y=down))
        found = placement.back(*pixel.from_relative(done.x, done.y), SHAPE)
        assert found is not None
        assert max(abs(found[0] - x), abs(found[1] - y)) <= 1


def test_a_part_of_another_shape_is_not_cut_out() -> None:
    """Where it can only be guessed what is margin, all is shown: of two halves none is."""
    tall = Placement((160, 400)).place(widget())
    tall.paste((1, 2, 3), (0, 380, 160, 400))
    wide = widget().resize((500, 656))
    halves = Placement((240, 240), 0, 0, colour=(255, 0, 0)).place(Image.new("RGB", (120, 240), (0, 0, 255)))
    for screen in (tall, wide):
        assert find_content(png(Placement((560, 640), 30, 20, colour=(70, 80, 90)).place(screen))) is None
    assert find_content(png(halves)) is None


def test_only_small_policies_are_shown_a_part() -> None:
    canvas = png(Placement((300, 400), 60, 70).place(widget()))
    [message] = NANO.messages("go", [], None, canvas)  # type: ignore[arg-type]
    assert message.image is not None
    assert Image.open(io.BytesIO(message.image)).size == SHAPE
    asked = JsonFormat()
    assert asked.shown(canvas) == canvas
    assert asked.to_screen(Click(x=1, y=2), canvas) == Click(x=1, y=2)
