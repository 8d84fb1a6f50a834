"""The one place that starts a Chromium."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Error, Playwright

from holotron.env.browser.chromium import isolation_arguments, launch_arguments, require_chromium
from holotron.env.errors import BrowserMissing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaunchOptions:
    """How a Chromium is started.

    arguments: what its use needs besides `launch_arguments`. hide_scrollbars: Playwright does by default.
    """

    executable: Path | str | None = None
    headless: bool = True
    arguments: Sequence[str] = tuple(isolation_arguments())
    hide_scrollbars: bool = True
    seconds: float = 60.0


async def launch(playwright: Playwright, options: LaunchOptions, sandbox: bool = os.geteuid() != 0) -> Browser:
    """A running Chromium, its pages sandboxed where the machine allows it; BrowserMissing if none can be started."""
    executable = options.executable or require_chromium(window=not options.headless)
    given: dict[str, Any] = {
        "executable_path": str(executable),
        "headless": options.headless,
        "args": [*launch_arguments(), *options.arguments],
        # Interrupts are for the owner of these browsers, who closes them in order.
        "handle_sigint": False,
        "handle_sigterm": False,
        "handle_sighup": False,
        "timeout": options.seconds * 1000,
    }
    if not options.hide_scrollbars:
        given["ignore_default_args"] = ["--hide-scrollbars"]
    try:
        return await playwright.chromium.launch(**given, chromium_sandbox=sandbox)
    except Error as error:
        if sandbox and "sandbox" in error.message.lower():
            log.warning("this machine does not let Chromium sandbox its pages; going on without")
            return await launch(playwright, options, sandbox=False)
        reason = error.message.strip().partition("\n")[0]
        raise BrowserMissing(
            f"no Chromium could be started ({reason}); `holotron doctor` says what is missing"
        ) from error
