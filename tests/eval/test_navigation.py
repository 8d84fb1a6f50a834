"""Judges of tasks on live sites: known replies give known verdicts, and what is no verdict is counted as what it is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.agent.chat import ChatOptions
from holotron.agent.cost import Price, PriceTable
from holotron.agent.endpoint import EndpointModel
from holotron.agent.policy_format import JsonFormat
from holotron.cli.main import app
from holotron.episodes.answer_log import AnswerLog, PaidAnswer
from holotron.episodes.errors import BeingWritten
from holotron.episodes.store import EpisodeStore
from holotron.eval.agreement import agreement, read_labels
from holotron.eval.evaluate import Evaluation
from holotron.eval.judges import Judge, WebJudge, WebVoyagerJudge, read_score, read_status, read_success
from holotron.eval.judging import CALLS, Judging, Verdict, barrier_of
from holotron.eval.navigation import judge_run, judge_settings
from holotron.eval.statistics import pass_at
from holotron.eval.trajectories import write_trajectories
from holotron.suites.barriers import barrier_by_words, barrier_in
from holotron.suites.navigation import NavigationSuite, NavigationTask, TaskList, read_online_mind2web, read_webvoyager
from holotron.suites.suite import SuiteError
from holotron.suites.web import TaskFileError
from tests.agent.replies import act
from tests.agent.scripted_server import ScriptedServer, scripted_server
from tests.env.site import Site
from tests.eval.judged_episodes import IDS, played, webvoyager_file
from tests.suites.miniwob_driver import needs_chromium

NAME = "webvoyager-original-643"


def said(text: str, finish: str | None = "stop") -> PaidAnswer:
    return PaidAnswer("x", text, finish)


@pytest.mark.parametrize(
    ("answer", "opinion", "cause"),
    [
        (said("It shows the recipe. SUCCESS"), "success", ""),
        (said("The rating is missing.\nNOT SUCCESS"), "failure", ""),
        (said("One might say SUCCESS, but no: NOT SUCCESS"), "failure", ""),
        (said("The attempt was UNSUCCESSFUL, I believe"), "undecided", "malformed"),
        (said("It went well."), "undecided", "malformed"),
        (said("", "length"), "undecided", "malformed"),
        (said("I’m sorry, but I can’t help with that."), "undecided", "refusal"),
        (said("", "content_filter"), "undecided", "refusal"),
        (said("UNKNOWN: the last page is blank"), "undecided", "unknown"),
    ],
)
def test_replies_of_webvoyagers_judge(answer: PaidAnswer, opinion: str, cause: str) -> None:
    vote = read_success(answer)
    assert (vote.opinion, vote.cause) == (opinion, cause)


def test_replies_of_webjudge() -> None:
    for text, opinion in (
        ('Thoughts: all there.\nStatus: "success"', "success"),
        ("Thoughts: no filter.\n**Status**: Failure", "failure"),
        ("Status: success\n…\nStatus: failure", "undecided"),
        ("Status: almost", "undecided"),
    ):
        assert read_status(said(text)).opinion == opinion
    assert read_score(said("### Reasoning: shows the filter\n### Score: 4")) == (4, "shows the filter")
    assert read_score(said("**Score**:\n2"))[0] == 2
    assert read_score(said("Score: 7"))[0] == 0


def listed(names: list[str], text: str = "Find it.") -> TaskList:
    tasks = tuple(NavigationTask(name, text, "http://shop.example/", name.partition("--")[0]) for name in names)
    return TaskList(NAME, tasks, 15, "WebVoyager_data.jsonl", "0" * 64, "2025-12-14")


def evaluation(out: Path, tasks: TaskList, attempts: int = 1) -> Evaluation:
    suite = NavigationSuite.of(tasks)
    return Evaluation(suite, suite.protocols(), out, "scripted", JsonFormat(), tuple(range(attempts)))


def report_of(
    run: Evaluation, tasks: TaskList, server: ScriptedServer, judge: Judge, votes: int = 1, **more: Any
) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        options = ChatOptions(max_tokens=1000, keep_images=None)
        model = EndpointModel(
            server.url, "scripted", None, options, sessions=False, seconds=more.pop("seconds", 60), attempts=1
        )
        judging = Judging(EpisodeStore(run.out), judge, model, run.out / "judges" / "one", votes, 4)
        try:
            return await judge_run(run, tasks, judging, judge_settings(judge, "scripted", votes, 0.0), **more)
        finally:
            await model.aclose()

    return asyncio.run(main())


def texts(request: dict[str, Any]) -> str:
    parts = [part for message in request["messages"] for part in _parts(message["content"])]
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


REPLIES: dict[str, Any] = {
    "good": "Done. SUCCESS",
    "bad": "NOT SUCCESS",
    "odd": "Who knows?",
    "shy": "I'm sorry, but I cannot judge people.",
    "stern": {"message": {"role": "assistant", "content": None, "refusal": "no"}},
}


def test_verdicts_and_what_is_none_are_counted_apart(folder: Path) -> None:
    names = [f"Apple--{number}" for number in range(9)]
    tasks, store = listed(names), EpisodeStore(folder)
    for name, answer in zip(names, REPLIES, strict=False):
        played(store, name, "Find it.", answer)
    played(store, names[5], "Find it.", None)
    played(store, names[6], "Find it.", "good", title="Just a moment...")
    played(store, names[7], "Find it.", "good", title="Access Denied")
    run = evaluation(folder, tasks)
    prices = PriceTable({"scripted": Price(input=1.0, cached=0.5, output=10.0)})
    labels = {"Apple--0": True, "Apple--1": True, "Apple--5": False, "Apple--2": True}

    def answer(request: dict[str, Any]) -> Any:
        found = re.search(r"Response: (\w+)", texts(request))
        assert found
        return REPLIES[found[1]]

    with scripted_server(answer) as server:
        report = report_of(run, tasks, server, WebVoyagerJudge(images=2), prices=prices, labels=labels)
        again = report_of(run, tasks, server, WebVoyagerJudge(images=2))
        assert len(server.requests) == 5  # none for those without an answer or behind a barrier, none twice
        assert (
            sum(part["type"] == "image_url" for m in server.requests[0]["messages"] for part in _parts(m["content"]))
            == 2
        )
    assert (report["successes"], report["episodes"], report["success_rate"]) == (1, 3, 1 / 3)
    assert (report["captcha"], report["blocked"], report["no_answer"], report["not_played"]) == (1, 1, 1, 1)
    assert report["undecided"] == {"malformed": 1, "refusal": 2}
    assert report["rate_of_all"] == 1 / 9
    assert report["task_list"]["date"] == "2025-12-14"
    assert report["by_group"] == {"Apple": {"solved": 1, "of": 3}}
    # 5 calls of 1000 tokens read, 600 of them cached, and 10 written
    assert (report["judge"]["calls"], report["judge"]["cost"]) == (5, round(5 * (400 + 300 + 100) / 1e6, 6))
    assert (report["agreement"]["raw"], report["agreement"]["labelled"], report["agreement"]["undecided"]) == (
        2 / 3,
        3,
        1,
    )
    assert again["successes"] == 1


def test_a_judge_that_does_not_answer_in_time_is_asked_again_in_the_next_run(folder: Path) -> None:
    tasks, run = listed(["Apple--0"]), evaluation(folder, listed(["Apple--0"]))
    played(EpisodeStore(folder), "Apple--0", "Find it.")
    leave = threading.Event()

    def answer(_: dict[str, Any]) -> str:
        leave.wait(60)
        return "SUCCESS"

    with scripted_server(answer) as server:
        report = report_of(run, tasks, server, WebVoyagerJudge(), seconds=0.2)
        assert (report["success_rate"], report["undecided"]) == (None, {"timeout": 1})
        leave.set()
        assert report_of(run, tasks, server, WebVoyagerJudge())["successes"] == 1


def test_votes_are_counted_and_a_tie_is_no_verdict(folder: Path) -> None:
    names = ["Apple--0", "Apple--1"]
    tasks, run, store = listed(names), evaluation(folder, listed(names), attempts=2), EpisodeStore(folder)
    for name in names:
        for seed in range(2):
            played(store, name, "Find it.", f"{name} {seed}", seed=seed)
    replies = {
        "Apple--0 0": ["SUCCESS", "NOT SUCCESS", "SUCCESS"],
        "Apple--0 1": ["NOT SUCCESS", "NOT SUCCESS", "SUCCESS"],
        "Apple--1 0": ["NOT SUCCESS", "hm", "hm"],
        "Apple--1 1": ["NOT SUCCESS", "hm", "SUCCESS"],
    }

    def answer(request: dict[str, Any]) -> str:
        found = re.search(r"Response: (.*)", texts(request))
        assert found
        return replies[found[1]].pop()

    with scripted_server(answer) as server:
        report = report_of(run, tasks, server, WebVoyagerJudge(), votes=3)
    assert (report["successes"], report["episodes"], report["undecided"]) == (1, 3, {"split": 1})
    assert report["pass_at"] == {"1": 0.5, "2": 1.0}  # over the one task whose attempts both have a verdict


def test_webjudge_takes_three_steps_and_never_hears_the_answer(folder: Path) -> None:
    tasks, run, store = listed(["Apple--0"]), evaluation(folder, listed(["Apple--0"])), EpisodeStore(folder)
    played(store, "Apple--0", "Find it.", "the secret answer", pages=3)
    scores = iter(["Reasoning: the filter\nScore: 5", "Score: 2", "none", "Score: 3"])

    def answer(request: dict[str, Any]) -> str:
        system = request["messages"][0]["content"]
        if "key points: every" in system:
            return "**Key Points**:\n1. It is found.\n2. The filter is set."
        return next(scores) if "give a score" in system else "Thoughts: fine.\nStatus: success"

    with scripted_server(answer) as server:
        report = report_of(run, tasks, server, WebJudge())
        asked = [texts(request) for request in server.requests]
    assert (report["successes"], report["unread_scores"], len(asked)) == (1, 1, 6)
    assert not any("secret" in text for text in asked)
    assert "1. Click (10, 20)\n2. Click (11, 20)\n3. Click (12, 20)" in asked[-1]
    assert "The filter is set." in asked[-1]
    assert "1. the filter" in asked[-1]
    pictures = [part for message in server.requests[-1]["messages"] for part in _parts(message["content"])]
    assert sum(part["type"] == "image_url" for part in pictures) == 2


def test_a_killed_judge_loses_nothing_and_judges_nothing_twice(folder: Path) -> None:
    """kill -9 in the midst of judging; the same command goes on."""
    data, out, count = webvoyager_file(folder), folder / "run", 24
    store = EpisodeStore(out)
    for name in IDS[:count]:
        played(store, name, f"Find number {IDS.index(name)}.")
    asked: Counter[str] = Counter()
    process: list[subprocess.Popen[bytes]] = []
    turn = threading.Lock()

    def answer(request: dict[str, Any]) -> str:
        number = re.search(r"Find number (\d+)", texts(request))
        assert number
        with turn:
            asked[number[1]] += 1
            if asked.total() == 11 and process:
                os.kill(process[0].pid, signal.SIGKILL)
        return "SUCCESS" if int(number[1]) % 3 == 0 else "NOT SUCCESS"

    command = ["eval", "navigation", NAME, "--data", str(data), "--no-play", "--out", str(out), "--limit", str(count)]
    with scripted_server(answer, policy_format={"format": "json"}) as server:
        command += ["--endpoint", server.url, "--judge", server.url, "--judge-sessions", "2", "--json"]
        code = "import sys; from holotron.cli.main import main; main()"
        with turn:
            process.append(subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL))
        assert process[0].wait(120) == -signal.SIGKILL
        calls = next(out.glob("judges/*")) / CALLS
        with calls.open("a") as file:
            file.write('{"key": "torn')  # as a loss of power may leave it
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
    assert (report["episodes"], report["successes"], report["missing"]) == (count, 8, 0)
    assert report["protocol"] == f"{NAME}, 24 of 643 tasks"
    assert set(asked) == {str(number) for number in range(count)}
    assert asked.total() <= count + 2  # what was in flight when it was killed was asked again, and nothing else
    lines = [json.loads(line)["key"] for line in calls.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == count


def test_a_log_of_answers_belongs_to_one_process(folder: Path) -> None:
    with AnswerLog(folder / CALLS), pytest.raises(BeingWritten), AnswerLog(folder / CALLS):
        pass


def test_subsets_have_names_and_sizes(tmp_path: Path) -> None:
    data, lists = webvoyager_file(tmp_path), tmp_path / "ids.json"
    assert read_webvoyager(data, "original-643").name == NAME
    with pytest.raises(TaskFileError, match="643 tasks are left, and browser-use-588 has 588; name the published list"):
        read_webvoyager(data, "browser-use-588")
    lists.write_text(json.dumps({"Allrecipes": IDS[46:91], "Apple": IDS[179:189]}))
    found = read_webvoyager(data, "browser-use-588", without=lists, date="2024-12-15")
    assert (found.name, len(found.tasks), found.date) == ("webvoyager-browser-use-588", 588, "2024-12-15")
    patches = {name: {"prev": "…", "reason": "gone"} for name in IDS[:53]} | {IDS[60]: {"new": "Find something else."}}
    lists.write_text(json.dumps(patches))
    found = read_webvoyager(data, "magnitude-590", patches=lists)
    assert next(task.text for task in found.tasks if task.id == IDS[60]) == "Find something else."
    lists.write_text('["Nowhere--1"]')
    with pytest.raises(TaskFileError, match="has no task 'Nowhere--1' to leave out"):
        read_webvoyager(data, "browser-use-588", without=lists)
    with pytest.raises(SuiteError, match="no subset 'all'"):
        read_webvoyager(data, "all")
    data.write_text(data.read_text() + data.read_text().splitlines()[0])
    with pytest.raises(TaskFileError, match="is there more than once"):
        read_webvoyager(data, "original-643")
    rows = [
        {"task_id": f"{n:032x}", "website": "https://a.example/", "confirmed_task": "Do.", "level": "easy"}
        for n in range(300)
    ]
    lists.write_text(json.dumps(rows))
    assert read_online_mind2web(lists, "2025-12-14").name == "online-mind2web-2025-12-14"
    with pytest.raises(SuiteError, match="the date of the task list is 'today'"):
        read_online_mind2web(lists, "today")


def test_agreement_and_pass_at_have_the_known_values(tmp_path: Path) -> None:
    # 20 + 15 of 50 agree; by chance 0.5: the textbook's kappa of 0.4
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    verdicts = [Verdict(str(n), str(n), 0, "success" if said else "failure") for n, (said, _) in enumerate(pairs)]
    path = tmp_path / "people.json"
    path.write_text(json.dumps({str(n): int(label) for n, (_, label) in enumerate(pairs)}))
    found = agreement([*verdicts, Verdict("x", "x", 0, "undecided")], read_labels(path) | {"x": True})
    assert (found["raw"], found["labelled"], found["undecided"]) == (0.7, 50, 1)
    assert found["kappa"] == pytest.approx(0.4)
    path.write_text('{"task_id": "a", "label": "success"}\n{"task_id": "b", "label": "failure"}\n')
    assert read_labels(path) == {"a": True, "b": False}
    path.write_text('{"a": "perhaps"}')
    with pytest.raises(ValueError, match="the label of a is 'perhaps'"):
        read_labels(path)
    assert [pass_at(k, 4, 1) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]


def test_trajectories_are_read_as_the_judges_of_others_read_them(folder: Path) -> None:
    store = EpisodeStore(folder / "run")
    played(store, "Apple--0", "Find\nit.", "twelve", pages=11)
    episodes = store.list_episodes()
    assert write_trajectories(store, episodes, folder / "wv", "webvoyager") == 1
    assert write_trajectories(store, episodes, folder / "wv", "webvoyager") == 0
    messages = json.loads((folder / "wv/taskApple--0/interact_messages.json").read_text())
    task = re.search(r"Now given a task:(.+?)Please interact with", messages[1]["content"][0]["text"])
    answer = re.search(r"ANSWER[; ]+\[?(.[^\]]*)\]?", messages[-1]["content"])
    assert task
    assert answer
    assert (task[1].strip(), answer[1]) == ("Find it.", "twelve")
    shots = [int(path.name[10:].split(".png")[0]) for path in (folder / "wv/taskApple--0").glob("*.png")]
    assert sorted(shots) == list(range(1, 13))
    write_trajectories(store, episodes, folder / "om", "online-mind2web")
    result = json.loads((folder / "om/Apple--0/result.json").read_text())
    assert (result["task"], result["final_result_response"]) == ("Find\nit.", "twelve")
    assert len(result["action_history"]) == 11
    assert not any("twelve" in action for action in result["action_history"])
    assert (folder / "om/Apple--0/trajectory/11_full_screenshot.png").exists()


@pytest.mark.parametrize(
    ("text", "barrier"),
    [
        ("Our systems have detected unusual traffic from your computer network.", "captcha"),
        ("Press & Hold to confirm you are\na human (and not a bot).", "captcha"),
        ("Sorry, we just need to make sure you\u2019re not a robot.", "captcha"),
        ("Access Denied. You don't have permission to access this on this server. Reference #18", "blocked"),
        ("Too many requests. Try again later.", "blocked"),
        ("Ten flights from Oslo were found.", ""),
        ("How to verify you are human: a history of CAPTCHAs. " + "It began long ago. " * 100, ""),
    ],
)
def test_words_of_pages_that_keep_an_agent_out(folder: Path, text: str, barrier: str) -> None:
    detail = barrier_by_words(text)
    assert barrier_in(detail) == barrier
    store = EpisodeStore(folder)
    steps = list(store.steps(played(store, "Apple--0", "Find it.", detail)))
    assert barrier_of(steps, "" if not detail else f"{detail} ") == barrier
    assert barrier_of(steps, detail) == ""  # the policy's own answer


@needs_chromium
def test_tasks_are_played_judged_and_reported_by_one_command(folder: Path) -> None:
    """The third task's site shows words that no title tells."""
    wall = "<title>Shop</title><p>Verify you are human by completing the action below.</p>"
    with (
        Site({"/": "<title>Shop</title>Number 0 is here.", "/wall": wall}) as site,
        scripted_server(act("answer", text="it is here"), policy_format={"format": "json"}) as policy,
        scripted_server("SUCCESS") as judge,
    ):
        data = webvoyager_file(folder, site.origin + "/")
        lines = data.read_text().splitlines()
        lines[2] = json.dumps(json.loads(lines[2]) | {"web": site.origin + "/wall"})
        data.write_text("\n".join(lines))
        command = ["eval", "navigation", NAME, "--data", str(data), "--limit", "3", "--endpoint", policy.url]
        command += ["--judge", judge.url, "--out", str(folder / "run"), "--allow-private", "127.0.0.1", "--json"]
        done = CliRunner().invoke(app, [*command, "--trajectories", str(folder / "others")])
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
    assert (report["protocol"], report["successes"], report["trajectories"]) == (f"{NAME}, 3 of 643 tasks", 2, 3)
    assert (report["captcha"], report["blocked"], report["episodes"]) == (1, 0, 2)
    assert (folder / "others" / f"task{IDS[0]}" / "screenshot1.png").exists()
    assert NAME in (folder / "run" / "report.html").read_text()
