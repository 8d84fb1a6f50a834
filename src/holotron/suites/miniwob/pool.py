"""Pages for MiniWoB++ in Chromium processes."""

from __future__ import annotations

from pathlib import Path

from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_pool import EnvironmentPool
from holotron.env.browser.wire import port_arguments
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment

ARGUMENTS = (
    *port_arguments(),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the pages are files; nothing else may be reached
    "--disable-checker-imaging",  # never a frame without a picture that is still being decoded
    "--disable-partial-raster",  # redrawn parts of a page get edges that differ from those of a page drawn at once
    "--disable-smooth-scrolling",  # a screenshot right after the wheel shows the place scrolled to
    "--renderer-process-limit=4",  # a process for each page would spend more on its start than on an episode
    # Scripts are compiled where they run, which finds the libraries of all tasks compiled already: a page loads with a
    # third less work. Chromium heeds the last such switch alone, so those of Playwright's that matter here come again.
    "--disable-features=ScriptStreaming,PaintHolding,AvoidUnnecessaryBeforeUnloadCheckSync,MediaRouter",
)
CONTEXT = {
    # Not the size of the task's area: dialogs centre themselves on the viewport, and the package's pages expect this.
    "viewport": {"width": 500, "height": 320},
    "device_scale_factor": 1,
    "locale": "en-US",
    "timezone_id": "UTC",
    "offline": True,
}
MiniWoBPool = EnvironmentPool[MiniWoBEnvironment]
SCRIPT = Path(__file__).with_name("page.js")


def miniwob_pool(
    config: MiniWoBConfig | None = None, environment: type[MiniWoBEnvironment] = MiniWoBEnvironment
) -> MiniWoBPool:
    """`async with miniwob_pool(MiniWoBConfig(pages=8)) as pool`, then `async with pool.lease() as env`."""
    chosen = config or MiniWoBConfig()
    return EnvironmentPool(
        lambda open_page: environment(open_page, chosen),
        chosen.pages,
        # In several tasks scroll bars are the only sign that there is more to see.
        launch=LaunchOptions(chosen.executable, arguments=ARGUMENTS, hide_scrollbars=False),
        context=CONTEXT,
        browsers=chosen.browsers,
        script=SCRIPT,
        seconds=chosen.timeout,
    )
