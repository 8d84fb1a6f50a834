"""Pages that stand between an agent and a site, by their title, address and words: a CAPTCHA, or a block."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

BARRIERS = ("captcha", "blocked")
# Titles are matched whole, or at the beginning.
_CAPTCHA_TITLE = re.compile(
    r"just a moment|attention required! \| cloudflare|robot check|are you a (robot|human)|bot (check|verification)"
    r"|(please )?verify (that )?(you are|you're) (a )?human|human verification|security (check|verification)"
    r"|(re|h)?captcha( |$)|checking your browser",
    re.IGNORECASE,
)
_BLOCKED_TITLE = re.compile(
    r"access (to this page has been )?denied|(error )?(403|429|451)\b|forbidden$|request (blocked|rejected)"
    r"|too many requests|(you have been|you've been|sorry, you have been) blocked|access to .* (is|was) denied$",
    re.IGNORECASE,
)
_CAPTCHA_PATH = re.compile(r"/sorry/index|/cdn-cgi/challenge|/captcha|/errors/validatecaptcha", re.IGNORECASE)
# Words are looked for on pages with few of them: an article about CAPTCHAs is none.
FEW_LETTERS = 1500
_CAPTCHA_WORDS = re.compile(
    r"(verify|confirm)(ing)? (that )?you('re| are) (a |not a )?(human|robot|bot)|not a robot|press (&|and) hold to"
    r"|unusual traffic from your|(enter|type) the characters you see|complete the (captcha|security check)"
    r"|needs to review the security of your connection|checking (if the site connection is secure|your browser before)"
    r"|solve (this|the) (captcha|puzzle)",
    re.IGNORECASE,
)
_BLOCKED_WORDS = re.compile(
    r"you (have been|were|are) blocked|you don't have permission to access|unable to access this (site|website|page)"
    r"|your (ip|request|access)( address)? (has been|was|is) (blocked|denied|restricted|rejected)|access denied"
    r"|too many requests|not available in your (country|region)",
    re.IGNORECASE,
)
_MARK = "the last page keeps the agent out"
_MARKED = re.compile(rf"{_MARK} \((captcha|blocked)\)")


def barrier_by_place(title: str, url: str) -> str:
    """ "captcha", "blocked", or "" for any other page."""
    parts, title = urlsplit(url), title.strip()
    if _CAPTCHA_TITLE.match(title) or _CAPTCHA_PATH.search(parts.path):
        return "captcha"
    return "blocked" if _BLOCKED_TITLE.match(title) or parts.scheme == "chrome-error" else ""


def barrier_by_words(text: str) -> str:
    """The same of what a page shows, and the words themselves, as an outcome's detail; "" for any other page."""
    text = " ".join(text.split()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if len(text) > FEW_LETTERS:
        return ""
    words = {"captcha": _CAPTCHA_WORDS, "blocked": _BLOCKED_WORDS}
    for barrier in BARRIERS:
        if words[barrier].search(text):
            return f"{_MARK} ({barrier}): {text[:200]}"
    return ""


def barrier_in(detail: str) -> str:
    """The barrier that an outcome's detail tells."""
    found = _MARKED.match(detail)
    return found[1] if found else ""
