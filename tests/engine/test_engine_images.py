"""Screenshots in sessions: seen exactly, encoded once, seen again when they must be, refused when they do not fit."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from holotron.engine.errors import EngineError
from holotron.engine.images import ImageEncoder, ImageSpan, prepare_image
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import Residency
from holotron.engine.warm_up import warm_up
from holotron.model.errors import ImageError
from holotron.model.tiling import ImageProcessor
from tests.engine.driver import GREEDY
from tests.engine.outside import check, engine_for, png, screenshot, seen_continuation, settle, with_image
from tests.model.tiny import IMAGE_TOKEN, tiny_model, tiny_vision


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def seer():
    return tiny_model("M-*-", vision=tiny_vision())


@pytest.fixture(scope="module")
def tiler():
    return tiny_model("M-*-", vision=tiny_vision(mode="tiles"))


@pytest.mark.parametrize("prefill_tokens", [3, 64])
@pytest.mark.parametrize("kind", ["seer", "tiler"])
async def test_images_in_every_form(kind, prefill_tokens, request, tmp_path):
    model, picture = request.getfixturevalue(kind), screenshot(0)
    path = tmp_path / "screen.png"
    path.write_bytes(png(picture))
    processed = ImageProcessor(model.config.vision)(picture)
    with engine_for(model, prefill_tokens=prefill_tokens) as engine:
        forms = [png(picture), picture, processed, path]
        prepared = await asyncio.gather(*(engine.prepare_image(form) for form in forms))
        assert len({each.key for each in prepared}) == 1
        path.unlink()
        tokens, images = with_image(prepared[0])
        expected = seen_continuation(model, tokens, [processed])
        assert expected != seen_continuation(model, tokens, [ImageProcessor(model.config.vision)(screenshot(1))])
        sessions = [engine.open_session() for _ in forms]
        for session, each in zip(sessions, prepared, strict=True):
            answer = await session.generate(tokens, GREEDY, images=[(images[0][0], each)])
            assert answer.token_ids == expected
        encoder = engine.loop.encoder
        assert encoder.encoded_parts == len(processed.grids)
        assert encoder.reused_parts == 3 * len(processed.grids)
        # A second turn with another image, and a third without.
        second = await engine.prepare_image(screenshot(1))
        more, places = with_image(second)
        said = await sessions[3].generate(more, GREEDY, images=places)
        history = [*tokens, *expected, *more]
        assert said.token_ids == seen_continuation(model, history, [processed, second.image])
        history += [*said.token_ids, 7]
        said = await sessions[3].generate([7], GREEDY)
        assert said.token_ids == seen_continuation(model, history, [processed, second.image])
        check(engine)


def test_the_same_bytes_in_another_shape_are_another_image(seer):
    data = bytes(range(256)) * 9  # 24 x 32 pixels, or 32 x 24
    processor = ImageProcessor(replace(seer.config.vision, min_patches=36, max_patches=36))
    wide, tall, again = (
        prepare_image(lambda size=size: processor(Image.frombytes("RGB", size, data)))
        for size in [(32, 24), (24, 32), (32, 24)]
    )
    assert len(data) < wide.image.patches.nbytes  # so that the pixels are hashed
    assert wide.key == again.key
    assert wide.key != tall.key


async def test_the_same_screenshot_at_the_same_time_is_encoded_once(seer):
    with engine_for(seer, prefill_tokens=64) as engine:
        one, two = await asyncio.gather(*(engine.prepare_image(png(screenshot(4))) for _ in range(2)))
        tokens, places = with_image(one)
        answers = await asyncio.gather(
            engine.open_session().generate(tokens, GREEDY, images=places),
            engine.open_session().generate(tokens, GREEDY, images=[(places[0][0], two)]),
        )
        assert answers[0].token_ids == answers[1].token_ids == seen_continuation(seer, tokens, [one.image])
        assert (engine.loop.encoder.encoded_parts, engine.loop.encoder.reused_parts) == (1, 1)


async def test_the_image_token_may_lie_beyond_the_vocabulary():
    model = tiny_model("M-*-", vision=tiny_vision(image_token_id=1000))
    with engine_for(model) as engine:
        prepared = await engine.prepare_image(screenshot(0))
        tokens = [1, *[1000] * prepared.image.tokens, 2]
        params = SamplingParams(5, 0.0, ignore_eos=True, presence_penalty=0.001)
        answer = await engine.open_session().generate(tokens, params, images=[(1, prepared)])
        assert answer.token_ids == seen_continuation(model, tokens, [prepared.image], banned=(61, 62))
        with pytest.raises(EngineError, match=r"1 places .* take 0"):
            await engine.open_session().generate([1000], GREEDY)


async def test_a_lost_session_sees_its_images_again(seer):
    with engine_for(seer, host_bytes=0, image_cache_bytes=0, prefill_tokens=5) as engine:
        session, prepared = engine.open_session(), await engine.prepare_image(png(screenshot(2)))
        tokens, places = with_image(prepared)
        said = (await session.generate(tokens, GREEDY, images=places)).token_ids
        session.park()
        assert session.info.residency is Residency.NONE
        again = await session.generate([8], GREEDY)
        assert again.token_ids == seen_continuation(seer, [*tokens, *said, 8], [prepared.image])
        assert engine.loop.encoder.encoded_parts == 2
        fork = session.fork(1)[0]
        history = session.token_ids
        answer = await fork.generate([9], GREEDY)
        assert answer.token_ids == seen_continuation(seer, [*history, 9], [prepared.image])


async def test_old_screenshots_are_given_back(seer):
    sizes = {}
    for keep in (None, 1):
        with engine_for(seer, page_size=2, pages=400) as engine:
            session, sizes[keep] = engine.open_session(keep_images=keep), []
            for turn in range(6):
                prepared = await engine.prepare_image(screenshot(turn))
                tokens, places = with_image(prepared, (1,), ())
                await session.generate(tokens, SamplingParams(1, 0.0), images=places)
                sizes[keep].append(session.info.device_bytes)
            check(engine)
            page = engine.loop.runner.memory.page_bytes
    grown = [b - a for a, b in zip(sizes[None], sizes[None][1:], strict=False)]
    assert min(grown) >= prepared.image.tokens // 2 * page
    # What stays are the few tokens around each screenshot, and from the second turn on a state to go back to.
    assert max(b - a for a, b in zip(sizes[1][2:], sizes[1][3:], strict=False)) <= 4 * page
    assert sizes[1][-1] < sizes[None][-1] * 0.6


async def test_broken_images_and_blind_models(seer, model):
    with engine_for(seer) as engine:
        for broken in (b"", b"not an image", png(screenshot(0))[:60]):
            with pytest.raises(ImageError):
                await engine.prepare_image(broken)
        session, prepared = engine.open_session(), await engine.prepare_image(screenshot(0))
        count = prepared.image.tokens
        tokens, places = with_image(prepared)
        start = places[0][0]
        for bad, where in (
            ([t for i, t in enumerate(tokens) if i != start], places),
            ([1, *[IMAGE_TOKEN] * (count + 2)], [(1, prepared)]),
            (tokens, []),
        ):
            found = bad.count(IMAGE_TOKEN)
            with pytest.raises(EngineError, match=f"{found} places .* take {count if where else 0}"):
                await session.generate(bad, GREEDY, images=where)
        for offset, found in ((start - 1, count - 1), (start + 1, count - 1), (-1, 0), (500, 0)):
            with pytest.raises(EngineError, match=f"{count} tokens finds {found} free places at offset {offset}"):
                await session.generate(tokens, GREEDY, images=[(offset, prepared)])
        doubled = [1, *[IMAGE_TOKEN] * 2 * count]
        with pytest.raises(EngineError, match="finds 0 free places"):
            await session.generate(doubled, GREEDY, images=[(1, prepared), (2, prepared)])
        assert session.token_ids == []
        answer = await session.generate(tokens, GREEDY, images=places)
        assert answer.token_ids == seen_continuation(seer, tokens, [prepared.image])
    with pytest.raises(EngineError, match="closed"):
        await engine.prepare_image(screenshot(0))
    with engine_for(model) as blind:
        with pytest.raises(EngineError, match="no vision tower"):
            await blind.prepare_image(screenshot(0))
        with pytest.raises(EngineError, match="no vision tower"):
            await blind.open_session().generate([1] * 40, GREEDY, images=[(0, prepared)])
        session = blind.open_session()
        session.append([1])
        with pytest.raises(EngineError, match="no vision tower"):
            await session.generate(images=[(0, prepared)])


async def test_another_image_is_another_history(seer):
    with engine_for(seer) as engine:
        one, two = [await engine.prepare_image(screenshot(seed)) for seed in (0, 1)]
        tokens, places = with_image(one)
        session, _ = engine.continue_or_open(tokens, places)
        said = (await session.generate(tokens, GREEDY, images=places)).token_ids
        longer = [*tokens, *said, 5]
        assert engine.continue_or_open(longer, [(places[0][0], two)])[1] == 0
        same, known = engine.continue_or_open(longer, places)
        assert (same.id, known) == (session.id, len(longer) - 1)
        answer = await same.generate(longer[known:], GREEDY)
        assert answer.token_ids == seen_continuation(seer, longer, [one.image])


async def test_no_request_continues_in_the_middle_of_an_image(seer):
    with engine_for(seer, prefill_tokens=4) as engine:
        prepared = await engine.prepare_image(screenshot(0))
        tokens, places = with_image(prepared)
        session = engine.open_session()
        session.append(tokens, places)
        caller = asyncio.create_task(session.compute())
        while not session.info.computed > 3:
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        await settle(session)
        if 3 < session.info.computed < 3 + prepared.image.tokens:
            assert engine.continue_or_open(tokens, places)[1] == 0
        answer = await session.generate(sampling=GREEDY)
        assert answer.token_ids == seen_continuation(seer, tokens, [prepared.image])


@pytest.mark.parametrize("mode", ["dynamic", "tiles"])
def test_patches_made_beside_the_encoder_are_the_same(mode):
    """Images given as pixels, several of a size and one of another, encode to the bits of host-made patches."""
    model = tiny_model("M-*", dtype=torch.float32, vision=tiny_vision(mode=mode))
    vision = model.config.vision
    generator = np.random.default_rng(3)
    shots = [
        Image.fromarray(generator.integers(0, 255, (height, width, 3), dtype=np.uint8))
        for width, height in ((40, 30), (40, 30), (70, 20))
    ]
    found = []
    for on_device in (False, True):
        processor = ImageProcessor(vision, on_device=on_device)
        prepared = [prepare_image(lambda shot=shot, make=processor: make(shot)) for shot in shots]
        assert all((each.image.patches is None) == on_device for each in prepared)
        spans = [ImageSpan(0, each.image.tokens, each.key, each.again, each) for each in prepared]
        ImageEncoder(model, 0).encode(spans)
        found.append([span.embeddings for span in spans])
    for host, device in zip(*found, strict=True):
        assert torch.equal(host, device)


def test_a_warm_up_ends_with_its_engine(seer):
    """As at Ctrl-C: what it would still compile is not waited for."""
    engine, steps = engine_for(seer, slots=9, pages=512), 0
    step = engine.loop.step

    def third_is_the_last() -> bool:
        nonlocal steps
        steps += 1
        if steps == 3:
            closing.start()
            while not engine._stopping:
                time.sleep(0.001)
        return step()

    engine.loop.step = third_is_the_last
    closing = threading.Thread(target=engine.close)
    with pytest.raises(EngineError, match="closed"):
        engine._call(lambda: warm_up(engine.loop, engine._step_while_open, 4))
    closing.join(60)
    assert steps <= 4  # one more than was under way: the loop sees its end after what it was told to do


def test_a_warm_up_leaves_nothing_behind(seer):
    """It meets prompts beside none, one and two that decode, and gives all memory back."""
    with engine_for(seer, slots=9, pages=512, prefill_tokens=1024, prefill_every=2) as engine:
        loop, met = engine.loop, set()
        run = loop.runner.run
        loop.runner.run = lambda *step: met.add((len(step[0]), len(step[1]))) or run(*step)
        free = loop.memory.slots.free, loop.memory.pages.free
        engine._call(lambda: warm_up(loop, loop.step, 4))
        assert {(0, 1), (1, 1), (2, 1), (0, 2), (0, 4)} <= met
        assert not loop.sessions
        assert (loop.memory.slots.free, loop.memory.pages.free) == free
        assert not loop.counters.failures
