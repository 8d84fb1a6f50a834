"""What styles of pages and themes of screens are drawn from: fonts, and where labels stand."""

from __future__ import annotations

from typing import Literal

# The first is drawn twice as often.
FONTS = (
    "Liberation Sans", "Liberation Sans", "DejaVu Sans", "Liberation Serif", "DejaVu Serif", "Liberation Mono",
    "DejaVu Sans Mono",
)  # fmt: skip
SCREEN_FONTS = (*FONTS, "Liberation Sans Narrow", "DejaVu Sans Condensed")
WIDGET_FONTS = (*FONTS[:1] * 3, "DejaVu Sans", "Liberation Serif", "Liberation Mono")
# Where the label of a field stands.
LabelPlace = Literal["above", "left", "inside"]
LABEL_PLACES: tuple[LabelPlace, ...] = ("above", "above", "left", "inside")
