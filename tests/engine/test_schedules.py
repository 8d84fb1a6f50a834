"""Hundreds of random lives of random sessions, in too little memory: every answer is right, and nothing leaks."""

import random

import pytest
import torch

from holotron.engine.errors import EngineError
from holotron.engine.images import prepare_image
from holotron.engine.sampling_params import SamplingParams
from holotron.model.tiling import ImageProcessor
from tests.engine.invariants import check_loop

from ..model.tiny import DENSE_TRANSFORMER, draw_tokens, tiny_model, tiny_qwen
from .driver import Driver
from .outside import screenshot

MODELS = {
    "hybrid": tiny_model("M-M*-", seed=3),
    "experts": tiny_model("ME*E", seed=2),
    "transformer": tiny_model(seed=4, **DENSE_TRANSFORMER),
}
SCHEDULES = 48
# Sizes of screenshots: 1 to 12 tokens for the models that see.
SIZES = ((8, 8), (24, 8), (16, 24), (24, 24), (32, 24))


def check_answers(model, sessions) -> int:
    """Every generated token is the most likely one after all tokens before it, computed from scratch."""
    checked = 0
    for session in sessions:
        if not session.turns:
            continue
        images = [span.again() for span in session.images]
        with torch.no_grad():
            embeddings = model.encode_images(images)
            (logits,) = model.score([list(session.tokens)], embeddings, [image.grids[0] for image in images])
        if vision := model.config.vision:
            markup = {vision.image_token_id, vision.image_start_token_id, vision.image_end_token_id} - {None}
            logits[:, list(markup)] = -torch.inf  # never generated
        best = logits.argmax(-1).tolist()
        for turn in session.turns:
            for at in range(turn.prompt_end, turn.end):
                assert session.tokens[at] == best[at - 1], f"token {at} of session {session.number}"
                checked += 1
    return checked


def draw_turn(driver: Driver, draw: random.Random) -> tuple[list[int], list]:
    """Tokens, and up to two screenshots among them where the model can see; now and then the same one again."""
    tokens = draw_tokens(draw.randint(1, 20), seed=draw.randint(0, 999))
    vision, images = driver.loop.model.config.vision, []
    for _ in range(draw.choice([0, 1, 1, 2]) if vision else 0):
        picture = screenshot(draw.randint(0, 5), draw.choice(SIZES))
        prepared = prepare_image(lambda picture=picture: ImageProcessor(vision)(picture))
        images.append((len(tokens), prepared))
        tokens += [vision.image_token_id] * prepared.image.tokens + draw_tokens(
            draw.randint(1, 3), seed=draw.randint(0, 9)
        )
    return tokens, images


def live(driver: Driver, draw: random.Random, failures: bool) -> list:
    """One random life of a loop."""
    loop = driver.loop
    sessions = []
    for _ in range(draw.randint(15, 40)):
        idle = [s for s in sessions if s.request is None and not s.closed]
        busy = [s for s in sessions if s.request is not None]
        choice = draw.choice(
            ["open", "turn", "turn", "turn", "step", "step", "fork", "rollback", "park", "cancel", "close"]
        )
        if choice == "open" or not sessions:
            sessions.append(loop.open())
        elif choice == "step":
            for _ in range(draw.randint(1, 6)):
                loop.step()
                check_loop(loop)
        elif choice == "cancel" and busy:
            loop.cancel(draw.choice(busy).request)
        elif idle:
            session = draw.choice(idle)
            if choice == "turn":
                tokens, images = draw_turn(driver, draw)
                length = draw.randint(1, 6)
                sampling = SamplingParams(max_tokens=length, temperature=0.0, ignore_eos=True)
                try:
                    driver.start(session, tokens, sampling, images)
                except EngineError:
                    assert len(session.tokens) + len(tokens) > 80  # too long for this pool
            elif choice == "fork" and len(sessions) < 14:
                sessions += loop.fork(session, draw.randint(1, 3))
            elif choice == "rollback" and session.turns:
                loop.rollback(session, draw.randrange(len(session.turns)), keep_prompt=draw.random() < 0.5)
            elif choice == "park":
                loop.park(session)
            elif choice == "close" and draw.random() < 0.3:
                loop.close(session)
        if failures and draw.random() < 0.05:
            driver.break_next = True
        check_loop(loop)
    driver.run()
    return sessions


def run_schedules(model, seeds: range, folder) -> tuple[int, int]:
    """Random lives in too little memory; how many generated tokens were compared, and how many sessions evicted."""
    checked = evicted = 0
    for seed in seeds:
        draw = random.Random(seed)
        driver = Driver(
            model,
            slots=draw.choice([3, 5, 9, 30]),
            pages=draw.choice([30, 60]),
            page_size=draw.choice([4, 7]),
            prefill_tokens=draw.choice([3, 8, 64]),
            max_running=draw.choice([1, 3, 50]),
            checkpoints=draw.choice([0, 1, 3]),
            host_bytes=draw.choice([0, 30_000, 2**22]),
            disk_bytes=draw.choice([0, 40_000]),
            disk_folder=folder,
        )
        driver.loop.reads_late = seed % 2 == 0  # as on a device that works beside the host
        sessions = live(driver, draw, failures=False)
        checked += check_answers(model, sessions)
        evicted += driver.loop.memory.evictions.evicted
        assert not any(event.error for event in driver.finished.values())
        for session in sessions:
            driver.loop.close(session)
        check_loop(driver.loop)
        assert driver.loop.memory.slots.free == driver.loop.config.slots - 1
        assert driver.loop.memory.pages.free == driver.loop.config.pages - 1
        driver.loop.memory.offload_store.close()
        assert list(folder.iterdir()) == []
    return checked, evicted


@pytest.mark.parametrize("kind", MODELS)
def test_random_schedules(kind, tmp_path):
    checked, evicted = run_schedules(MODELS[kind], range(SCHEDULES), tmp_path)
    assert checked > 10 * SCHEDULES
    assert evicted > SCHEDULES


@pytest.mark.parametrize("kind", ["qwen3", "experts", "qwen2.5"])
def test_random_schedules_with_images_at_positions_of_their_own(kind, tmp_path):
    """Shorter than the 200 of each that `python -m tests.engine.image_schedules` runs."""
    checked, evicted = run_schedules(tiny_model(seed=6, **tiny_qwen(kind)), range(20), tmp_path)
    assert checked > 200
    assert evicted > 10


def test_random_schedules_with_steps_that_break(tmp_path):
    """Now and then the model fails in the middle of a step. Who was in it starts over; the others never notice."""
    model = MODELS["hybrid"]
    broken = 0
    for seed in range(SCHEDULES // 2):
        draw = random.Random(1000 + seed)
        driver = Driver(model, slots=draw.choice([3, 9]), host_bytes=draw.choice([0, 2**22]), checkpoints=1)
        driver.loop.reads_late = seed % 2 == 0
        driver.break_next = False
        run = driver.loop.runner.run

        def fragile(steps, pieces, drawn, driver=driver, run=run):
            logits = run(steps, pieces, drawn)
            if driver.break_next and len(steps) + len(pieces) > 1:
                driver.break_next = False
                raise RuntimeError("the device fell over")
            return logits

        driver.loop.runner.run = fragile
        sessions = live(driver, draw, failures=True)
        broken += any(request.alone for request in driver.answers)
        assert not any(event.error for event in driver.finished.values())
        check_answers(model, [s for s in sessions if not s.closed])
    assert broken > 3
