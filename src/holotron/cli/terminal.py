"""Text that pages, models and files wrote, made safe to print: a terminal obeys control characters."""

from __future__ import annotations

import re

# Control characters except tab and newline, what turns the direction of text, and halves of surrogate pairs.
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with every character that a terminal would obey written out, as `\\u001b`; JSON stays JSON."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
