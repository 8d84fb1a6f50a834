"""Small drawings whose meaning a person sees at once, as SVG."""

from __future__ import annotations

from pathlib import Path

# A name and a drawing on each line: on a grid of 24 by 24, drawn with a stroke.
_LINES = Path(__file__).with_name("icons.txt").read_text().splitlines()
ICONS: dict[str, str] = dict(line.split(": ", 1) for line in _LINES)
NAMES = tuple(ICONS)


def icon(name: str, *, named: bool = True, size: str = "1.2em", filled: bool = False) -> str:
    """The drawing; unnamed where the text beside it says what it means."""
    about = f'role="img" aria-label="{name}"' if named else 'aria-hidden="true"'
    fill = "currentColor" if filled else "none"
    return (
        f'<svg {about} viewBox="0 0 24 24" style="width:{size};height:{size};vertical-align:-0.2em" fill="{fill}" '
        f'stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">{ICONS[name]}</svg>'
    )
