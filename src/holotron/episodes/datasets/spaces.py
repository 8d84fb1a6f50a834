"""The space in which a data set gives its points and boxes: said by the user, or found out where that is certain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from holotron.actions.action import ActionError
from holotron.actions.coordinates import SCALE, Space, SpaceKind
from holotron.agent.policy_format import FORMATS, find_format
from holotron.episodes.datasets.records import DatasetError

BoxForm = Literal["xywh", "xyxy"]
Box = tuple[float, float, float, float]
Size = tuple[int, int]
UNIT, THOUSAND, PIXELS, STATED = "0..1", "0..1000", "pixels", "stated"
SPACES = (UNIT, THOUSAND, PIXELS, STATED)
RESIZERS = tuple(name for name, kind in FORMATS.items() if kind.image_rule is not None)
SAID = f"{', '.join(SPACES)}, WIDTHxHEIGHT, or a format whose model resizes images ({', '.join(RESIZERS)})"


class OutsideImage(ActionError):
    """A point that is not in the picture."""


@dataclass(frozen=True)
class SourceSpace(Space):
    """A space that moves no point into the image. factor: what one of its numbers stands for."""

    factor: float = 1.0

    def to_relative(self, x: float, y: float) -> tuple[int, int]:
        right, bottom = (SCALE, SCALE) if self.kind == "relative" else (self.width, self.height)
        # The far edge belongs to the picture: rounding puts points there.
        if not (0 <= x * self.factor <= right and 0 <= y * self.factor <= bottom):
            raise OutsideImage(f"the point ({x:g}, {y:g}) is outside the picture")
        return super().to_relative(x * self.factor, y * self.factor)

    def on_image(self, x: float, y: float, size: Size) -> tuple[float, float]:
        """A point in pixels of the image that the space is on."""
        width, height = (SCALE, SCALE) if self.kind == "relative" else (self.width, self.height)
        return x * self.factor * size[0] / width, y * self.factor * size[1] / height


def check_space(spec: str) -> None:
    """DatasetError unless it names a space."""
    if spec not in (*SPACES, *RESIZERS) and _sides(spec) is None:
        raise DatasetError(f"there is no space {spec!r}; choose one of {SAID}")


def check_form(form: str | None) -> None:
    """DatasetError unless it names a form of boxes."""
    if form is not None and form not in get_args(BoxForm):
        raise DatasetError(f"boxes is {form!r}; choose one of {', '.join(get_args(BoxForm))}")


def space_of(spec: str, size: Size, stated: Size | None) -> SourceSpace:
    """The space on one image. stated: the size that its record gives."""
    if spec in (UNIT, THOUSAND):
        return SourceSpace("relative", *size, factor=SCALE if spec == UNIT else 1.0)
    rule = FORMATS[spec].image_rule if spec in FORMATS else None
    if rule is not None:
        return SourceSpace("pixels", *rule.resized(size))
    if spec == STATED and stated is None:
        raise OutsideImage("the record states no size of the picture its pixels are of")
    return SourceSpace("pixels", *(_sides(spec) or (stated if spec == STATED and stated else size)))


def space_of_format(name: str) -> str:
    """The space of points in the words of a policy format."""
    kind = type(find_format(name))
    return THOUSAND if kind.space == "relative" else kind.name if kind.image_rule else PIXELS


def stored_kind(spec: str) -> SpaceKind:
    return "relative" if spec in (UNIT, THOUSAND) else "pixels"


def _sides(spec: str) -> Size | None:
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", spec)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class SeenNumbers:
    """The numbers of one step: its points, or its box, on an image of this size."""

    size: Size
    stated: Size | None
    points: Sequence[tuple[float, float]]
    box: Box | None = None


def corners(box: Box, form: BoxForm) -> Box:
    """A box as left, top, right, bottom."""
    x, y, third, fourth = box
    return (x, y, x + third, y + fourth) if form == "xywh" else box


def find_space(
    seen: Sequence[SeenNumbers], space: str | None, form: BoxForm | None, most_bad: float
) -> tuple[str, BoxForm | None]:
    """The space of these points and the form of these boxes; DatasetError where both are not certain.

    A space is possible while no more than the share `most_bad` lies outside the picture in it. Points between 0 and 1
    with fractions are shares of the sides: as pixels they would all be in one corner.
    """
    known = [one for one in seen if one.points or one.box is not None]
    boxed = any(one.box is not None for one in known)
    if not known or (space is not None and (form is not None or not boxed)):
        return space or UNIT, form
    forms: list[BoxForm | None] = [form] if form is not None or not boxed else list(get_args(BoxForm))
    spaces = [space] if space is not None else _spaces(known, most_bad)
    bad = {
        (one, other): sum(not _fits(each, one, other) for each in known) / len(known)
        for one in spaces
        for other in forms
    }
    possible = [choice for choice, share in bad.items() if share <= most_bad]
    if not possible:
        raise DatasetError(_nowhere(bad, known))
    if len(possible) > 1 and not _same(possible, known):
        named = " or ".join(_named(*choice) for choice in possible)
        ways = [
            "--space" * (len({choice[0] for choice in possible}) > 1),
            "--boxes" * (len({choice[1] for choice in possible}) > 1),
        ]
        raise DatasetError(
            f"the points could be {named}, and the data does not tell; say {' and '.join(filter(None, ways))}"
        )
    return possible[0]


def _spaces(known: Sequence[SeenNumbers], most_bad: float) -> list[str]:
    numbers = [[*(value for point in one.points for value in point), *(one.box or ())] for one in known]
    small = [values for values in numbers if all(0 <= value <= 1 for value in values)]
    if 1 - len(small) / len(numbers) <= most_bad and any(value % 1 for values in small for value in values):
        return [UNIT]
    stated = any(one.stated not in (None, one.size) for one in known)
    return [PIXELS, THOUSAND, *([STATED] if stated else [])]


def _fits(one: SeenNumbers, spec: str, form: BoxForm | None) -> bool:
    try:
        space = space_of(spec, one.size, one.stated)
        for point in one.points:
            space.to_relative(*point)
        if one.box is not None:
            left, top, right, bottom = corners(one.box, form or "xyxy")
            space.to_relative(left, top)
            space.to_relative(right, bottom)
            return left <= right and top <= bottom
    except ValueError:
        return False
    return True


def _same(choices: Iterable[tuple[str, BoxForm | None]], known: Sequence[SeenNumbers]) -> bool:
    """Whether the choices make no difference, as pixels and thousandths on a picture of 1000 pixels."""
    (first, form), *others = choices
    if any(other != form for _, other in others):
        return False
    sides = {one.size for one in known}
    return all({first, spec} <= {PIXELS, THOUSAND} and sides == {(SCALE, SCALE)} for spec, _ in others)


def _named(spec: str, form: BoxForm | None) -> str:
    return spec if form is None else f"{spec} as {form}"


def _nowhere(bad: dict[tuple[str, BoxForm | None], float], known: Sequence[SeenNumbers]) -> str:
    shares = ", ".join(f"{_named(*choice)} {100 * share:.0f}%" for choice, share in bad.items())
    width, height = known[0].size
    return (
        f"too many points or boxes are outside their pictures in every space ({shares}; the first picture is "
        f"{width}×{height}); where they are pixels of a resized image, say --space with {SAID}"
    )
