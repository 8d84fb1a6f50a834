"""What can go wrong in MiniWoB++ besides the policy."""

from holotron.env.errors import InfrastructureError


class MiniWoBError(ValueError):
    """A request that makes no sense: an unknown task, a point outside the task's area."""


class MiniWoBMissing(RuntimeError):
    """Something that must be installed is not; the message says the command that installs it."""


class MiniWoBCrashed(InfrastructureError):
    """The page or its browser died or hung. The episode has no outcome, least of all a reward of 0; reset to go on."""
