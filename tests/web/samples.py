"""A store as a fleet would leave it, and one that wishes us ill."""

from __future__ import annotations

import time
from pathlib import Path

from holotron.actions.action import Action, Answer, Click, Drag, Goto, Hover, Infeasible, Press, Scroll, Type
from holotron.env.task import Task
from holotron.episodes.record import (
    EnvironmentInfo,
    EpisodeInfo,
    ModelOutput,
    ObservationRecord,
    Outcome,
    PolicyInfo,
    Result,
    Step,
    StepAction,
    Timings,
)
from holotron.episodes.store import EpisodeStore
from holotron.episodes.writer import EpisodeWriter
from tests.web.screens import HEIGHT, WIDTH, board, login, shelf

POLICY = PolicyInfo(model="holotron-nano", weight_version=42, sampling={"temperature": 0.7})
ENVIRONMENT = EnvironmentInfo(name="browser", browser="Chromium 141", viewport=(WIDTH, HEIGHT))
EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>"\'>${window.pwned=3}</script><!--'


def a_step(index: int, action: Action | None, thought: str, title: str = "Page", **changes: object) -> Step:
    text = "" if action is None else StepAction.of(action, WIDTH, HEIGHT).text
    place = "sign-in" if title.startswith("Sign in") else "shelf"
    fields: dict[str, object] = {
        "index": index,
        "observation": ObservationRecord(
            width=WIDTH, height=HEIGHT, url=f"https://harbour.example/{place}", title=title
        ),
        "output": ModelOutput(
            text=f"<think>{thought}</think>\n{text}",
            token_ids=tuple(range(40 + 7 * index)),
            logprobs=tuple(-0.02 * (number % 9) for number in range(40 + 7 * index)),
            weight_version=42,
            prompt_tokens=1480 + 1310 * index,
            cached_tokens=0 if index == 0 else 1480 + 1310 * (index - 1),
            finish_reason="stop",
        ),
        "thought": thought,
        "action": None if action is None else StepAction.of(action, WIDTH, HEIGHT),
        "timings": Timings(observe=0.11 + 0.02 * index, think=0.62 + 0.1 * index, act=0.24),
    }
    return Step.model_validate(fields | changes)


def begin(store: EpisodeStore, text: str, name: str, started: float, **task: object) -> EpisodeWriter:
    fields = {"text": text, "benchmark": "shopfront", "name": name, "url": "https://harbour.example/", "seed": 1} | task
    return store.begin(Task.model_validate(fields), POLICY, ENVIRONMENT, started=started)


def write_login(store: EpisodeStore, started: float, seed: int = 1) -> EpisodeInfo:
    with begin(store, 'Sign in as "ada" with the password "lovelace".', "sign-in", started, seed=seed) as writer:
        sign_in = "Sign in – Harbour Books"
        writer.add_step(
            a_step(
                0, Click(x=500, y=419, element="User name"), "The form is empty. I start with the user name.", sign_in
            ),
            login(),
        )
        writer.add_step(
            a_step(1, Type(text="ada", x=500, y=419), "The field has the focus, so I can type the name.", sign_in),
            login(focus=0),
        )
        writer.add_step(
            a_step(
                2,
                Type(text="lovelace", x=500, y=556, clear=True),
                "Next is the password.",
                sign_in,
                note="The user name is filled in.",
            ),
            login("ada", focus=0),
        )
        writer.add_step(
            a_step(3, Press(keys="Enter"), "Both are filled in; Enter submits the form.", sign_in),
            login("ada", "lovelace", 1),
        )
        writer.add_step(
            a_step(
                4,
                Answer(text="Signed in as ada."),
                "The shelf is shown, so the sign-in worked.",
                "Your shelf – Harbour Books",
                feedback="The account page names ada: the task is done.",
                result=Result(reward=1.0),
            ),
            shelf(),
        )
        return writer.finish(Outcome(reason="answered", success=True, reward=1.0), ended=started + 9.4)


def write_failure(store: EpisodeStore, started: float) -> EpisodeInfo:
    with begin(store, "Sign in as grace and find the price of Orlando.", "find-price", started) as writer:
        writer.add_step(
            a_step(0, Type(text="grace", x=500, y=419, enter=True), "I type the name and submit.", "Sign in"), login()
        )
        writer.add_step(
            a_step(
                1,
                Click(x=410, y=765, element="Forgotten your password?"),
                "The password is missing. Perhaps it can be reset.",
                "Sign in",
                observation=ObservationRecord(
                    width=WIDTH,
                    height=HEIGHT,
                    url="https://harbour.example/sign-in",
                    title="Sign in",
                    notices=("A pop-up was blocked: https://ads.example/",),
                ),
                result=Result(ok=False, error="The click hit nothing: no element at (524, 612) reacts to it."),
            ),
            login("grace", error="The password is missing."),
        )
        writer.add_step(
            a_step(2, Infeasible(reason="There is no password."), "Without a password there is no way.", "Sign in"),
            login("grace", error="The password is missing."),
        )
        outcome = Outcome(reason="infeasible", success=False, reward=0.0, detail="The task can be done with a guest.")
        return writer.finish(outcome, ended=started + 21.8)


def write_drag(store: EpisodeStore, started: float) -> EpisodeInfo:
    with begin(store, "Move the card “Ship 0.1” to Done.", "move-card", started, benchmark="planboard") as writer:
        writer.add_step(a_step(0, Hover(x=190, y=565), "Does the card show a handle?", "Planboard"), board(False))
        writer.add_step(
            a_step(1, Drag(x=190, y=565, to_x=812, to_y=425), "I drag the card to the last column.", "Planboard"),
            board(False),
        )
        writer.add_step(
            a_step(2, Scroll(direction="down", amount=40), "Is there more below?", "Planboard"), board(True)
        )
        writer.add_step(a_step(3, Answer(text="Done."), "The card is where it should be.", "Planboard"), board(True))
        return writer.finish(Outcome(reason="done", success=True, reward=1.0), ended=started + 6.1)


def write_short(store: EpisodeStore, number: int, started: float) -> None:
    tasks = (
        ("Put Mrs Dalloway into the basket.", "add-to-basket"),
        ("What does The Waves cost?", "find-price"),
        ("Open the newest order and tell its number.", "latest-order"),
    )
    text, name = tasks[number % 3]
    with begin(store, text, name, started, seed=100 + number) as writer:
        for index in range(2 + number % 4):
            action: Action = Scroll(direction="down") if index else Goto(url="https://harbour.example/shelf")
            writer.add_step(a_step(index, action, "I look through the shelf.", "Shelf"), shelf(index))
        if number % 7 == 5:
            writer.finish(Outcome(reason="infrastructure", detail="The browser ended."), started + 3)
        elif number % 7 == 6:
            writer.close()
        else:
            success = number % 3 != 1
            writer.finish(Outcome(reason="answered", success=success, reward=float(success)), started + 4 + number)


def make_store(folder: Path, now: float | None = None, more: int = 9) -> EpisodeStore:
    """The sample: three worth a look, some more, and one that is damaged."""
    now = time.time() if now is None else now
    store = EpisodeStore(folder, sync="never")
    for number in range(more):
        write_short(store, number, now - 900 - 400 * number)
    write_drag(store, now - 640)
    write_failure(store, now - 310)
    write_login(store, now - 75)
    if more:
        broken = folder / "episodes" / "shopfront-broken.3.0.0123456789ab"
        broken.mkdir()
        (broken / "meta.json").write_text('{"schema": 1, "id": "shopfront-bro')
    return store


def write_evil(store: EpisodeStore, started: float) -> EpisodeInfo:
    """Every text that an episode can hold, as an attacker would write it."""
    task = Task(text=EVIL, url="javascript:window.pwned=4", benchmark=EVIL, name=EVIL, extra={EVIL: EVIL})
    policy = PolicyInfo(model=EVIL, weight_version=EVIL, sampling={EVIL: EVIL})
    environment = EnvironmentInfo(name=EVIL, browser=EVIL)
    with store.begin(task, policy, environment, episode_id="evil", started=started) as writer:
        seen = ObservationRecord(
            width=WIDTH, height=HEIGHT, url="javascript:window.pwned=5", title=EVIL, tabs=(EVIL, EVIL), notices=(EVIL,)
        )
        for index, action in enumerate(
            (Click(x=500, y=500, element=EVIL), Type(text=EVIL, x=990, y=10), Goto(url="javascript:window.pwned=6"))
        ):
            writer.add_step(
                a_step(
                    index,
                    action,
                    EVIL,
                    observation=seen,
                    note=EVIL,
                    feedback=EVIL,
                    output=ModelOutput(text=EVIL, weight_version=EVIL, finish_reason=EVIL),
                    result=Result(ok=False, error=EVIL),
                ),
                shelf(),
            )
        writer.add_step(
            a_step(3, None, EVIL).model_copy(update={"action": StepAction(text=EVIL, width=WIDTH, height=HEIGHT)}),
            shelf(),
        )
        return writer.finish(Outcome(reason="answered", success=False, reward=0.0, detail=EVIL), ended=started + 1)


def write_many(folder: Path, count: int) -> EpisodeStore:
    """Episodes without steps, as fast as files can be made."""
    store = EpisodeStore(folder, sync="never")
    with begin(store, "Put book 0 into the basket.", "add-to-basket", 1_700_000_000.0) as writer:
        info = writer.finish(Outcome(reason="answered", success=True, reward=1.0), ended=1_700_000_004.0)
    text = (folder / "episodes" / info.id / "meta.json").read_text()
    for number in range(1, count):
        new = folder / "episodes" / f"many.{number}"
        new.mkdir()
        changed = text.replace(info.id, new.name).replace("book 0", f"book {number}")
        changed = changed.replace("1700000000.0", str(1_700_000_000.0 + number))
        if number % 3 == 0:
            changed = changed.replace('"success":true,"reward":1.0', '"success":false,"reward":0.0')
        (new / "meta.json").write_text(changed)
        (new / "steps.jsonl").touch()
    return store
