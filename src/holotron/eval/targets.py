"""What a grounding item asks for, as shares of the picture's sides, and whether an answer meets it."""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[float, float]
Shares = tuple[float, float, float, float]


@dataclass(frozen=True)
class BoxTarget:
    """edges: whether they belong to the box."""

    box: Shares
    edges: bool = True

    def met(self, point: Point) -> bool:
        left, top, right, bottom = self.box
        if self.edges:
            return left <= point[0] <= right and top <= point[1] <= bottom
        return left < point[0] < right and top < point[1] < bottom


@dataclass(frozen=True)
class PolygonTarget:
    """A polygon by ray casting: inside is a point from which a ray crosses an odd number of sides."""

    corners: tuple[Point, ...]

    def met(self, point: Point) -> bool:
        (x, y), inside = point, False
        for (ax, ay), (bx, by) in zip(self.corners, (*self.corners[1:], self.corners[0]), strict=True):
            if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
                inside = not inside
        return inside

    @property
    def box(self) -> Shares:
        xs, ys = zip(*self.corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)


@dataclass(frozen=True)
class RefusalTarget:
    """What is asked for is not there: right is a point whose two coordinates are negative."""

    def met(self, point: Point) -> bool:
        return point[0] < 0 and point[1] < 0


Target = BoxTarget | PolygonTarget | RefusalTarget
