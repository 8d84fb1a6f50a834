"""What tests of the engine from outside share: engines of a few tokens' size, and screenshots for them."""

from __future__ import annotations

import asyncio
import io
import time

import torch
from PIL import Image

from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.engine.sampling_params import SamplingParams
from tests.engine.invariants import check_loop
from tests.model.tiny import IMAGE_TOKEN

LONG = SamplingParams(max_tokens=4000, temperature=0.0, ignore_eos=True)


def engine_for(model, tokenizer=None, **changes):
    sizes = {"slots": 17, "pages": 160, "page_size": 4, "prefill_tokens": 16, "max_context": 256}
    rest = {"state_dtype": model.dtype, "host_bytes": 2**24}
    return Engine(model, EngineConfig(**(sizes | rest | changes)), tokenizer)


def check(engine):
    engine._call(lambda: check_loop(engine.loop))


async def settle(session, seconds=1.0):
    """Until the session is idle."""
    end = time.monotonic() + seconds
    while session.info.running:
        assert time.monotonic() < end, "the session is still at work"
        await asyncio.sleep(0.005)


def screenshot(seed, size=(32, 24)):
    pixels = torch.randint(0, 256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(pixels.byte().numpy())


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def with_image(prepared, before=(1, 2), after=(3,)):
    """Tokens with an image among them, and where it is."""
    return [*before, 61, *[IMAGE_TOKEN] * prepared.image.tokens, 62, *after], [(len(before) + 1, prepared)]


@torch.no_grad()
def seen_continuation(model, tokens, images, count=5, banned=(60, 61, 62)):
    embeddings, tokens = model.encode_images(images), list(tokens)
    for _ in range(count):
        (logits,) = model.score([tokens], embeddings)
        logits[:, banned] = -torch.inf  # markup of images is never generated
        tokens.append(int(logits[-1].argmax()))
    return tokens[-count:]
