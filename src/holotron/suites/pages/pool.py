"""Pages for generated tasks in Chromium processes."""

from __future__ import annotations

from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_pool import EnvironmentPool
from holotron.suites.pages.environment import LONGEST_CALL, PageEnvironment

ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the pages bring everything with them
    "--disable-partial-raster",  # redrawn parts of a page get edges that differ from those of a page drawn at once
)
PageEnvironmentPool = EnvironmentPool[PageEnvironment]
CONTEXT = {"device_scale_factor": 1, "locale": "en-US", "offline": True}


def page_pool(pages: int = 2, browsers: int = 1) -> PageEnvironmentPool:
    """`async with page_pool(4) as pool`, then `async with pool.lease() as env: await env.reset(task, seed)`."""
    launch = LaunchOptions(arguments=ARGUMENTS)
    return EnvironmentPool(
        PageEnvironment, pages, launch=launch, context=CONTEXT, browsers=browsers, seconds=LONGEST_CALL
    )
