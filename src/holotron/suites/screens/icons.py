"""Small drawings whose meaning a person sees at once, as SVG."""

from __future__ import annotations

# On a grid of 24 by 24, drawn with a stroke.
ICONS = {
    "search": '<circle cx="10" cy="10" r="6"/><path d="M15 15l6 6"/>',
    "close": '<path d="M5 5l14 14M19 5L5 19"/>',
    "menu": '<path d="M3 6h18M3 12h18M3 18h18"/>',
    "home": '<path d="M3 12l9-8 9 8M6 10v10h12V10"/>',
    "star": '<path d="M12 3l2.7 6 6.3.6-4.8 4.3 1.4 6.4L12 17l-5.6 3.3 1.4-6.4L3 9.6 9.3 9z"/>',
    "heart": '<path d="M12 20C5 15 3 12 3 8.5a4.5 4.5 0 0 1 9-1 4.5 4.5 0 0 1 9 1C21 12 19 15 12 20z"/>',
    "trash": '<path d="M4 6h16M9 6V3h6v3M6 6l1 15h10l1-15M10 10v7M14 10v7"/>',
    "edit": '<path d="M4 20l1-5L16 4l4 4L9 19zM14 6l4 4"/>',
    "plus": '<path d="M12 4v16M4 12h16"/>',
    "minus": '<path d="M4 12h16"/>',
    "check": '<path d="M4 13l5 6L20 5"/>',
    "arrow left": '<path d="M21 12H4M11 5l-7 7 7 7"/>',
    "arrow right": '<path d="M3 12h17M13 5l7 7-7 7"/>',
    "arrow up": '<path d="M12 21V4M5 11l7-7 7 7"/>',
    "arrow down": '<path d="M12 3v17M5 13l7 7 7-7"/>',
    "user": '<circle cx="12" cy="8" r="4.5"/><path d="M3 21c1-5 5-6 9-6s8 1 9 6"/>',
    "mail": '<path d="M3 5h18v14H3zM3 6l9 7 9-7"/>',
    "bell": '<path d="M5 17h14c-2-2-2-4-2-7a5 5 0 0 0-10 0c0 3 0 5-2 7zM10 20h4"/>',
    "lock": '<path d="M5 11h14v10H5zM8 11V8a4 4 0 0 1 8 0v3"/>',
    "download": '<path d="M12 3v12M7 10l5 5 5-5M4 20h16"/>',
    "upload": '<path d="M12 16V4M7 9l5-5 5 5M4 20h16"/>',
    "play": '<path d="M6 4l14 8-14 8z"/>',
    "pause": '<path d="M8 4v16M16 4v16"/>',
    "calendar": '<path d="M4 6h16v15H4zM4 10h16M8 3v5M16 3v5"/>',
    "cart": '<path d="M2 4h3l3 11h10l3-8H6"/><circle cx="9" cy="19" r="1.5"/><circle cx="17" cy="19" r="1.5"/>',
    "share": '<path d="M18 6L6 12l12 6"/><circle cx="18" cy="5" r="2"/><circle cx="6" cy="12" r="2"/>'
    '<circle cx="18" cy="19" r="2"/>',
    "refresh": '<path d="M20 12a8 8 0 1 1-2.5-6M18 2v4h-4"/>',
    "info": '<circle cx="12" cy="12" r="9"/><path d="M12 11v6M12 7v1"/>',
    "more": '<circle cx="5" cy="12" r="1.5"/><circle cx="12" cy="12" r="1.5"/><circle cx="19" cy="12" r="1.5"/>',
    "folder": '<path d="M3 6h6l2 3h10v11H3z"/>',
    "camera": '<path d="M3 8h4l2-3h6l2 3h4v11H3z"/><circle cx="12" cy="13" r="3.5"/>',
    "phone": '<path d="M8 2h8v20H8zM11 19h2"/>',
    "settings": '<circle cx="12" cy="12" r="3.5"/>'
    '<path d="M12 2v4M12 18v4M2 12h4M18 12h4M5 5l3 3M16 16l3 3M19 5l-3 3M8 16l-3 3"/>',
    "clock": '<circle cx="12" cy="12" r="9"/><path d="M12 6v6l4 3"/>',
    "flag": '<path d="M6 21V4h12l-3 4 3 4H6"/>',
    "eye": '<path d="M2 12c4-7 16-7 20 0-4 7-16 7-20 0z"/><circle cx="12" cy="12" r="3"/>',
    "bookmark": '<path d="M6 3h12v18l-6-5-6 5z"/>',
    "filter": '<path d="M3 5h18l-7 8v7l-4-2v-5z"/>',
}
NAMES = tuple(ICONS)


def icon(name: str, *, named: bool = True, size: str = "1.2em", filled: bool = False) -> str:
    """The drawing; unnamed where the text beside it says what it means."""
    about = f'role="img" aria-label="{name}"' if named else 'aria-hidden="true"'
    fill = "currentColor" if filled else "none"
    return (
        f'<svg {about} viewBox="0 0 24 24" style="width:{size};height:{size};vertical-align:-0.2em" fill="{fill}" '
        f'stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">{ICONS[name]}</svg>'
    )
