"""What can be wrong with a question to the planner."""


class PlanError(ValueError):
    """A workload, GPU or precision that cannot be planned for; the message says what can."""
