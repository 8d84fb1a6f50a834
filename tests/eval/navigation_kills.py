"""`make judge-kills`: 643 tasks played and judged by one command that is killed again and again, as a JSON report.

The tasks are in WebVoyager's layout, on a page served here; policy and judge are scripted. The command is killed
(SIGKILL) while it plays and while it judges, and begun again. Every task must end with one episode and one verdict, the
one that the judge gives it, and an answer of the judge that has arrived must not be asked for again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holotron.episodes.store import EpisodeStore
from tests.agent.replies import act
from tests.agent.scripted_server import scripted_server
from tests.env.site import Site
from tests.eval.judged_episodes import IDS, webvoyager_file
from tests.eval.killed import Killer, circumstances, run_to_the_end

PLAYING, JUDGING = (150, 400), (120, 350, 560)  # answers given by the policy and by the judge, at which it is killed
AT_ONCE = 8


def expected(number: int) -> str:
    """What the judge says of a task."""
    return ("SUCCESS", "NOT SUCCESS", "NOT SUCCESS", "No verdict.")[number % 4]


def number_of(request: dict[str, Any]) -> int:
    found = re.search(r"Find number (\d+)", json.dumps(request["messages"]))
    assert found
    return int(found[1])


def killed_run(folder: Path) -> dict[str, Any]:
    policy_calls, judge_calls = Killer(PLAYING), Killer(JUDGING)

    def play(request: dict[str, Any]) -> str:
        policy_calls.count(number_of(request))
        return json.dumps(act("answer", text="here"))

    def judge(request: dict[str, Any]) -> str:
        number = number_of(request)
        judge_calls.count(number)
        return expected(number)

    with (
        Site({"/": "<title>Shop</title><h1>A page</h1>"}) as site,
        scripted_server(play, policy_format={"format": "json"}) as policy,
        scripted_server(judge) as judges,
    ):
        data, out = webvoyager_file(folder, site.origin + "/"), folder / "run"
        command = ["eval", "navigation", "webvoyager-original-643", "--data", str(data), "--out", str(out)]
        command += ["--endpoint", policy.url, "--judge", judges.url, "--allow-private", "127.0.0.1", "--json"]
        command += ["--sessions", str(AT_ONCE), "--judge-sessions", str(AT_ONCE), "--size", "640x480"]
        began = time.monotonic()
        output, runs = run_to_the_end(command, [policy_calls, judge_calls])
        report = json.loads(output)
    return {
        "seconds": round(time.monotonic() - began, 1),
        "runs": runs,
        "kills_while_playing": policy_calls.kills,
        "kills_while_judging": judge_calls.kills,
        **checked(report, out, policy_calls, judge_calls),
    }


def checked(report: dict[str, Any], out: Path, policy: Killer, judge: Killer) -> dict[str, Any]:
    """What is in the folder, beside what must be."""
    episodes = Counter(info.task.name for info in EpisodeStore(out).list_episodes(finished=True) if info.counts)
    [folder] = (out / "judges").iterdir()
    verdicts = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    keys = Counter(json.loads(line)["key"] for line in (folder / "calls.jsonl").read_text().splitlines())
    opinions = {"SUCCESS": "success", "NOT SUCCESS": "failure", "No verdict.": "undecided"}
    wrong = [each["task"] for each in verdicts if each["opinion"] != opinions[expected(IDS.index(each["task"]))]]
    return {
        "tasks": len(IDS),
        "episodes": len(episodes),
        "lost": len(set(IDS) - set(episodes)),
        "played_twice": sum(count - 1 for count in episodes.values()),
        "verdicts": len(verdicts),
        "judged_twice": len(verdicts) - len({each["task"] for each in verdicts}),
        "answers_kept_twice": sum(count - 1 for count in keys.values()),
        "wrong_verdicts": len(wrong),
        "successes": report["successes"],
        "undecided": report["undecided"],
        "policy_requests": policy.asked.total(),
        "judge_requests": judge.asked.total(),
        "judge_requests_in_flight_at_a_kill": judge.asked.total() - len(keys),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.eval.navigation_kills", description=__doc__)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = killed_run(Path(folder))
    report = circumstances("python -m tests.eval.navigation_kills") | found
    text = json.dumps(report, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")
    good = all(
        report[key] == 0 for key in ("lost", "played_twice", "judged_twice", "answers_kept_twice", "wrong_verdicts")
    )
    sys.exit(0 if good and report["verdicts"] == len(IDS) else 1)


if __name__ == "__main__":
    main()
