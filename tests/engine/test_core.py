"""Continue = fork = park and resume = roll back and redo = one long prefill; and nothing leaks."""

import pytest
import torch

from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.sampling import SamplingParams
from holotron.engine.session_state import OnUpdate, Residency

from ..model.tiny import DENSE_TRANSFORMER, draw_tokens, tiny_model
from .driver import GREEDY, Driver, greedy_continuation

MODELS = {
    "hybrid": tiny_model("M-M*-", seed=3),
    "pure mamba": tiny_model("MM", seed=1),
    "experts": tiny_model("ME*E", seed=2),
    "transformer": tiny_model(seed=4, **DENSE_TRANSFORMER),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]


def test_turns_continue_where_the_last_one_ended(model):
    driver = Driver(model)
    session = driver.core.open()
    history = []
    for turn in range(4):
        prompt = draw_tokens(7 + turn, seed=turn)
        answer = driver.turn(session, prompt)
        assert answer == greedy_continuation(model, history + prompt, 5)
        history += prompt + answer
    assert list(session.tokens) == history
    assert driver.core.counters.computed_tokens == len(history) - 1  # the last token was never fed
    assert len(session.turns) == 4


def test_sessions_of_all_ages_share_steps(model):
    driver = Driver(model)
    sessions = [driver.core.open() for _ in range(5)]
    prompts = [draw_tokens(3 + 5 * i, seed=i) for i in range(5)]
    tasks = [driver.start(s, p) for s, p in zip(sessions, prompts, strict=True)]
    driver.run()
    for task, prompt in zip(tasks, prompts, strict=True):
        assert driver.answers[task] == greedy_continuation(model, prompt, 5)


def test_forks_compute_their_common_part_once(model):
    driver = Driver(model)
    parent = driver.core.open()
    prompt = draw_tokens(21)
    driver.core.append(parent, prompt)
    children = driver.core.fork(parent, 4)
    tasks = [driver.start(child, draw_tokens(i, seed=i) if i else []) for i, child in enumerate(children)]
    driver.run()
    for i, task in enumerate(tasks):
        extra = draw_tokens(i, seed=i) if i else []
        assert driver.answers[task] == greedy_continuation(model, prompt + extra, 5)
    generated = sum(len(driver.answers[task]) for task in tasks)
    fed = 21 + sum(range(4)) + generated - len(tasks)
    assert driver.core.counters.computed_tokens == fed
    assert driver.turn(parent) == greedy_continuation(model, prompt, 5)


def test_forks_of_a_session_in_the_middle_of_its_life(model):
    driver = Driver(model)
    parent = driver.core.open()
    prompt = draw_tokens(9)
    said = driver.turn(parent, prompt)
    children = driver.core.fork(parent, 2)
    assert driver.turn(children[0], [1, 2]) == greedy_continuation(model, [*prompt, *said, 1, 2], 5)
    assert driver.turn(parent, [3]) == greedy_continuation(model, [*prompt, *said, 3], 5)
    assert driver.turn(children[1], [4, 5, 6]) == greedy_continuation(model, [*prompt, *said, 4, 5, 6], 5)


def test_park_and_resume(model, tmp_path):
    for where in ({}, {"host_bytes": 0, "disk_bytes": 2**24, "disk_folder": tmp_path}):
        driver = Driver(model, **where)
        session = driver.core.open()
        prompt = draw_tokens(13)
        said = driver.turn(session, prompt)
        computed = driver.core.counters.computed_tokens
        driver.core.park(session)
        assert session.residency is (Residency.DISK if where else Residency.HOST)
        driver.core.check()
        assert driver.turn(session, [5]) == greedy_continuation(model, [*prompt, *said, 5], 5)
        assert driver.core.counters.computed_tokens == computed + 2 + 4
        assert session.residency is Residency.GPU


def test_a_lost_session_is_computed_again(model):
    driver = Driver(model, host_bytes=0)
    session = driver.core.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)
    driver.core.park(session)
    assert session.residency is Residency.NONE
    assert driver.turn(session, [5]) == greedy_continuation(model, [*prompt, *said, 5], 5)
    assert driver.core.residence.traffic.recomputed_tokens == 17


def test_a_copy_lost_before_sampling_is_computed_again(model):
    """All of the session was computed and only a token is to be drawn, when its parked memory turns out to be gone."""
    driver = Driver(model)
    lost, other = driver.core.open(), driver.core.open()
    prompts = [draw_tokens(9, seed=1), draw_tokens(11, seed=2)]
    computed = [driver.start(s, p, None) for s, p in zip((lost, other), prompts, strict=True)]
    driver.run(*computed)
    driver.core.park(lost)
    driver.core.residence.spill._give_up(lost.parked)
    assert lost.logits is not None
    tasks = [driver.start(lost), driver.start(other)]
    driver.run()
    for task, prompt in zip(tasks, prompts, strict=True):
        assert driver.finished[task].error is None
        assert driver.answers[task] == greedy_continuation(model, prompt, 5)


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 5])
def test_rollback_and_redo(model, checkpoints):
    driver = Driver(model, checkpoints=checkpoints, slots=20)
    session = driver.core.open()
    first, second = draw_tokens(6, 1), draw_tokens(5, 2)
    one = driver.turn(session, first)
    two = driver.turn(session, second)
    driver.core.rollback(session, -1, keep_prompt=True)
    assert driver.turn(session) == two
    driver.core.rollback(session, 1)
    assert list(session.tokens) == first + one
    other = draw_tokens(4, 3)
    assert driver.turn(session, other) == greedy_continuation(model, first + one + other, 5)
    driver.core.rollback(session, 0)
    assert list(session.tokens) == []
    assert driver.turn(session, second) == greedy_continuation(model, second, 5)


def test_checkpoints_make_redoing_free():
    driver = Driver(MODELS["hybrid"], checkpoints=2)
    session = driver.core.open()
    prompt = draw_tokens(30)
    said = driver.turn(session, prompt)
    before = driver.core.counters.computed_tokens
    for _ in range(3):
        driver.core.rollback(session, 0, keep_prompt=True)
        assert driver.turn(session) == said
    assert driver.core.counters.computed_tokens == before + 3 * 4  # only what is generated
    assert driver.core.residence.traffic.recomputed_tokens == 0


def test_many_sessions_in_little_room(model, tmp_path):
    """Forty sessions on slots for five: spilled to host memory, then to disk; the tokens are the same."""
    small = {"slots": 6, "pages": 30, "host_bytes": 40_000, "disk_bytes": 60_000, "disk_folder": tmp_path}
    driver = Driver(model, **small)
    sessions = [driver.core.open() for _ in range(40)]
    histories = [[] for _ in sessions]
    for turn in range(2):
        prompts = [draw_tokens(3 + i % 7, seed=100 * turn + i) for i in range(40)]
        tasks = [driver.start(s, p) for s, p in zip(sessions, prompts, strict=True)]
        driver.run()
        for history, prompt, task in zip(histories, prompts, tasks, strict=True):
            assert driver.answers[task] == greedy_continuation(model, history + prompt, 5)
            history += prompt + driver.answers[task]
    traffic = driver.core.residence.traffic
    assert traffic.spilled >= 35
    for session in sessions:
        driver.core.close(session)
    driver.core.check()
    assert driver.core.residence.slots.free == 5
    assert driver.core.residence.pages.free == 29
    assert driver.core.residence.spill.host_used == driver.core.residence.spill.disk_used == 0


def test_a_damaged_file_on_disk_means_computing_again(model, tmp_path):
    driver = Driver(model, host_bytes=0, disk_bytes=2**24, disk_folder=tmp_path)
    session = driver.core.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)
    for damage in (lambda f: f.write_bytes(f.read_bytes()[:100]), lambda f: f.unlink()):
        driver.core.park(session)
        damage(next(tmp_path.glob("session-*")))
        driver.core.rollback(session, -1, keep_prompt=True)
        assert driver.turn(session) == said


def test_a_full_disk_means_computing_again(model, tmp_path, monkeypatch):
    from holotron.engine import spill

    driver = Driver(model, host_bytes=0, disk_bytes=2**24, disk_folder=tmp_path)
    session = driver.core.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill, "save_file", full)
    driver.core.park(session)
    assert session.residency is Residency.NONE
    assert list(tmp_path.iterdir()) == []
    assert driver.turn(session, [7]) == greedy_continuation(model, [*prompt, *said, 7], 5)


def test_cancelling_frees_and_keeps_what_was_said(model):
    driver = Driver(model)
    session, other = driver.core.open(), driver.core.open()
    long = SamplingParams(max_tokens=50, temperature=0.0, ignore_eos=True)
    prompt = draw_tokens(5)
    task, neighbour = driver.start(session, prompt, long), driver.start(other, draw_tokens(6, 1))
    while len(driver.answers[task]) < 3:
        driver.core.step()
    driver.core.cancel(task)
    driver.core.check()
    assert driver.finished[task].reason == "cancelled"
    said = list(driver.answers[task])
    driver.run(neighbour)
    assert driver.answers[neighbour] == greedy_continuation(model, draw_tokens(6, 1), 5)
    assert driver.turn(session, [1]) == greedy_continuation(model, [*prompt, *said, 1], 5)


def test_requests_that_cannot_be(model):
    driver = Driver(model)
    session = driver.core.open("a")
    with pytest.raises(EngineError, match="exists already"):
        driver.core.open("a")
    with pytest.raises(EngineError, match="nothing to continue"):
        driver.start(session)
    with pytest.raises(EngineError, match="token 1 is 64; ids lie between 0 and 63"):
        driver.core.append(session, [3, 64])
    with pytest.raises(EngineError, match="token 0 is -1"):
        driver.core.append(session, [-1])
    with pytest.raises(TooLong, match="129 tokens are more than the 128"):
        driver.core.append(session, [1] * 129)
    driver.core.append(session, [1] * 100)
    with pytest.raises(TooLong):
        driver.start(session, [], SamplingParams(max_tokens=29))
    with pytest.raises(EngineError, match="no turn 0"):
        driver.core.rollback(session, 0)
    with pytest.raises(EngineError, match="fork into 0"):
        driver.core.fork(session, 0)
    task = driver.start(session)
    with pytest.raises(SessionBusy):
        driver.core.append(session, [1])
    with pytest.raises(SessionBusy):
        driver.core.fork(session, 1)
    driver.run(task)
    driver.core.close(session)
    driver.core.close(session)
    with pytest.raises(SessionClosed):
        driver.core.append(session, [1])
    with pytest.raises(SessionClosed, match="no session 'a'"):
        driver.core.find("a")


def test_not_a_number_fails_alone(model, monkeypatch):
    driver = Driver(model)
    bad, good = driver.core.open(), driver.core.open()
    run = driver.core.runner.run

    def poisoned(steps, pieces):
        logits = run(steps, pieces).clone()
        for row, context in enumerate([*steps, *(piece.context for piece in pieces)]):
            if context is bad:
                logits[row] = float("nan")
        return logits

    monkeypatch.setattr(driver.core.runner, "run", poisoned)
    failing, fine = driver.start(bad, draw_tokens(5)), driver.start(good, draw_tokens(6, 1))
    driver.run()
    assert driver.finished[failing].reason == "failed"
    assert "NaN" in str(driver.finished[failing].error)
    assert driver.answers[fine] == greedy_continuation(model, draw_tokens(6, 1), 5)


def test_a_step_that_breaks_is_tried_again_one_by_one(model, monkeypatch):
    driver = Driver(model)
    bad, good = driver.core.open(), driver.core.open()
    run = driver.core.runner.run

    def breaking(steps, pieces):
        if bad in [*steps, *(piece.context for piece in pieces)]:
            raise RuntimeError("out of memory")
        return run(steps, pieces)

    monkeypatch.setattr(driver.core.runner, "run", breaking)
    failing, fine = driver.start(bad, draw_tokens(5)), driver.start(good, draw_tokens(6, 1))
    driver.run()
    assert "out of memory" in str(driver.finished[failing].error)
    assert driver.answers[fine] == greedy_continuation(model, draw_tokens(6, 1), 5)
    assert driver.core.counters.failures == 1


@pytest.mark.parametrize("policy", OnUpdate)
def test_weights_change_between_steps(policy):
    from holotron.engine.weights import load_weights

    model = tiny_model("M-M*-", seed=3)
    other = tiny_model("M-M*-", seed=3)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.1)
    driver = Driver(model)
    session = driver.core.open(on_update=policy)
    prompt = draw_tokens(9)
    said = driver.turn(session, prompt)
    load_weights(model, dict(other.named_parameters()))
    driver.core.new_epoch()
    driver.core.check()
    if policy is OnUpdate.DROP:
        assert session.closed
        return
    answer = driver.turn(session, [4])
    anew = greedy_continuation(other, [*prompt, *said, 4], 5)
    if policy is OnUpdate.RECOMPUTE:
        assert answer == anew
        assert session.epoch == 1
    else:
        assert driver.core.residence.traffic.recomputed_tokens == 0
        assert session.epoch == 0


def test_matching_finds_the_longest_computed_beginning():
    model = MODELS["hybrid"]
    driver = Driver(model, checkpoints=2, slots=20)
    a, b = driver.core.open(), driver.core.open()
    prompt = draw_tokens(10)
    said = driver.turn(a, prompt)
    driver.turn(b, draw_tokens(7, 5))
    request = [*prompt, *said, 1, 2, 3]
    assert driver.core.match(request) == (a, len(prompt) + len(said) - 1)
    # The answer was rendered differently: the end of the prompt still matches.
    changed = [*prompt, said[0], 63, 63, 2, 3]
    assert driver.core.match(changed) == (a, len(prompt))
    assert driver.core.match(draw_tokens(20, 9)) is None
    assert driver.core.match(prompt) is None, "one token at least must be left to compute"
    branch = driver.core.branch(a, len(prompt))
    assert branch is not a
    computed = driver.core.counters.computed_tokens
    assert driver.turn(branch, changed[len(prompt) :]) == greedy_continuation(model, changed, 5)
    assert driver.core.counters.computed_tokens == computed + 5 + 4
    assert driver.core.branch(a, a.computed) is a
    assert driver.turn(a, [said[-1], 1, 2]) == greedy_continuation(model, [*prompt, *said, 1, 2], 5)


def test_greedy_and_seeded_answers_do_not_depend_on_the_company():
    model = MODELS["hybrid"]
    drawn = SamplingParams(max_tokens=8, temperature=1.3, top_p=0.9, seed=11, ignore_eos=True)
    prompt = draw_tokens(12)
    alone = Driver(model)
    expected = alone.turn(alone.core.open(), prompt, drawn)
    crowd = Driver(model)
    tasks = [crowd.start(crowd.core.open(), draw_tokens(5 + i, seed=i)) for i in range(3)]
    task = crowd.start(crowd.core.open(), prompt, drawn)
    crowd.run(task, *tasks)
    assert crowd.answers[task] == expected


def test_defaults_are_greedy_enough():
    assert GREEDY.is_greedy
