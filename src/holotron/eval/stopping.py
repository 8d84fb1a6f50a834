"""How episodes stopped, where the environment tells at each step whether all was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from holotron.episodes.record import EpisodeInfo, Step
from holotron.eval.statistics import wilson

# right: said so as soon as it was done, or gave up what cannot be done. late: with more actions in between. premature:
# said so, or gave up, before. never: it was done, and the policy did not say so by itself. spoiled: it was done, and
# then undone or followed by something else. undone: none of these.
KINDS = ("right", "late", "premature", "never", "spoiled", "undone")


def how_stopped(info: EpisodeInfo, steps: Iterable[Step]) -> str | None:
    """One of KINDS; None where nothing tells whether the task was done, as with questions."""
    rewards = [step.result.reward for step in steps if step.result.reward is not None]
    outcome = info.outcome
    if outcome is None or not rewards:
        return None
    done = next((index for index, reward in enumerate(rewards) if reward), None)
    stopped = outcome.reason in ("answered", "infeasible")
    if outcome.success and stopped:
        return "right" if done is None or len(rewards) <= done + 2 else "late"
    if done is None:
        return "premature" if stopped else "undone"
    return "never" if all(rewards[done:]) else "spoiled"


def stopping_rates(found: Iterable[str | None]) -> dict[str, Any]:
    """The share of each kind among the episodes that tell, with intervals."""
    counts = Counter(each for each in found if each is not None)
    total = sum(counts.values())
    rates = {
        kind: {"episodes": counts[kind], "share": counts[kind] / total, "interval": list(wilson(counts[kind], total))}
        for kind in KINDS
        if total
    }
    return {"episodes": total, **rates}
