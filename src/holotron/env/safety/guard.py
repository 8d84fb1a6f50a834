"""Keeping pages where they may be.

The egress proxy stops every connection that the policy forbids. This stops the navigation itself, so that the page
stays where it was instead of turning into an error, and removes documents that need no connection: `blob:`, `data:` and
the like.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Error

from holotron.env.browser.event_log import EventLog
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.tabs import LiveTab, Tabs
from holotron.env.safety.egress_proxy import EgressProxy
from holotron.env.safety.policy import BLANK, DEFAULT_PORTS, plain_host

BACK_MS = 3000


class GuardedTabs(Tabs):
    """Tabs in which only documents the policy allows are shown."""

    def __init__(self, context: BrowserContext, options: EnvOptions, events: EventLog, proxy: EgressProxy) -> None:
        super().__init__(context, options, events)
        self._proxy = proxy

    async def prepare(self, tab: LiveTab) -> None:
        tab.session.on("Fetch.requestPaused", lambda event: self.spawn(self._judge(tab, event)))
        # Only documents are stopped and asked about: the proxy judges everything else, at no cost per request.
        await tab.session.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "resourceType": "Document"}]})

    async def _judge(self, tab: LiveTab, event: dict[str, Any]) -> None:
        """Let a document's request go on, or stop it; redirects come here hop by hop."""
        url, main = event["request"]["url"], event["frameId"] == tab.frame_id
        rule = await self._proxy.refusal(url)
        if rule is None:
            await tab.session.send("Fetch.continueRequest", {"requestId": event["requestId"]})
            return
        self._events.refusal("navigation" if main else "frame", url, rule)
        # An aborted navigation leaves the page as it is; for a frame the failure should show.
        reason = "Aborted" if main else "BlockedByClient"
        await tab.session.send("Fetch.failRequest", {"requestId": event["requestId"], "errorReason": reason})
        if main and tab.opened_by_page and tab.page.url in BLANK:
            self.spawn(tab.page.close())

    def arrived(self, tab: LiveTab, frame: dict[str, Any]) -> None:
        # A document that did not come was perhaps refused by the proxy, before its request came to `_judge`.
        missing = frame.get("unreachableUrl")
        url = missing or frame["url"]
        rule = self._options.safety.refusal(url) or (missing and self._refused_place(missing))
        if rule:
            self._events.refusal("navigation", url, rule)
            self.spawn(self._expel(tab))
        elif missing:
            self._events.error(f"{url} could not be loaded")

    def _refused_place(self, url: str) -> str | None:
        parts = urlsplit(url)
        place = f"{plain_host(parts.hostname or '')}:{parts.port or DEFAULT_PORTS.get(parts.scheme)}"
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
