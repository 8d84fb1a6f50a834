"""`make test-webapps ROOT=…`: WebArena-Infinity's applications in our browsers, as a JSON report.

start: each application is started, opened, verified and reset. scripts: tasks that a script solves earn their reward,
in eight sessions at once, and none that was not done does. nothing: every verifier, on what an application begins with.
workers: every task answered at once through the evaluator, by worker processes, with the same verdict and state as a
lone server has; then tasks that scripts do, beside such that nothing is done in. nano: the bundled policy on a sample,
or on all tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from holotron.agent.agent import Ending
from holotron.agent.chat import Message, Reply
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import BareJsonFormat, format_of
from holotron.episodes.store import EpisodeStore
from holotron.eval.evaluate import Evaluation, evaluate, played_episodes
from holotron.eval.evaluate import report as evaluated
from holotron.model.loading import find_checkpoint
from holotron.suites.suite import EvalProtocol
from holotron.suites.webapps.environment import AppEnvironment, AppPool
from holotron.suites.webapps.suite import WebAppsSuite
from holotron.suites.webapps.verifier import verify
from tests.agent.replies import SingleChat
from tests.webapps.script import perform
from tests.webapps.solutions import SOLUTIONS
from tests.webapps.watched import LEFT, WatchedApps, state_digest

PARTS = ("start", "scripts", "nothing", "workers", "nano")
AT_ONCE = 8
TOKENS = 20_480  # of fifty screens


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.webapps", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the folder of WebArena-Infinity, or of its apps")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them; others stay as the report has them")
    parser.add_argument("--workers", type=int, default=AT_ONCE, help="processes with browsers, for workers and nano")
    parser.add_argument("--sample", type=int, default=3, help="nano: tasks of each app and difficulty; 0 for all")
    parser.add_argument("--sessions", type=int, default=AT_ONCE, help="nano: episodes at once")
    parser.add_argument("--minutes", type=float, help="workers and nano: most of them; what was not played is missing")
    parser.add_argument("--device", default="cpu", help="nano: cpu or cuda")
    parser.add_argument("--episodes", type=Path, help="where those of workers and nano go; a second run goes on there")
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    arguments = parser.parse_args()
    suite = WebAppsSuite(arguments.root.resolve())
    report: dict[str, Any] = {"command": "make test-webapps ROOT=…", "parts": {}}
    if arguments.out and arguments.out.exists():
        report = json.loads(arguments.out.read_text(encoding="utf-8"))
    for part in arguments.parts.split(","):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(_part(part, suite, arguments, Path(folder), report["parts"]))
        report["parts"][part] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": round(time.monotonic() - began, 1),
            **found,
        }
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        if arguments.out:
            arguments.out.write_text(text, encoding="utf-8")
    if not arguments.out:
        print(text)
    sys.exit(any(part.get("problems") for part in report["parts"].values()))


async def _part(
    part: str, suite: WebAppsSuite, arguments: Any, folder: Path, before: Mapping[str, Any]
) -> dict[str, Any]:
    if part == "start":
        return await start(suite)
    if part == "scripts":
        return await scripts(suite)
    if part == "nothing":
        return await nothing(suite)
    folder = (arguments.episodes or folder) / part
    if part == "workers":
        return await workers(suite, arguments, folder, before.get("nothing") or await nothing(suite))
    return await nano(suite, arguments, folder)


def _apps(suite: WebAppsSuite) -> dict[str, list[str]]:
    apps: dict[str, list[str]] = {}
    for name in suite.names("real"):
        apps.setdefault(name.partition("/")[0], []).append(name)
    return apps


async def start(suite: WebAppsSuite) -> dict[str, Any]:
    """Each application twice with one server: the second time it was reset after a task was done."""
    apps, problems = {}, []
    async with suite.pool(1) as pool:
        for app, names in _apps(suite).items():
            solved = next(name for name in SOLUTIONS if name.startswith(f"{app}/"))
            began, verdicts, servers, notices = time.monotonic(), [], set(), []
            for _ in range(2):
                async with suite.begin(pool, suite.task(solved, 0)) as env:
                    notices += (await env.observe()).notices
                    verdicts.append((await env.judge()).passed)
                    await perform(env, SOLUTIONS[solved])
                    verdicts.append((await env.judge()).passed)
                    servers.add(env.server.address)
            if verdicts != [False, True, False, True] or len(servers) != 1 or notices:
                problems.append(f"{app}: {verdicts}, {len(servers)} servers, {notices}")
            seconds = round(time.monotonic() - began, 1)
            apps[app] = {"tasks": len(names), "before, after, reset, after": verdicts, "seconds": seconds}
    return {"apps": apps, "problems": problems}


async def scripts(suite: WebAppsSuite) -> dict[str, Any]:
    """All scripts, the eight sessions being of the same application at the same time."""
    rows, problems = [], []

    async def one(pool: AppPool, name: str, others: Sequence[str]) -> None:
        task = suite.task(name, 0)
        async with suite.begin(pool, task) as env:
            actions = await perform(env, SOLUTIONS[name])
            ending = await suite.judge(env, task, Ending("answered"), suite.rule)
            foreign = [other for other in others if await _passes(suite, env, other)]
        rows.append({"task": name, "actions": actions, "reward": ending.reward})
        if ending.reward != 1 or foreign:
            problems.append(f"{name}: reward {ending.reward}, done besides: {foreign}; {ending.detail}")

    async with suite.pool(AT_ONCE) as pool:
        for app in _apps(suite):
            names = [name for name in SOLUTIONS if name.startswith(f"{app}/")]
            at_once = [names[index % len(names)] for index in range(AT_ONCE)]
            await asyncio.gather(*(one(pool, name, [other for other in names if other != name]) for name in at_once))
    return {"sessions_at_once": AT_ONCE, "episodes": len(rows), "tasks": _by_task(rows), "problems": problems}


async def _passes(suite: WebAppsSuite, env: AppEnvironment, name: str) -> bool:
    return (await verify(suite.catalog[name].verifier, env.server.address)).passed


def _by_task(rows: list[dict[str, Any]]) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for row in rows:
        task = tasks.setdefault(row["task"], {"actions": row["actions"], "episodes": 0, "solved": 0})
        task["episodes"] += 1
        task["solved"] += row["reward"] == 1
    return tasks


async def nothing(suite: WebAppsSuite) -> dict[str, Any]:
    """The verifiers of all tasks in the state that each application begins with."""
    rewarded, states, asked, limit = [], dict[str, str](), 0, asyncio.Semaphore(AT_ONCE)

    async def one(env: AppEnvironment, name: str) -> str | None:
        async with limit:
            return name if await _passes(suite, env, name) else None

    async with suite.pool(1) as pool:
        for app, names in _apps(suite).items():
            async with suite.begin(pool, suite.task(names[0], 0)) as env:
                states[app] = await state_digest(env)
                found = await asyncio.gather(*(one(env, name) for name in names))
                rewarded += [name for name in found if name]
                asked += len(found)
    return {"tasks": asked, "rewarded": rewarded, "states": states, "problems": []}


class AnswersAtOnce(SingleChat):
    """A policy that does nothing."""

    name = "nothing"

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        return Reply('{"action":"answer","text":""}')


async def workers(suite: WebAppsSuite, arguments: Any, folder: Path, alone: dict[str, Any]) -> dict[str, Any]:
    """Nothing done in any task, beside what `nothing` found; then scripts beside tasks that nothing is done in."""
    watched = WatchedApps(suite.root)
    every = watched.find_protocol("infinity", split="real")
    scripted = replace(every, tasks=tuple(SOLUTIONS))
    problems: list[str] = []

    async def played(name: str, protocol: EvalProtocol, seeds: tuple[int, ...]) -> dict[str, Any]:
        number, policy_format = arguments.workers, BareJsonFormat(suite.kinds)
        run = Evaluation(
            watched, (protocol,), folder / name, "nothing", policy_format, seeds, sessions=number, workers=number
        )
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await evaluate(run, AnswersAtOnce(), _tell)
        found, other = evaluated(run), Counter[str]()
        spoiled = sum(not info.counts for info in EpisodeStore(run.out).list_episodes(finished=True))
        for info in played_episodes(run):
            assert info.outcome is not None
            assert info.task.name is not None
            task, done = info.task.name, bool((info.task.seed or 0) % 2)
            state = info.outcome.detail.rpartition(LEFT)[2]
            other["rewarded"] += info.outcome.reward == 1
            other["states_as_begun"] += state == alone["states"][task.partition("/")[0]]
            if (info.outcome.reward == 1) != (done or task in alone["rewarded"]):
                problems.append(f"{task}, seed {info.task.seed}: {info.outcome.detail}")
            elif (state == alone["states"][task.partition("/")[0]]) == done:
                problems.append(f"{task}, seed {info.task.seed}: the state is not that of its own episode")
        if found["missing"]:
            problems.append(f"{name}: {found['missing']} were not played")
        return {"episodes": found["episodes"], **other, "infrastructure_failures": spoiled}

    deadline = asyncio.get_running_loop().time() + 60 * arguments.minutes if arguments.minutes else None
    nothing_done = await played("nothing", every, (0,))
    beside = await played("beside", scripted, (0, 1, 2, 3))
    return {
        "workers": arguments.workers,
        "nothing_done": nothing_done | {"tasks": len(every.tasks), "rewarded_as_alone": alone["rewarded"]},
        "scripts_beside_nothing": beside | {"tasks": len(scripted.tasks), "scripts": "in every other episode"},
        "problems": problems,
    }


async def nano(suite: WebAppsSuite, arguments: Any, folder: Path) -> dict[str, Any]:
    """The bundled policy by the protocol; the sample is of every application and difficulty, drawn with seed 0."""
    checkpoint = find_checkpoint("holotron-nano")
    policy_format = format_of(checkpoint)
    assert policy_format is not None
    names = suite.names("real")
    if arguments.sample:
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            groups.setdefault(suite.groups(name), []).append(name)
        draw = random.Random(0)
        names = tuple(name for group in groups.values() for name in draw.sample(group, arguments.sample))
        names = tuple(draw.sample(names, len(names)))  # so that what was played until a limit is a sample, too
    protocol = replace(suite.find_protocol("infinity"), tasks=names)
    run = Evaluation(
        suite,
        (protocol,),
        folder,
        "holotron-nano",
        policy_format.with_kinds(suite.kinds),
        sessions=arguments.sessions,
        workers=arguments.workers,
        seconds=3600.0,  # steps are what is limited, on a slow machine, too
    )
    memory = (16 if arguments.device == "cuda" else 2) << 30
    with loaded(checkpoint, arguments.device, memory=memory, tokens_per_session=TOKENS) as policy:
        with suppress(TimeoutError):
            async with asyncio.timeout(arguments.minutes and 60 * arguments.minutes):
                await evaluate(run, policy, _tell)
        found = evaluated(run)
    kept = ("success_rate", "interval", "episodes", "successes", "missing", "groups", "step_seconds")
    return {
        "tasks": "all" if not arguments.sample else f"{arguments.sample} of each application and difficulty, seed 0",
        "max_steps": protocol.max_steps,
        "device": arguments.device,
        **{key: found[key] for key in kept},
        "solved": [row["task"] for row in found["tasks"] if row["successes"]],
        "what_stops_it": _what_stops(EpisodeStore(folder)),
        "problems": [],
    }


def _what_stops(store: EpisodeStore) -> dict[str, Any]:
    """How episodes ended, what was done in them, and how much of it showed."""
    endings, kinds = Counter[str](), Counter[str]()
    steps = unseen = repeated = failed = untouched = 0
    for info in store.list_episodes(finished=True):
        if not info.counts:
            continue
        episode = store.read(info.id)
        assert episode.outcome is not None
        endings[episode.outcome.reason] += 1
        screens = [step.observation.image for step in episode.steps]
        actions = [step.action.text if step.action else "" for step in episode.steps]
        kinds.update(json.loads(action)["action"] if action else "none" for action in actions)
        steps += len(screens)
        failed += sum(not step.result.ok for step in episode.steps)
        unseen += sum(one == other for one, other in pairwise(screens))
        repeated += sum(one == other for one, other in pairwise(actions))
        untouched += len(set(screens)) == 1
    return {
        "endings": dict(endings.most_common()),
        "actions": dict(kinds.most_common()),
        "steps": steps,
        "steps_whose_action_changed_nothing_on_the_screen": unseen,
        "steps_that_repeat_the_action_before": repeated,
        "actions_that_failed": failed,
        "episodes_in_which_the_screen_never_changed": untouched,
    }


def _tell(counters: Any) -> None:
    print(f"\r{counters.finished} of {counters.total}, {counters.steps} steps", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
