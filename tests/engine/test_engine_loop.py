"""Continue = fork = park and resume = roll back and redo = one long prefill; and nothing leaks."""

from dataclasses import replace

import pytest
import torch

from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.prefix import branch, continue_or_open, match
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import OnUpdate, Residency
from holotron.engine.token_sampler import TokenSampler
from holotron.engine.weights import copy_weights, read_weights
from tests.engine.invariants import check_loop

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
    session = driver.loop.open()
    history = []
    for turn in range(4):
        prompt = draw_tokens(7 + turn, seed=turn)
        answer = driver.turn(session, prompt)
        assert answer == greedy_continuation(model, history + prompt, 5)
        history += prompt + answer
    assert list(session.tokens) == history
    assert driver.loop.counters.computed_tokens == len(history) - 1  # the last token was never fed
    assert len(session.turns) == 4


def test_sessions_of_all_ages_share_steps(model):
    driver = Driver(model)
    sessions = [driver.loop.open() for _ in range(5)]
    prompts = [draw_tokens(3 + 5 * i, seed=i) for i in range(5)]
    requests = [driver.start(s, p) for s, p in zip(sessions, prompts, strict=True)]
    driver.run()
    for request, prompt in zip(requests, prompts, strict=True):
        assert driver.answers[request] == greedy_continuation(model, prompt, 5)


def test_forks_compute_their_common_part_once(model):
    driver = Driver(model)
    parent = driver.loop.open()
    prompt = draw_tokens(21)
    driver.loop.append(parent, prompt)
    children = driver.loop.fork(parent, 4)
    requests = [driver.start(child, draw_tokens(i, seed=i) if i else []) for i, child in enumerate(children)]
    driver.run()
    for i, request in enumerate(requests):
        extra = draw_tokens(i, seed=i) if i else []
        assert driver.answers[request] == greedy_continuation(model, prompt + extra, 5)
    generated = sum(len(driver.answers[request]) for request in requests)
    fed = 21 + sum(range(4)) + generated - len(requests)
    assert driver.loop.counters.computed_tokens == fed
    assert driver.turn(parent) == greedy_continuation(model, prompt, 5)


def test_forks_of_a_session_in_the_middle_of_its_life(model):
    driver = Driver(model)
    parent = driver.loop.open()
    prompt = draw_tokens(9)
    said = driver.turn(parent, prompt)
    children = driver.loop.fork(parent, 2)
    assert driver.turn(children[0], [1, 2]) == greedy_continuation(model, [*prompt, *said, 1, 2], 5)
    assert driver.turn(parent, [3]) == greedy_continuation(model, [*prompt, *said, 3], 5)
    assert driver.turn(children[1], [4, 5, 6]) == greedy_continuation(model, [*prompt, *said, 4, 5, 6], 5)


def test_park_and_resume(model, tmp_path):
    for where in ({}, {"host_bytes": 0, "disk_bytes": 2**24, "disk_folder": tmp_path}):
        driver = Driver(model, **where)
        session = driver.loop.open()
        prompt = draw_tokens(13)
        said = driver.turn(session, prompt)
        computed = driver.loop.counters.computed_tokens
        driver.loop.park(session)
        assert session.residency is (Residency.DISK if where else Residency.HOST)
        check_loop(driver.loop)
        assert driver.turn(session, [5]) == greedy_continuation(model, [*prompt, *said, 5], 5)
        assert driver.loop.counters.computed_tokens == computed + 2 + 4
        assert session.residency is Residency.GPU


def test_a_lost_session_is_computed_again(model):
    driver = Driver(model, host_bytes=0)
    session = driver.loop.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)
    driver.loop.park(session)
    assert session.residency is Residency.NONE
    assert driver.turn(session, [5]) == greedy_continuation(model, [*prompt, *said, 5], 5)
    assert driver.loop.memory.evictions.recomputed_tokens == 17


def test_a_copy_lost_before_sampling_is_computed_again(model):
    """All of the session was computed and only a token is to be drawn, when its offloaded memory is found lost."""
    driver = Driver(model)
    lost, other = driver.loop.open(), driver.loop.open()
    prompts = [draw_tokens(9, seed=1), draw_tokens(11, seed=2)]
    computed = [driver.start(s, p, None) for s, p in zip((lost, other), prompts, strict=True)]
    driver.run(*computed)
    driver.loop.park(lost)
    driver.loop.memory.offload_store._release_host(lost.offloaded)
    assert lost.logits is not None
    requests = [driver.start(lost), driver.start(other)]
    driver.run()
    for request, prompt in zip(requests, prompts, strict=True):
        assert driver.finished[request].error is None
        assert driver.answers[request] == greedy_continuation(model, prompt, 5)


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 5])
def test_rollback_and_redo(model, checkpoints):
    driver = Driver(model, checkpoints=checkpoints, slots=20)
    session = driver.loop.open()
    first, second = draw_tokens(6, 1), draw_tokens(5, 2)
    one = driver.turn(session, first)
    two = driver.turn(session, second)
    driver.loop.rollback(session, -1, keep_prompt=True)
    assert driver.turn(session) == two
    driver.loop.rollback(session, 1)
    assert list(session.tokens) == first + one
    other = draw_tokens(4, 3)
    assert driver.turn(session, other) == greedy_continuation(model, first + one + other, 5)
    driver.loop.rollback(session, 0)
    assert list(session.tokens) == []
    assert driver.turn(session, second) == greedy_continuation(model, second, 5)


def test_checkpoints_make_redoing_free():
    driver = Driver(MODELS["hybrid"], checkpoints=2)
    session = driver.loop.open()
    prompt = draw_tokens(30)
    said = driver.turn(session, prompt)
    before = driver.loop.counters.computed_tokens
    for _ in range(3):
        driver.loop.rollback(session, 0, keep_prompt=True)
        assert driver.turn(session) == said
    assert driver.loop.counters.computed_tokens == before + 3 * 4  # only what is generated
    assert driver.loop.memory.evictions.recomputed_tokens == 0


@pytest.mark.parametrize("kind", MODELS)
def test_by_default_going_back_a_turn_and_the_same_prompt_are_free(kind):
    model = MODELS[kind]
    driver = Driver(model, slots=20)
    first, second = draw_tokens(30), draw_tokens(6, 2)
    session = driver.loop.open(pool="p")
    one = driver.turn(session, first)
    two = driver.turn(session, second)
    counters, evictions = driver.loop.counters, driver.loop.memory.evictions
    driver.loop.rollback(session, -1)
    before = counters.computed_tokens
    assert driver.turn(session, second) == two
    assert counters.computed_tokens <= before + 1 + len(second) + 4  # the last token of the answer before it
    driver.loop.rollback(session, -1, keep_prompt=True)
    before = counters.computed_tokens
    assert driver.turn(session) == two
    assert counters.computed_tokens <= before + 1 + 4
    prompt = [*first, *one, *second]
    before = counters.computed_tokens
    for _ in range(2):
        same, known = continue_or_open(driver.loop, prompt, (), "p")
        assert known >= len(prompt) - 1
        assert driver.turn(same, prompt[known:]) == two
    assert counters.computed_tokens <= before + 2 * 5
    assert evictions.dropped == 0


@pytest.mark.parametrize("kind", MODELS)
def test_a_fork_after_some_turns_is_the_session_as_it_was(kind):
    model = MODELS[kind]
    driver = Driver(model, slots=20, pages=80)
    session = driver.loop.open()
    prompts = [draw_tokens(6, seed) for seed in range(3)]
    said = [driver.turn(session, prompt) for prompt in prompts]
    other = draw_tokens(4, 9)
    tokens: list[int] = []
    for turns in range(4):
        before = driver.loop.counters.computed_tokens
        fork = driver.loop.fork_after(session, turns)
        assert list(fork.tokens) == tokens
        assert driver.turn(fork, other) == greedy_continuation(model, tokens + other, 5)
        if turns >= 2:  # the starts of the last two turns are held
            assert driver.loop.counters.computed_tokens <= before + 1 + len(other) + 4
        tokens += [*prompts[turns], *said[turns]] if turns < 3 else []
    assert list(session.tokens) == tokens
    with pytest.raises(EngineError, match="no 4 turns"):
        driver.loop.fork_after(session, 4)


def test_a_checkpoint_beyond_the_configured_number_takes_no_place_from_a_session():
    """Four slots are enough for two sessions with a checkpoint each, whatever the first keeps besides."""
    driver = Driver(MODELS["hybrid"], slots=5)
    sessions = [driver.loop.open() for _ in range(2)]
    driver.turn(sessions[0], draw_tokens(6))
    driver.turn(sessions[0], draw_tokens(6, 1))
    assert len(sessions[0].checkpoints) == 2
    driver.turn(sessions[1], draw_tokens(6, 2))
    driver.turn(sessions[1], draw_tokens(6, 3))
    requests = [driver.start(session, draw_tokens(4, 4 + i)) for i, session in enumerate(sessions)]
    driver.run(*requests)
    assert driver.loop.memory.evictions.evicted == 0


def test_sessions_left_behind_give_their_checkpoints_to_the_newest():
    """Else none could be gone back to once what was left behind fills the memory."""
    driver = Driver(MODELS["hybrid"], slots=9, checkpoints=1)
    for number in range(8):
        session = driver.loop.open(pool="p")
        driver.turn(session, draw_tokens(6, number))
        session.left_at = float(number)
        assert len(session.checkpoints) >= 1
    assert driver.loop.memory.slots.free == 0
    held = driver.loop.open()  # of a client that has its session
    driver.turn(held, draw_tokens(6, 9))
    assert len(held.checkpoints) == 1
    check_loop(driver.loop)


def test_a_session_evicted_with_room_it_did_not_use_comes_back(model):
    """It was given pages for tokens that another step then did not compute; they are not part of what is kept."""
    driver = Driver(model)
    session = driver.loop.open()
    first = driver.start(session, draw_tokens(6))
    driver.run(first)
    memory = driver.loop.memory
    assert memory.secure(session, 20, ())
    memory.evict(session)
    check_loop(driver.loop)
    second = driver.start(session, draw_tokens(5, seed=1))
    driver.run(second)
    history = draw_tokens(6) + driver.answers[first] + draw_tokens(5, seed=1)
    assert driver.answers[second] == greedy_continuation(model, history, 5)
    assert memory.evictions.recomputed_tokens == 0


def test_many_sessions_in_little_room(model, tmp_path):
    """Forty sessions on slots for five: evicted to host memory, then to disk; the tokens are the same."""
    small = {"slots": 6, "pages": 30, "host_bytes": 40_000, "disk_bytes": 60_000, "disk_folder": tmp_path}
    driver = Driver(model, **small)
    sessions = [driver.loop.open() for _ in range(40)]
    histories = [[] for _ in sessions]
    for turn in range(2):
        prompts = [draw_tokens(3 + i % 7, seed=100 * turn + i) for i in range(40)]
        requests = [driver.start(s, p) for s, p in zip(sessions, prompts, strict=True)]
        driver.run()
        for history, prompt, request in zip(histories, prompts, requests, strict=True):
            assert driver.answers[request] == greedy_continuation(model, history + prompt, 5)
            history += prompt + driver.answers[request]
    evictions = driver.loop.memory.evictions
    assert evictions.evicted >= 35
    for session in sessions:
        driver.loop.close(session)
    check_loop(driver.loop)
    assert driver.loop.memory.slots.free == 5
    assert driver.loop.memory.pages.free == 29
    assert driver.loop.memory.offload_store.host_used == driver.loop.memory.offload_store.disk_used == 0


def test_a_damaged_file_on_disk_means_computing_again(model, tmp_path):
    driver = Driver(model, host_bytes=0, disk_bytes=2**24, disk_folder=tmp_path)
    session = driver.loop.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)
    for damage in (lambda f: f.write_bytes(f.read_bytes()[:100]), lambda f: f.unlink()):
        driver.loop.park(session)
        damage(next(tmp_path.glob("session-*")))
        driver.loop.rollback(session, -1, keep_prompt=True)
        assert driver.turn(session) == said


def test_a_full_disk_means_computing_again(model, tmp_path, monkeypatch):
    from holotron.engine import offload

    driver = Driver(model, host_bytes=0, disk_bytes=2**24, disk_folder=tmp_path)
    session = driver.loop.open()
    prompt = draw_tokens(13)
    said = driver.turn(session, prompt)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(offload, "save_file", full)
    driver.loop.park(session)
    assert session.residency is Residency.NONE
    assert list(tmp_path.iterdir()) == []
    assert driver.turn(session, [7]) == greedy_continuation(model, [*prompt, *said, 7], 5)


def test_cancelling_frees_and_keeps_what_was_said(model):
    driver = Driver(model)
    session, other = driver.loop.open(), driver.loop.open()
    long = SamplingParams(max_tokens=50, temperature=0.0, ignore_eos=True)
    prompt = draw_tokens(5)
    request, neighbour = driver.start(session, prompt, long), driver.start(other, draw_tokens(6, 1))
    while len(driver.answers[request]) < 3:
        driver.loop.step()
    driver.loop.cancel(request)
    check_loop(driver.loop)
    assert driver.finished[request].reason == "cancelled"
    said = list(driver.answers[request])
    driver.run(neighbour)
    assert driver.answers[neighbour] == greedy_continuation(model, draw_tokens(6, 1), 5)
    assert driver.turn(session, [1]) == greedy_continuation(model, [*prompt, *said, 1], 5)


def test_requests_that_cannot_be(model):
    driver = Driver(model)
    session = driver.loop.open("a")
    with pytest.raises(EngineError, match="exists already"):
        driver.loop.open("a")
    with pytest.raises(EngineError, match="nothing to continue"):
        driver.start(session)
    with pytest.raises(EngineError, match="token 1 is 64; ids lie between 0 and 63"):
        driver.loop.append(session, [3, 64])
    with pytest.raises(EngineError, match="token 0 is -1"):
        driver.loop.append(session, [-1])
    with pytest.raises(TooLong, match="129 tokens are more than the 128"):
        driver.loop.append(session, [1] * 129)
    driver.loop.append(session, [1] * 100)
    with pytest.raises(TooLong):
        driver.start(session, [], SamplingParams(max_tokens=29))
    with pytest.raises(EngineError, match="no turn 0"):
        driver.loop.rollback(session, 0)
    with pytest.raises(EngineError, match="fork into 0"):
        driver.loop.fork(session, 0)
    request = driver.start(session)
    with pytest.raises(SessionBusy):
        driver.loop.append(session, [1])
    with pytest.raises(SessionBusy):
        driver.loop.fork(session, 1)
    driver.run(request)
    driver.loop.close(session)
    driver.loop.close(session)
    with pytest.raises(SessionClosed):
        driver.loop.append(session, [1])
    with pytest.raises(SessionClosed, match="no session 'a'"):
        driver.loop.find("a")


def test_tokens_that_are_read_late_are_the_same(model):
    """A step may run before the last one's tokens are read: also where one of them ends its text, and what follows."""
    ends = {answer[-2] for seed in range(3) for answer in [greedy_continuation(model, draw_tokens(9, seed), 6)]}
    lives, computed = [], []
    for late in (False, True):
        driver = Driver(model, checkpoints=1)
        driver.loop.reads_late = late
        driver.loop.sampler = TokenSampler(replace(model.config, eos_token_ids=tuple(ends)))
        sessions, answers = [driver.loop.open() for _ in range(3)], []
        for turn in range(3):  # the last one says more without being asked anything
            prompts = [draw_tokens(9, seed) if turn < 2 else [] for seed in range(3)]
            turns = zip(sessions, prompts, strict=True)
            requests = [driver.start(*each, SamplingParams(max_tokens=9, temperature=0.0)) for each in turns]
            driver.run()
            answers += [(driver.answers[request], driver.finished[request].reason) for request in requests]
        assert {reason for _, reason in answers} >= {"eos"}
        lives.append([answers, [(list(session.tokens), session.turns) for session in sessions]])
        computed.append(driver.loop.counters.computed_tokens)
    assert lives[0] == lives[1]
    assert computed[0] != computed[1], "no step ran ahead"


@pytest.mark.parametrize("late", [False, True])
def test_not_a_number_fails_alone(model, late, monkeypatch):
    driver = Driver(model)
    driver.loop.reads_late = late
    bad, good = driver.loop.open(), driver.loop.open()
    run = driver.loop.runner.run

    def poisoned(steps, pieces, drawn):
        logits = run(steps, pieces, drawn).clone()
        for row, session in enumerate([*steps, *(piece.session for piece in pieces)]):
            if session is bad and len(session.tokens) > 6:
                logits[row] = float("nan")
        return logits

    monkeypatch.setattr(driver.loop.runner, "run", poisoned)
    failing, fine = driver.start(bad, draw_tokens(5)), driver.start(good, draw_tokens(6, 1))
    driver.run()
    assert driver.finished[failing].reason == "failed"
    assert "NaN" in str(driver.finished[failing].error)
    assert driver.answers[fine] == greedy_continuation(model, draw_tokens(6, 1), 5)


def test_nothing_is_unread_while_a_graph_is_recorded(model, monkeypatch):
    driver, unread = Driver(model), []
    driver.loop.reads_late = True
    monkeypatch.setattr(driver.loop.runner, "is_recorded", lambda decode: len(decode) != 2)
    run = driver.loop.runner.run

    def watched(decode, prefill, drawn):
        unread.append((len(decode), drawn is not None))
        return run(decode, prefill, drawn)

    monkeypatch.setattr(driver.loop.runner, "run", watched)
    for count, seed in ((14, 0), (5, 1), (7, 2)):
        driver.start(driver.loop.open(), draw_tokens(9, seed), replace(GREEDY, max_tokens=count))
    driver.run()
    assert (2, True) not in unread
    assert {(3, True), (2, False), (1, True)} <= set(unread)


def test_a_step_that_fails_beside_unread_tokens_ends_late_reading(model, monkeypatch):
    driver = Driver(model)
    driver.loop.reads_late = True
    requests = [driver.start(driver.loop.open(), draw_tokens(6, seed), GREEDY) for seed in range(2)]
    run, failed = driver.loop.runner.run, []

    def breaking(decode, prefill, drawn):
        if drawn is not None and not failed:
            failed.append(drawn)
            raise RuntimeError("the device fell over")
        return run(decode, prefill, drawn)

    monkeypatch.setattr(driver.loop.runner, "run", breaking)
    driver.run()
    assert failed
    assert not driver.loop.reads_late
    for seed, request in enumerate(requests):
        assert driver.answers[request] == greedy_continuation(model, draw_tokens(6, seed), 5)


def test_steps_without_an_unread_token_put_none_in_its_place(model, monkeypatch):
    """Where all that were drawn for have ended or were evicted."""
    driver = Driver(model)
    driver.loop.reads_late = True
    driver.start(driver.loop.open(), draw_tokens(6), GREEDY)
    while driver.loop._drawn is None:
        driver.loop.step()
    tokens, other = torch.tensor([7, 8]), driver.loop.open()
    monkeypatch.setattr(driver.loop.runner, "_to_device", None)  # nothing crosses
    driver.loop.runner.take_drawn(tokens, [other, other], driver.loop._drawn)
    assert tokens.tolist() == [7, 8]


def test_a_step_that_breaks_is_tried_again_one_by_one(model, monkeypatch):
    driver = Driver(model)
    bad, good = driver.loop.open(), driver.loop.open()
    run = driver.loop.runner.run

    def breaking(steps, pieces, drawn):
        if bad in [*steps, *(piece.session for piece in pieces)]:
            raise RuntimeError("out of memory")
        return run(steps, pieces, drawn)

    monkeypatch.setattr(driver.loop.runner, "run", breaking)
    failing, fine = driver.start(bad, draw_tokens(5)), driver.start(good, draw_tokens(6, 1))
    driver.run()
    assert "out of memory" in str(driver.finished[failing].error)
    assert driver.answers[fine] == greedy_continuation(model, draw_tokens(6, 1), 5)
    assert driver.loop.counters.failures == 1


@pytest.mark.parametrize("policy", OnUpdate)
def test_weights_change_between_steps(policy):
    model = tiny_model("M-M*-", seed=3)
    other = tiny_model("M-M*-", seed=3)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.1)
    driver = Driver(model)
    session = driver.loop.open(on_update=policy)
    prompt = draw_tokens(9)
    said = driver.turn(session, prompt)
    copy_weights(model, read_weights(model, dict(other.named_parameters())))
    driver.loop.new_epoch()
    check_loop(driver.loop)
    if policy is OnUpdate.DROP:
        assert session.closed
        return
    answer = driver.turn(session, [4])
    anew = greedy_continuation(other, [*prompt, *said, 4], 5)
    if policy is OnUpdate.RECOMPUTE:
        assert answer == anew
        assert session.epoch == 1
    else:
        assert driver.loop.memory.evictions.recomputed_tokens == 0
        assert session.epoch == 0


def test_matching_finds_the_longest_computed_beginning():
    model = MODELS["hybrid"]
    driver = Driver(model, checkpoints=2, slots=20)
    a, b = driver.loop.open(), driver.loop.open()
    prompt = draw_tokens(10)
    said = driver.turn(a, prompt)
    driver.turn(b, draw_tokens(7, 5))
    request = [*prompt, *said, 1, 2, 3]
    assert match(driver.loop, request) == (a, len(prompt) + len(said) - 1)
    # The answer was rendered differently: the end of the prompt still matches.
    changed = [*prompt, said[0], 63, 63, 2, 3]
    assert match(driver.loop, changed) == (a, len(prompt))
    assert match(driver.loop, draw_tokens(20, 9)) is None
    assert match(driver.loop, prompt) == (a, len(prompt))  # its logits were kept
    assert match(driver.loop, prompt[:-1]) is None
    forked = branch(driver.loop, a, len(prompt))
    assert forked is not a
    computed = driver.loop.counters.computed_tokens
    assert driver.turn(forked, changed[len(prompt) :]) == greedy_continuation(model, changed, 5)
    assert driver.loop.counters.computed_tokens == computed + 5 + 4
    assert branch(driver.loop, a, a.computed) is a
    assert driver.turn(a, [said[-1], 1, 2]) == greedy_continuation(model, [*prompt, *said, 1, 2], 5)


def test_greedy_and_seeded_answers_do_not_depend_on_the_company():
    model = MODELS["hybrid"]
    drawn = SamplingParams(max_tokens=8, temperature=1.3, top_p=0.9, seed=11, ignore_eos=True)
    prompt = draw_tokens(12)
    alone = Driver(model)
    expected = alone.turn(alone.loop.open(), prompt, drawn)
    crowd = Driver(model)
    requests = [crowd.start(crowd.loop.open(), draw_tokens(5 + i, seed=i)) for i in range(3)]
    request = crowd.start(crowd.loop.open(), prompt, drawn)
    crowd.run(request, *requests)
    assert crowd.answers[request] == expected


def test_defaults_are_greedy_enough():
    assert GREEDY.is_greedy


def test_prompts_wait_for_their_step_and_change_nothing(model):
    """With prefill_every sessions decode alone in the steps between; answers are those of every step."""
    prompts = [draw_tokens(5 + i, seed=i) for i in range(6)]
    answers = []
    for every in (1, 3):
        driver = Driver(model, prefill_every=every)
        requests = [driver.start(driver.loop.open(), prompt) for prompt in prompts]
        driver.run()
        answers.append([driver.answers[request] for request in requests])
    assert answers[0] == answers[1]


def test_between_prefills_steps_only_decode(model):
    driver = Driver(model, prefill_every=4, prefill_tokens=64)
    first = driver.start(driver.loop.open(), draw_tokens(6), SamplingParams(max_tokens=40, ignore_eos=True))
    driver.loop.step()
    late = [driver.start(driver.loop.open(), draw_tokens(4, seed=i)) for i in range(2)]
    taken = []
    for _ in range(8):
        driver.loop.step()
        taken.append(sum(bool(driver.answers[request]) for request in late))
    assert taken == sorted(taken)
    assert taken[0] == 0
    assert taken[-1] == 2
    assert len(driver.answers[first]) >= 8  # it did not wait for them
