"""Tasks on live sites, scored: episodes of the one evaluator, verdicts of a judge, and what neither can be blamed for.

A run's folder has the episodes, and below judges/ a folder for each judge that looked at them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holotron.agent.cost import PriceTable
from holotron.eval.agreement import agreement
from holotron.eval.evaluate import Evaluation, judged, keep_manifest, played_episodes, report
from holotron.eval.judges import Judge
from holotron.eval.judging import Judging, Verdict
from holotron.eval.statistics import pass_at, wilson
from holotron.suites.barriers import BARRIERS
from holotron.suites.navigation import NavigationSuite, TaskList


def judge_settings(judge: Judge, model: str, votes: int, temperature: float) -> dict[str, Any]:
    """What makes a judge one of its own."""
    return {"judge": judge.name, "model": model, "votes": votes, "temperature": temperature} | judge.settings


def judge_folder(out: Path, settings: Mapping[str, Any]) -> Path:
    """Where a judge's answers are."""
    words = "-".join(f"{value}" for value in settings.values())
    return out / "judges" / "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in words)


async def judge_run(
    run: Evaluation,
    listed: TaskList,
    judging: Judging,
    settings: Mapping[str, Any],
    *,
    prices: PriceTable | None = None,
    labels: Mapping[str, bool] | None = None,
) -> dict[str, Any]:
    """Judge what was played and not judged yet, and report. settings: the judge's."""
    keep_manifest(judging.folder, dict(settings))
    verdicts = await judging.run(played_episodes(run))
    found = navigation_report(run, verdicts)
    found |= {"task_list": listed.manifest, "judge": dict(settings) | judging.cost(settings["model"], prices)}
    return found if labels is None else found | {"agreement": agreement(verdicts, labels)}


def navigation_report(run: Evaluation, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The evaluator's figures over episodes with a verdict; beside them what has none, and why.

    rate_of_all: with everything that has no verdict counted as a failure. pass_at: over tasks with all attempts judged.
    """
    suite: Any = run.suite
    assert isinstance(suite, NavigationSuite)
    rewards = {verdict.episode: verdict.reward for verdict in verdicts}
    episodes = [info for info in played_episodes(run) if info.id in rewards]
    found = report(run, [judged(info, reward) for info in episodes if (reward := rewards[info.id]) is not None])
    wanted, attempts = len(run.tasks), len(run.seeds)
    causes = Counter(verdict.cause for verdict in verdicts if verdict.opinion == "undecided")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found["tasks"]:
        groups[suite.find(row["task"]).group].append(row)
    whole = [row for row in found["tasks"] if row["episodes"] == attempts]
    return found | {
        "wanted": wanted,
        "not_played": wanted - len(episodes),
        **{barrier: causes.pop(barrier, 0) for barrier in BARRIERS},
        "no_answer": sum(verdict.cause == "no answer" for verdict in verdicts),
        "undecided": dict(sorted(causes.items())),
        "unread_scores": sum(verdict.unread_scores for verdict in verdicts),
        "rate_of_all": found["successes"] / wanted,
        "interval_of_all": list(wilson(found["successes"], wanted)),
        "pass_at": {
            str(k): sum(pass_at(k, attempts, row["successes"]) for row in whole) / len(whole) if whole else None
            for k in range(1, attempts + 1)
        },
        "by_group": {
            name: {"solved": sum(row["successes"] for row in rows), "of": sum(row["episodes"] for row in rows)}
            for name, rows in sorted(groups.items())
        },
    }
