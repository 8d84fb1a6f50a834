"""The page itself: its files, the rules a browser holds it to, and the same in one piece for reports."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
INDEX, STYLE, ICON = "index.html", "viewer.css", "icon.svg"
# In this order they make one script: each uses only those before it.
SCRIPTS = (
    "dom.js",
    "format.js",
    "filter.js",
    "source.js",
    "marks.js",
    "list.js",
    "training.js",
    "step.js",
    "episode.js",
    "app.js",
)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
GENERATOR = '<meta name="generator" content="holotron view">'

# Episodes hold what strange pages and models wrote. The page only ever sets texts; should it fail to, the browser
# still runs nothing that did not come with the page, asks no other server for anything, and parses no text as HTML.
_ALWAYS = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_POLICY = (
    f"{_ALWAYS}; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'"
)
NOTHING_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"


def standalone(title: str, blocks: str) -> str:
    """The page with everything inside, for file:// where neither modules nor fetch work.

    `blocks` are script elements with data. They are not run, so the policy need not know them.
    """
    style, script = _text(STYLE), joined_scripts()
    policy = inline_policy(script, style)
    icon = base64.b64encode((STATIC / ICON).read_bytes()).decode()
    page = _text(INDEX)
    head = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n{GENERATOR}'
    for before, after in (
        ('<meta charset="utf-8">', head),
        ("<title>[^<]*</title>", f"<title>{html.escape(title)}</title>"),
        ('<link rel="icon"[^>]*>', f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'),
        ('<link rel="stylesheet"[^>]*>', f"<style>{style}</style>"),
        ("<script [^>]*></script>\n", ""),
        ("</body>", f'{blocks}\n<script type="module">{script}</script>\n</body>'),
    ):
        (found,) = re.finditer(before, page)
        page = page[: found.start()] + after + page[found.end() :]
    return page


def inline_policy(script: str, style: str) -> str:
    """The rules for a page that has this script and this style inside, and nothing else."""
    return f"{_ALWAYS}; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src 'self' file: data:"


@cache
def joined_scripts(names: tuple[str, ...] = SCRIPTS) -> str:
    """The modules as one: their imports left out, and nothing exported."""
    parts = []
    for name in names:
        text = re.sub(r"^import .*;\n", "", (STATIC / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE))
    script = "\n".join(parts)
    assert "</script" not in script
    return script


def data_block(block_id: str, text: str, kind: str = "application/json") -> str:
    """A script element that holds JSON and cannot be left by anything in it."""
    return f'<script type="{kind}" id="{block_id}">' + text.replace("<", "\\u003c") + "</script>"


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
