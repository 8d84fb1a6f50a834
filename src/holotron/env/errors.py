"""What can go wrong with a browser, sorted by whose fault it is."""


class EnvError(Exception):
    """Anything an environment raises on purpose."""


class ActionFailed(EnvError):
    """The page's or the action's fault: nothing there to click, no such tab, a page that stopped answering.

    The agent is told and goes on; the environment stays usable.
    """


class TabClosed(ActionFailed):
    """The tab went away by itself while something was done in it, perhaps because of it."""


class Refused(EnvError):
    """The safety policy, or the person asked, said no. `rule` names what was broken."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class InfrastructureError(EnvError):
    """The browser or the machine failed. An episode that ends so is not scored."""


class BrowserCrashed(InfrastructureError):
    """The browser's process is gone, and with it this environment; the next one gets a new process."""


class PageCrashed(InfrastructureError):
    """A local page or its browser died or hung. The task has no outcome, least of all a reward of 0; reset to go on."""


class BrowserMissing(InfrastructureError):
    """No Chromium could be started on this machine."""
