"""What can go wrong in MiniWoB++ besides the policy."""


class MiniWoBError(ValueError):
    """A request that makes no sense: an unknown task, a script that fails in the page."""


class MiniWoBMissing(RuntimeError):
    """Something that must be installed is not; the message says the command that installs it."""
