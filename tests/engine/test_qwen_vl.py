"""Qwen's vision-language models in sessions: the logits and answers of transformers, whatever happens in between."""

from functools import partial

import pytest
import torch

pytest.importorskip("transformers")

from holotron.engine.errors import EngineError
from holotron.engine.images import prepare_image
from holotron.engine.sampling_params import SamplingParams
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.tiling import ImageProcessor, ProcessedImage
from tests.engine.driver import GREEDY, Driver
from tests.engine.outside import engine_for, screenshot
from tests.model import oracle, qwen_oracle
from tests.model.tiny import IMAGE_TOKEN, draw_tokens, tiny_model, tiny_qwen

TURNS = ([(4, 6), (2, 2)], [], [(6, 4), (2, 8)])


def placed(places: list[tuple[int, ProcessedImage]]) -> list:
    return [(start, prepare_image(partial(lambda image: image, image))) for start, image in places]


def greedy(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)


def load_both(kind: str, seed: int, folder) -> tuple:
    """Both in float64; transformers' is made and used inside `in_float64`."""
    theirs = qwen_oracle.make_qwen_vl(seed, kind)
    ours = load_checkpoint(oracle.save(theirs, folder / "model"), dtype=torch.float64)
    return ours, theirs


def big(model, **changes) -> Driver:
    return Driver(model, **({"pages": 100, "page_size": 4, "prefill_tokens": 7, "max_context": 300} | changes))


@pytest.mark.parametrize("kind", qwen_oracle.KINDS)
def test_logits_of_sessions_side_by_side(kind, tmp_path):
    """Prompts of unequal lengths, cut inside images and computed together."""
    ours, theirs = load_both(kind, 5, tmp_path)
    drawn = [qwen_oracle.prompt(seed, grids) for seed, grids in enumerate([[], [(4, 6)], [(2, 2), (8, 6), (6, 4)]])]
    driver = big(ours)
    sessions = []
    for ids, places in drawn:
        sessions.append(driver.loop.open())
        driver.start(sessions[-1], ids, None, placed(places))
    driver.run()
    with oracle.in_float64():
        exact = qwen_oracle.exactly(theirs)
        for session, (ids, places) in zip(sessions, drawn, strict=True):
            expected = qwen_oracle.their_logits(exact, ids, [image for _, image in places])
            assert oracle.difference(session.logits, expected[-1]) < 1e-9


@pytest.mark.parametrize("kind", qwen_oracle.KINDS)
def test_greedy_answers_in_one_turn_and_in_three(kind, tmp_path):
    ours, theirs = load_both(kind, 6, tmp_path)
    drawn = [qwen_oracle.prompt(20 + seed, grids) for seed, grids in enumerate(TURNS)]
    counts = (21, 21, 22)
    driver = big(ours)
    session, history, images, given = driver.loop.open(), [], [], []
    for (ids, places), count in zip(drawn, counts, strict=True):
        answer = driver.turn(session, ids, greedy(count), placed(places))
        given.append((list(history) + ids, list(images) + [image for _, image in places], answer))
        history += ids + answer
        images += [image for _, image in places]
    ids, places = drawn[2]
    single = driver.turn(driver.loop.open(), ids, greedy(64), placed(places))
    with oracle.in_float64():
        exact = qwen_oracle.exactly(theirs)
        for prompt, seen, answer in given:
            assert answer == qwen_oracle.their_answer(exact, prompt, seen, len(answer))
        expected = qwen_oracle.their_answer(exact, ids, [image for _, image in places], 64)
    assert single == expected
    assert len(set(single)) > 5, "the oracle says the same all the time"


@pytest.mark.parametrize("kind", qwen_oracle.KINDS)
def test_positions_after_forks_rollback_and_eviction(kind):
    """A second image after each of them: its place, and that of what follows, is moved by the first alone."""
    model = tiny_model(seed=7, **tiny_qwen(kind))
    first, second = (tiny_image(model, seed, size) for seed, size in ((1, (32, 24)), (2, (24, 8))))
    driver = big(model, host_bytes=0)
    session = driver.loop.open()
    driver.turn(session, *turn_with(first, 1))
    (fork,) = driver.loop.fork(session, 1)
    driver.run()
    driver.turn(session, *turn_with(second, 2))
    rolled_back = list(session.tokens)
    driver.loop.rollback(session, 1)
    driver.turn(session, *turn_with(second, 2))
    assert list(session.tokens) == rolled_back
    driver.turn(fork, *turn_with(second, 2))
    assert list(fork.tokens) == rolled_back
    driver.loop.park(fork)
    assert fork.computed == 0  # there is no room for a copy: it is computed again, images and all
    embeddings = model.encode_images([first, second])
    for other in (session, fork):
        answer = driver.turn(other, [7])
        with torch.no_grad():
            (logits,) = model.score([list(other.tokens)], embeddings, [first.grids[0], second.grids[0]])
        logits[:, IMAGE_TOKEN] = -torch.inf
        assert answer == logits.argmax(-1)[-6:-1].tolist()


def tiny_image(model, seed, size) -> ProcessedImage:
    return ImageProcessor(model.config.vision)(screenshot(seed, size))


def turn_with(image: ProcessedImage, seed: int) -> tuple:
    before = draw_tokens(4, seed)
    tokens = [*before, *[IMAGE_TOKEN] * image.tokens, *draw_tokens(2, seed + 1)]
    return tokens, GREEDY, placed([(len(before), image)])


async def test_a_request_without_a_session_goes_on_behind_images():
    model = tiny_model(seed=8, **tiny_qwen("qwen3"))
    with engine_for(model) as engine:
        prepared = await engine.prepare_image(screenshot(3))
        prompt = [1, 2, *[IMAGE_TOKEN] * prepared.image.tokens, 3, 4]
        images = [(2, prepared)]
        session, known = engine.continue_or_open(prompt, images)
        assert known == 0
        said = (await session.generate(prompt, GREEDY, images=images)).token_ids
        longer = [*prompt, *said, 5, 6]
        other, known = engine.continue_or_open(longer, images)
        assert known >= len(prompt)
        answer = (await other.generate(longer[known:], GREEDY)).token_ids
        alone = await engine.open_session().generate(longer, GREEDY, images=images)
        assert answer == alone.token_ids


def test_old_screenshots_cannot_be_given_back():
    driver = big(tiny_model(seed=8, **tiny_qwen("qwen3")))
    with pytest.raises(EngineError, match="rotary positions or no state"):
        driver.loop.open(keep_images=1)
