"""Examples from stored episodes: which steps are learned, which are history, and what is left out."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from holotron.actions.action import Action, Click, Type, to_json
from holotron.agent.formats.content import SHAPE
from holotron.agent.policy_format import NANO, JsonFormat
from holotron.env.placement import Placement
from holotron.env.task import Task
from holotron.episodes.examples import Example, ExampleError
from holotron.episodes.record import ModelOutput, ObservationRecord, Outcome, Step, StepAction
from holotron.episodes.selection import Selection
from holotron.episodes.store import EpisodeStore
from holotron.episodes.views import View
from tests.episodes.samples import ENVIRONMENT, POLICY, png

RIGHT, WRONG, NEXT = Click(x=500, y=500), Click(x=10, y=10), Type(text="ada", enter=True)
GOOD = Outcome(reason="done", success=True, reward=1.0)
BAD = Outcome(reason="step_limit", success=False, reward=0.0)


@dataclass(frozen=True)
class Did:
    """A step in short: who did what, and what the teacher said."""

    actor: str
    action: Action | None
    teacher: Action | None = None
    text: str | None = None  # of the model
    ids: tuple[int, ...] | None = None


def write(
    store: EpisodeStore,
    name: str,
    steps: Sequence[Did],
    outcome: Outcome | None = GOOD,
    *,
    suite: str = "miniwob",
    seed: int = 1,
    sample: int = 0,
    spec: str | None = None,
) -> str:
    task = Task(text=f"Do {name}", benchmark=suite, name=name, seed=seed, sample=sample)
    policy = POLICY if spec is None else POLICY.model_copy(update={"extra": {"format": spec}})
    with store.begin(task, policy, ENVIRONMENT) as writer:
        for index, did in enumerate(steps):
            step = Step.model_validate(
                {
                    "index": index,
                    "observation": ObservationRecord(width=8, height=6),
                    "actor": did.actor,
                    "action": did.action and StepAction.of(did.action, 8, 6),
                    "teacher": did.teacher and StepAction.of(did.teacher, 8, 6),
                    "output": None if did.text is None else ModelOutput(text=did.text, token_ids=did.ids),
                }
            )
            writer.add_step(step, png(index + seed))
        if outcome is not None:
            writer.finish(outcome)
    return writer.info.id


def told(example: Example) -> list[tuple[str, bool]]:
    return [(turn.answer, turn.learn) for turn in example.turns]


def view(store: EpisodeStore, selection: Selection | None = None, **more: object) -> list[Example]:
    return list(View([store.folder], selection, **more))  # type: ignore[arg-type]


@pytest.fixture
def store(folder: Path) -> EpisodeStore:
    return EpisodeStore(folder / "store", sync="never")


def test_what_a_teacher_played_is_one_example(store: EpisodeStore) -> None:
    write(store, "login", [Did("disturbance", WRONG, RIGHT), Did("teacher", RIGHT, RIGHT), Did("teacher", NEXT, NEXT)])
    [example] = view(store)
    assert example.kind == "miniwob/login"
    assert told(example) == [(to_json(WRONG), False), (to_json(RIGHT), True), (to_json(NEXT), True)]
    assert [turn.said for turn in example.turns] == ["Task: Do login", "", ""]
    assert [turn.image for turn in example.turns] == [png(1), png(2), png(3)]
    assert example.about["reward"] == 1.0


def test_where_the_policy_went_astray_the_teacher_has_the_last_word(store: EpisodeStore) -> None:
    steps = [
        Did("teacher", RIGHT, RIGHT, to_json(RIGHT), (1, 2)),  # the policy agreed
        Did("policy", WRONG, RIGHT, to_json(WRONG), (3,)),
        Did("policy", None, RIGHT, "what?"),
        Did("teacher", NEXT, NEXT),
    ]
    write(store, "login", steps)
    first, second, whole = sorted(view(store), key=lambda example: (not example.about["cut"], len(example.turns)))
    agreed, astray = (to_json(RIGHT), True), (to_json(WRONG), False)
    assert told(first) == [agreed, (to_json(RIGHT), True)]
    assert told(second) == [agreed, astray, (to_json(RIGHT), True)]
    assert told(whole) == [agreed, astray, ("what?", False), (to_json(NEXT), True)]
    assert [turn.answer_ids for turn in whole.turns] == [(1, 2), (3,), None, None]
    assert {example.kind for example in (first, second, whole)} == {"dagger/miniwob/login"}
    assert [example.about["cut"] for example in (first, second, whole)] == [True, True, False]


def test_an_episode_that_fails_leaves_its_corrections(store: EpisodeStore) -> None:
    write(store, "login", [Did("policy", WRONG, RIGHT), Did("teacher", NEXT, NEXT)], BAD)
    [correction] = view(store)
    assert told(correction) == [(to_json(RIGHT), True)]
    assert view(store, Selection(corrections=False)) == []
    assert len(view(store, Selection(successes=False))) == 2
    assert len(view(store, Selection(successes=False, min_reward=0.5))) == 1


def test_the_action_that_was_taken_stands_where_the_policy_said_another(store: EpisodeStore) -> None:
    """Near the teacher's point the teacher's action is taken, and learned; the policy's own words are not."""
    near = Click(x=501, y=499)
    write(store, "login", [Did("teacher", RIGHT, RIGHT, to_json(near), (7, 8, 9))])
    [example] = view(store)
    assert told(example) == [(to_json(RIGHT), True)]
    assert example.turns[0].answer_ids is None


def test_points_are_learned_on_the_part_that_a_small_policy_is_shown(folder: Path) -> None:
    """A teacher names places of the screen; what is learned are places of the picture that is sent."""
    widget = Image.new("RGB", SHAPE, (200, 30, 90))
    widget.paste((0, 0, 0), (70, 90, 90, 110))
    canvas = io.BytesIO()
    Placement((400, 420), 200, 100).place(widget).save(canvas, "PNG")
    store, middle = EpisodeStore(folder / "store", sync="never"), Click(x=700, y=476)
    seen = ObservationRecord(width=400, height=420)
    with store.begin(Task(text="Go", benchmark="miniwob", name="go", seed=1), POLICY, ENVIRONMENT) as writer:
        for index, actor in enumerate(("teacher", "policy")):
            words = None if actor == "teacher" else ModelOutput(text=to_json(WRONG), token_ids=(1, 2))
            acted = middle if actor == "teacher" else NANO.to_screen(WRONG, canvas.getvalue())
            done, wanted = StepAction.of(acted, 400, 420), StepAction.of(middle, 400, 420)
            step = Step(index=index, observation=seen, actor=actor, action=done, teacher=wanted, output=words)
            writer.add_step(step, canvas.getvalue())
        writer.finish(GOOD)
    [correction] = view(store)
    taught = to_json(Click(x=500, y=476))
    assert told(correction) == [(taught, True), (taught, True)]
    assert all(Image.open(io.BytesIO(turn.image or b"")).size == SHAPE for turn in correction.turns)
    plain = view(store, policy_format=JsonFormat())[0]
    assert '"x":700,"y":476' in plain.turns[0].answer


def test_a_policy_can_be_learned_from_its_successes(store: EpisodeStore) -> None:
    words = '{"action": "click", "x": 10, "y": 10}'
    write(store, "won", [Did("policy", WRONG, None, words, (4, 5))])
    write(store, "lost", [Did("policy", RIGHT, None, to_json(RIGHT))], BAD)
    [example] = view(store)
    assert (told(example), example.turns[0].answer_ids) == ([(words, True)], (4, 5))
    assert view(store, Selection(actors=("teacher",))) == []


@pytest.mark.parametrize("deviations", [0, 1, 2, 9])
def test_the_same_examples_as_from_the_loop(store: EpisodeStore, deviations: int) -> None:
    """By hand, for random episodes: what is done, learned and cut, as DAgger has it."""
    chance = random.Random(deviations)
    for seed in range(12):
        steps: list[Did] = []
        expected: list[list[tuple[str, bool]]] = []
        turns: list[tuple[str, bool]] = []
        astray = 0
        for _ in range(chance.randrange(1, 7)):
            wanted = Click(x=chance.randrange(1000), y=chance.randrange(1000))
            if astray < deviations and chance.random() < 0.5:
                astray += 1
                expected.append([*turns, (to_json(wanted), True)])
                steps.append(Did("policy", WRONG, wanted, to_json(WRONG)))
                turns.append((to_json(WRONG), False))
            else:
                steps.append(Did("teacher", wanted, wanted))
                turns.append((to_json(wanted), True))
        won = chance.random() < 0.7
        if won and turns[-1][1]:
            expected.append(turns)
        write(store, f"task-{seed}", steps, GOOD if won else BAD, seed=seed)
        found = view(store, Selection(tasks=(f"task-{seed}",)))
        assert sorted(map(told, found)) == sorted(expected)


def test_suites_tasks_and_their_weights(store: EpisodeStore) -> None:
    for suite in ("miniwob", "pages"):
        for name in ("a", "b", "c"):
            write(store, name, [Did("teacher", RIGHT)], suite=suite)
    assert {example.kind for example in view(store, Selection(suites=("pages",)))} == {"pages/a", "pages/b", "pages/c"}
    assert {e.kind for e in view(store, Selection(tasks=("a",)))} == {"miniwob/a", "pages/a"}
    weighed = View([store.folder], Selection(suite_weights={"pages": 0.5}, task_weights={"a": 3, "b": 0}))
    found = {example.kind: weight for example, weight in zip(weighed, weighed.weights, strict=True)}
    assert found == {"miniwob/a": 3, "miniwob/c": 1, "pages/a": 1.5, "pages/c": 0.5}


def test_the_order_is_the_seeds_and_parts_have_other_episodes(store: EpisodeStore) -> None:
    for seed in range(20):
        write(store, "a", [Did("teacher", RIGHT)], seed=seed)

    def seeds(selection: Selection, **more: int) -> list[int]:
        return [example.about["seed"] for example in view(store, selection, **more)]

    assert seeds(Selection()) == seeds(Selection()) != seeds(Selection(seed=1))
    assert sorted(seeds(Selection())) == list(range(20))
    assert seeds(Selection(limit=5, seed=1)) == seeds(Selection(seed=1))[:5]
    parts = [seeds(Selection(), part=part, parts=3) for part in range(3)]
    assert sorted(seed for part in parts for seed in part) == list(range(20))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_groups_have_every_attempt_that_says_something(store: EpisodeStore) -> None:
    broken = Outcome(reason="infrastructure", detail="the browser died")
    for sample, outcome in enumerate((GOOD, BAD, broken, GOOD)):
        write(store, "a", [Did("policy", RIGHT)], outcome, seed=5, sample=sample)
    write(store, "a", [Did("policy", RIGHT)], BAD, seed=6)
    groups = View([store.folder]).groups()
    assert [(group.suite, group.task, group.seed) for group in groups] == [("miniwob", "a", 5), ("miniwob", "a", 6)]
    rewards = [attempt.outcome.reward for attempt in groups[0].attempts if attempt.outcome]
    assert rewards == [1.0, 0.0, 1.0]


def test_damage_is_told_and_left_out(store: EpisodeStore) -> None:
    ids = [write(store, f"task-{number}", [Did("teacher", RIGHT)], seed=10 * number) for number in range(5)]
    write(store, "unfinished", [Did("teacher", RIGHT)], None)
    folders = [store.folder / "episodes" / name for name in ids]
    (folders[0] / "meta.json").write_text("{")
    (folders[1] / "steps.jsonl").write_text("changed\n")
    lost = json.loads((folders[2] / "steps.jsonl").read_text())["observation"]["image"]
    store.images.path_of(lost).unlink()
    problems: list[str] = []
    found = View([store.folder], on_damage=problems.append)
    assert {example.kind for example in found} == {"miniwob/task-3", "miniwob/task-4"}
    assert len(problems) == 4
    assert all(any(name in problem for problem in problems) for name in (*ids[:3], "unfinished"))
    # Damage that comes later is an error of the one example.
    changed = json.loads((folders[3] / "steps.jsonl").read_text())["observation"]["image"]
    store.images.path_of(changed).write_bytes(b"other")
    places = {place.info.id: index for index, place in enumerate(found._places)}
    with pytest.raises(ExampleError, match=ids[3]):
        found[places[ids[3]]]
    assert found[places[ids[4]]].kind == "miniwob/task-4"


def test_a_folder_without_episodes_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="no store of episodes at"):
        View([tmp_path])


def test_a_selection_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="actors has 'disturbance'"):
        Selection(actors=("disturbance",))
    with pytest.raises(ValueError, match="nothing would be learned"):
        Selection(actors=(), corrections=False)
    with pytest.raises(ValueError, match="weight of a is -1"):
        Selection(task_weights={"a": -1})


def test_messages_are_those_of_the_policys_format(store: EpisodeStore) -> None:
    """What another kind of policy would have been told and would have answered; its own words stay as they were."""
    words = '{"note":"n","thought":"t","action":{"action":"click","x":10,"y":10}}'
    write(store, "a", [Did("teacher", RIGHT), Did("policy", WRONG, None, words, (1, 2)), Did("teacher", NEXT)])
    form = JsonFormat()
    [example] = view(store, policy_format=form)
    first, second, third = example.turns
    assert first.system == form.system()
    assert (first.said, second.said) == ("Task: Do a", "The last action was carried out.")
    assert (second.system, third.system) == ("", "")
    assert form.parse(first.answer).action == RIGHT
    assert (second.answer, second.answer_ids) == (words, (1, 2))
    # Words of another format are written anew.
    [example] = view(store, policy_format=NANO)
    assert [turn.said for turn in example.turns] == ["Task: Do a", "", ""]
    assert (example.turns[1].answer, example.turns[1].answer_ids) == (words, (1, 2))  # nobody noted a format
    write(store, "b", [Did("policy", WRONG, None, words, (1, 2))], spec="json")
    [example] = view(store, Selection(tasks=("b",)), policy_format=NANO)
    assert (example.turns[0].answer, example.turns[0].answer_ids) == (to_json(WRONG), None)
