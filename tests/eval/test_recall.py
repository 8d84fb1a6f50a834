"""The memory test measures memory: a policy that remembers k screenshots is right up to k steps back, no further."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest
from PIL import Image

from holotron.agent.chat import ChatOptions, ModelUnavailable, Reply
from holotron.agent.in_process import EngineModel
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.environment import Observation
from holotron.env.errors import ActionFailed, InfrastructureError
from holotron.env.safety.policy import SafetyPolicy
from holotron.episodes.store import EpisodeStore
from holotron.eval import recall
from holotron.eval.evaluate import EvalError
from holotron.eval.recall import answer_in, judge, names_code, run_recall
from holotron.eval.recall_pages import CONDITIONS, SHOWN_AT, make_trial
from holotron.eval.recall_report import RecallReport, RecallResult
from holotron.model.initialize import random_model
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.model.text.conversation import ConversationWriter
from holotron.suites.plain.suite import served
from tests.tiny_checkpoint import TINY

SIZE = (480, 360)
NEAR, FAR = 4, 6


class Rememberer:
    """Reads screenshots by looking them up, and keeps the last so many; None keeps all."""

    name = "rememberer"

    def __init__(self, pages, keep=None, breaks_at=None):
        self.pages = pages
        self.keep = keep
        self.breaks_at = breaks_at
        self.steps = 0

    async def open(self):
        return Recollection(self)


class Recollection:
    def __init__(self, model):
        self.model = model
        self.images = deque(maxlen=model.keep)
        self.closed = False

    async def say(self, new, schema=None):
        self.model.steps += 1
        if self.model.breaks_at is not None and self.model.steps >= self.model.breaks_at:
            raise ModelUnavailable("gone for lunch")
        self.images.append(hashlib.sha256(new[-1].image).digest())
        if schema is not recall.ANSWER_SCHEMA:
            return Reply('{"action":"click","x":1,"y":2}', prompt_tokens=100 * len(self.images), cached_tokens=50)
        now = self.model.pages[self.images[-1]]
        seen = [self.model.pages[image] for image in self.images]
        codes = [now.code] if now.code else [page.code for page in seen if page.title in now.html and page.code]
        return Reply(json.dumps({"answer": f"It was {codes[0]}." if codes else "unknown"}))

    async def close(self):
        self.closed = True


async def look_at_all(browsers, distances, trials, seed, folder):
    """Every page of these trials by the digest of its screenshot."""
    found = {}
    options = {"width": SIZE[0], "height": SIZE[1]}
    with served(folder) as origin:
        policy = SafetyPolicy([origin])
        async with await BrowserEnv.open(browsers, EnvOptions(**options, safety=policy)) as env:
            pages = {
                page.html: page
                for condition in CONDITIONS
                for distance in distances
                for number in range(trials)
                for page in make_trial(condition, distance, number, seed).pages
            }
            for number, page in enumerate(pages.values()):
                (folder / f"{number}.html").write_text(page.html)
                await env.goto(f"{origin}/{number}.html")
                found[hashlib.sha256((await env.observe()).image).digest()] = page
    assert len(found) == len(pages)
    return found


async def test_it_measures_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(recall, "ATTEMPTS", 1)
    out = tmp_path / "run"
    async with Browsers() as browsers:
        pages = await look_at_all(browsers, (NEAR, FAR), 2, 7, tmp_path)
        told = []

        async def run(model, **more):
            options = {"distances": (NEAR, FAR), "trials": 1, "seed": 7, "size": SIZE, "sessions": 2}
            return await run_recall(model, browsers, **(options | more))

        # A policy that keeps all is always right, unless there was nothing to remember. Broken off, it goes on.
        broken = Rememberer(pages, breaks_at=20)
        with pytest.raises(InfrastructureError, match="failed 1 times: ModelUnavailable: gone for lunch"):
            await run(broken, folder=out)
        finished = [info for info in EpisodeStore(out).list_episodes() if info.counts]
        whole = Rememberer(pages)
        report = await run(whole, folder=out, on_change=lambda counters: told.append(replace(counters)))
        steps = len(CONDITIONS) * (NEAR + FAR)
        assert len(finished) >= 2
        assert whole.steps == steps - sum(info.step_count for info in finished)
        assert (told[0].total, told[0].skipped) == (len(CONDITIONS) * 2, len(finished))
        assert (told[-1].steps, told[-1].finished) == (whole.steps, told[0].total - len(finished))
        assert accuracies(report) == {
            ("remembered", NEAR): 1.0,
            ("visible", NEAR): 1.0,
            ("absent", NEAR): 0.0,
            ("remembered", FAR): 1.0,
            ("visible", FAR): 1.0,
            ("absent", FAR): 0.0,
        }
        again = Rememberer(pages)
        assert await run(again, folder=out) == report
        assert again.steps == 0
        with pytest.raises(EvalError, match=r"its seed differs.*choose another"):
            await run(again, folder=out, seed=8)
        # What the viewer shows as solved is what the report counts.
        found = EpisodeStore(out).list_episodes(finished=True)
        solved = [info for info in found if info.outcome is not None and info.outcome.success]
        assert len(solved) == sum(result.right for result in report.results)

        # A policy that keeps the last three is right while the code is among them.
        short = await run(Rememberer(pages, keep=3), trials=2, conditions=("remembered",))
        assert accuracies(short) == {("remembered", NEAR): 1.0, ("remembered", FAR): 0.0}
        assert len(short.results) == 4
        assert short.score("remembered", NEAR).prompt_tokens == pytest.approx(200.0)
        assert short.score("remembered", NEAR).cached_tokens == 50


def accuracies(report):
    return {(score.condition, score.asked_at): score.accuracy for score in report.scores}


async def test_a_model_of_nonsense_plays_along_and_knows_nothing():
    tokenizer = byte_tokenizer(TINY)
    prompts = ConversationWriter(tokenizer, ChatTemplate(DEFAULT_TEMPLATE.read_text()), TINY)
    sizes = EngineConfig(slots=8, pages=512, page_size=16, prefill_tokens=512, max_context=4096, host_bytes=2**20)
    style = ChatOptions(max_tokens=48, keep_images=2)
    with Engine(random_model(TINY), sizes, tokenizer) as engine:
        async with Browsers() as browsers:
            model = EngineModel(engine, prompts, style)
            report = await run_recall(
                model, browsers, distances=(6,), trials=1, conditions=("remembered", "visible"), size=SIZE
            )
    assert {score.accuracy for score in report.scores} == {0.0}
    (result, _) = report.results
    assert result.cached_tokens[0] == 0
    assert all(cached > 0 for cached in result.cached_tokens[1:])
    assert list(result.prompt_tokens) == sorted(result.prompt_tokens)


def blank():
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "PNG")
    return file.getvalue()


BLANK = blank()


class FlakyEnv:
    """A browser that fails now and then, without any Chromium."""

    failures = 0

    @classmethod
    async def open(cls, browsers, options):
        return cls()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def goto(self, url):
        if url.endswith("/4.html") and FlakyEnv.failures > 0:
            FlakyEnv.failures -= 1
            raise ActionFailed("the page stopped answering")

    async def observe(self):
        return Observation(BLANK, 1, 1)


def test_a_browser_that_fails_costs_an_attempt_and_not_the_trial(monkeypatch):
    monkeypatch.setattr(recall, "BrowserEnv", FlakyEnv)
    page = SimpleNamespace(code="1234 olive", title="", html="")
    told = []

    def run(failures):
        FlakyEnv.failures = failures
        model = Rememberer({hashlib.sha256(BLANK).digest(): page})
        options = {"distances": (5,), "trials": 1, "conditions": ("absent",)}
        report = asyncio.run(
            run_recall(model, None, **options, on_change=lambda counters: told.append(counters.retried))
        )
        return model, report

    model, report = run(recall.ATTEMPTS - 1)
    assert model.steps == 5 + 2 * 3
    assert report.results[0].answer == "It was 1234 olive."
    assert told[-1] == 2
    with pytest.raises(InfrastructureError, match="absent/5/0 failed 3 times"):
        run(recall.ATTEMPTS)


def test_trials_are_the_same_every_time_and_differ_in_one_page_by_condition():
    trial, visible, absent = (make_trial(condition, 50, 3, 1) for condition in CONDITIONS)
    assert trial == make_trial("remembered", 50, 3, 1)
    assert trial.code != make_trial("remembered", 50, 4, 1).code
    assert trial.code != make_trial("remembered", 50, 3, 2).code
    assert len(trial.pages) == 50
    assert len({page.title for page in trial.pages}) == 50
    shown = trial.pages[SHOWN_AT - 1]
    assert (shown.title, shown.code) == (trial.title, trial.code)
    assert trial.code in shown.html
    assert len(trial.others) >= 8
    assert any(page.code for page in trial.pages[: SHOWN_AT - 1])  # a code that is not the one
    assert not any(trial.code in page.html for page in trial.pages if page is not shown)
    assert visible.pages[:-1] == trial.pages[:-1]
    assert visible.code in visible.pages[-1].html
    differing = [step for step in range(50) if absent.pages[step] != trial.pages[step]]
    assert differing == [SHOWN_AT - 1]
    assert not any(trial.code in page.html for page in absent.pages)
    for asked_at in (0, 3, 289):
        with pytest.raises(ValueError, match=f"step {asked_at};"):
            make_trial("remembered", asked_at, 0, 0)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('{"answer":"7314 harbor"}', True),
        ('Thinking of 1111 basil.\n```json\n{"answer": "The code was 7314-Harbor."}\n```', True),
        ("7314harbor", True),
        ('{"answer":"17314 harbor"}', False),
        ('{"answer":"7314 harbors"}', False),
        ('{"answer":"7314"}', False),
        ('{"answer":["7314 harbor"]', True),
        ('{"answer":', False),
        ("", False),
    ],
)
def test_answers(text, right):
    assert names_code(answer_in(text), "7314 harbor") is right


def test_listing_all_codes_is_no_answer():
    trial = make_trial("remembered", 20, 0, 0)
    said = [Reply(""), Reply(f"I note {trial.code}"), Reply(json.dumps({"answer": f"{trial.code}, {trial.others[0]}"}))]
    result = judge(trial, said)
    assert (result.right, result.noted) == (False, True)
    assert judge(trial, [Reply(""), Reply(trial.code)]).right


def test_report():
    def result(condition, number, right):
        return RecallResult(condition, 10, "", right)

    results = [result("remembered", number, number < 6) for number in range(8)] + [result("absent", 0, False)]
    report = RecallReport("m", 0, (800, 600), tuple(results))
    told = report.to_dict()
    first = told["scores"][0]
    assert (first["condition"], first["asked_at"], first["steps_ago"]) == ("remembered", 10, 7)
    assert (first["right"], first["trials"], first["accuracy"]) == (6, 8, 0.75)
    assert first["interval_95"] == [0.4093, 0.9285]
    assert first["prompt_tokens"] is None
    assert json.loads(json.dumps(told)) == told
    assert report.table().splitlines()[-1] == "| 10 | 75% (41–93) |  | 0% (0–79) |"
