"""Keeping pages where they may be.

The egress proxy stops every connection that the policy forbids. This stops the navigation itself, so that the page
stays where it was instead of turning into an error, and removes documents that need no connection: `blob:`, `data:` and
the like.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from playwright.async_api import BrowserContext, Error

from holotron.env.browser.event_log import EventLog
from holotron.env.browser.isolated_world import IsolatedWorldGone
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.tabs import LiveTab, Tabs
from holotron.env.safety.egress_proxy import EgressProxy, place_of
from holotron.env.safety.policy import BLANK, PAGE_SCHEMES

BACK_MS = 3000
# What is shown of a page that leaves for itself before it has begun.
CIRCLING = "<h1>This page loads itself again and again.</h1>"
IS_EMPTY = "() => document.readyState !== 'loading' && !document.body"
# How often a page may come to one address while it is waited for. Logins come by the same one two or three times.
MOST_VISITS = 5
# Where the browser itself takes a page that asks for an address it never shows.
BLOCKED = "#blocked"
# How the browser's log begins to tell of an address that it did not go to.
NOT_ALLOWED = "Not allowed to load local resource: "
# Frames may have documents without a connection; what those load goes through the proxy.
FRAME_SCHEMES = ("about", "data", "blob")
# An answer that any kind of request can be content with, a style sheet's first of all.
EMPTY = {"responseCode": 200, "responseHeaders": [{"name": "Content-Type", "value": "text/css"}], "body": ""}


class GuardedTabs(Tabs):
    """Tabs in which only documents the policy allows are shown."""

    def __init__(self, context: BrowserContext, options: EnvOptions, events: EventLog, proxy: EgressProxy) -> None:
        super().__init__(context, options, events)
        self._proxy = proxy
        self._visits: Counter[tuple[LiveTab, str]] | None = None  # of documents, while they are counted
        self._circling: set[tuple[LiveTab, str]] = set()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Inside, a page that loads itself without end is stopped: it would never be at rest, nor drawn."""
        self._visits = Counter()
        try:
            yield
        finally:
            self._visits = None

    def release(self) -> None:
        """An action begins, after which pages that were stopped may load themselves again."""
        self._circling.clear()

    def _circles(self, tab: LiveTab, url: str) -> bool:
        """Whether a page comes to an address again and again, or did so when it was last waited for."""
        visit = tab, re.split(r"[?#]", url, maxsplit=1)[0]
        if self._visits is not None:
            self._visits[visit] += 1
            if self._visits[visit] > MOST_VISITS:
                self._circling.add(visit)
                self._events.error(f"the page loads {visit[1]} again and again; it was stopped until the next action")
        return visit in self._circling

    async def prepare(self, tab: LiveTab) -> None:
        tab.session.on("Fetch.requestPaused", lambda event: self.spawn(self._judge(tab, event)))
        # Only documents are stopped and asked about: the proxy judges everything else, at no cost per request.
        patterns = [{"urlPattern": "*", "resourceType": "Document"}]
        patterns += [{"urlPattern": pattern} for pattern in self._options.stubbed]
        tab.session.on("Fetch.authRequired", lambda event: self.spawn(self._log_in(tab, event)))
        await tab.session.send("Fetch.enable", {"patterns": patterns, "handleAuthRequests": True})
        for name in ("Page.frameRequestedNavigation", "Page.frameScheduledNavigation"):
            tab.session.on(name, lambda event: self._requested(tab, event["url"], event["frameId"] == tab.frame_id))
        tab.session.on("Page.windowOpen", lambda event: self._requested(tab, event["url"], main=True))
        tab.session.on("Log.entryAdded", lambda event: self._logged(tab, event["entry"]))
        await tab.session.send("Log.enable")

    async def _judge(self, tab: LiveTab, event: dict[str, Any]) -> None:
        """Let a document's request go on, or stop it; redirects come here hop by hop."""
        if event["resourceType"] != "Document":  # which only what is stubbed has
            await tab.session.send("Fetch.fulfillRequest", {"requestId": event["requestId"], **EMPTY})
            return
        url, main = event["request"]["url"], event["frameId"] == tab.frame_id
        if main and "redirectedRequestId" not in event and self._circles(tab, url):
            await tab.session.send("Fetch.failRequest", {"requestId": event["requestId"], "errorReason": "Aborted"})
            with suppress(IsolatedWorldGone):
                if await tab.world.run(IS_EMPTY):  # such a document is never drawn, so that no screenshot of it comes
                    await tab.session.send("Page.setDocumentContent", {"frameId": tab.frame_id, "html": CIRCLING})
            return
        rule = await self._proxy.refusal(url)
        if rule is None:
            if main:
                tab.sent_to = url
            await tab.session.send("Fetch.continueRequest", {"requestId": event["requestId"]})
            return
        self._events.refusal("navigation" if main else "frame", url, rule)
        # An aborted navigation leaves the page as it is; for a frame the failure should show.
        reason = "Aborted" if main else "BlockedByClient"
        await tab.session.send("Fetch.failRequest", {"requestId": event["requestId"], "errorReason": reason})
        if main and tab.opened_by_page and tab.page.url in BLANK:
            self.spawn(tab.page.close())

    async def _log_in(self, tab: LiveTab, event: dict[str, Any]) -> None:
        """Answer a server that asks who comes, once; a second question means that the answer was wrong."""
        login, request, asks = self._options.login, event["requestId"], event["authChallenge"]
        secret = None if login is None else self._options.secrets[login.secret]
        answer: dict[str, str] = {"response": "CancelAuth"}
        if asks.get("source") == "Proxy":
            pass
        elif request in tab.logins:
            self._events.notice(f"{asks['origin']} refused the name and password of its address")
        elif login is None or secret is None or not secret.may_enter(asks["origin"]):
            scheme, _, host = asks["origin"].partition("://")
            way_out = f"begin at an address with them: {scheme}://NAME:PASSWORD@{host}/"
            self._events.notice(f"{asks['origin']} asks for a name and a password, and got none; {way_out}")
        else:
            tab.logins.add(request)
            answer = {"response": "ProvideCredentials", "username": login.username, "password": secret.value}
        await tab.session.send("Fetch.continueWithAuth", {"requestId": request, "authChallengeResponse": answer})

    def _requested(self, tab: LiveTab, url: str, main: bool) -> None:
        """A page wants to go somewhere. Some schemes are dropped by the browser itself, without a word.

        It tells of a `data:` or `file:` address only that it was asked for, of a `mailto:` one that it went there.
        """
        scheme = url.partition(":")[0].lower()
        rule = self._options.safety.refusal(url) if scheme not in (*PAGE_SCHEMES, "javascript") else None
        if rule is not None and (main or scheme not in FRAME_SCHEMES):
            self._events.refusal("navigation" if main else "frame", url, rule)

    def _logged(self, tab: LiveTab, entry: dict[str, Any]) -> None:
        """Of a new tab for a `file:` address the browser tells in its log alone."""
        url = entry["text"].removeprefix(NOT_ALLOWED)
        told = any(refusal.target == url for refusal in self._events.refusals())
        if entry["source"] == "security" and url != entry["text"] and not told:
            self._requested(tab, url, main=True)

    def arrived(self, tab: LiveTab, frame: dict[str, Any]) -> None:
        # A document that did not come was perhaps refused by the proxy, before its request came to `_judge`.
        missing = frame.get("unreachableUrl")
        url = missing or frame["url"]
        rule = self._options.safety.refusal(url) or (missing and self._refused_place(missing))
        if url == "about:blank" and frame.get("urlFragment") == BLOCKED:
            self.spawn(self._expel(tab))  # `_requested` has told of it
        elif rule:
            self._events.refusal("navigation", url, rule)
            self.spawn(self._expel(tab))
        elif missing:
            reason = self._proxy.problem(url)
            self._events.error(f"{url} could not be loaded" + (f": {reason}" if reason else ""))

    def _refused_place(self, url: str) -> str | None:
        place = place_of(url)
        return next((refusal.rule for refusal in self._events.refusals() if refusal.target == place), None)

    async def _expel(self, tab: LiveTab) -> None:
        """Take a tab off a document it may not show: close it if that is all it ever showed, otherwise go back."""
        page = tab.page
        history = await tab.session.send("Page.getNavigationHistory")
        earlier = history["entries"][: history["currentIndex"]]
        if tab.opened_by_page and all(entry["url"] in BLANK for entry in earlier):
            await page.close()
            return
        allowed = [entry for entry in earlier if self._options.safety.refusal(entry["url"]) is None]
        if allowed:
            with suppress(Error):
                async with page.expect_navigation(wait_until="commit", timeout=BACK_MS):
                    await tab.session.send("Page.navigateToHistoryEntry", {"entryId": allowed[-1]["id"]})
                return
        await page.goto("about:blank", timeout=BACK_MS)
