"""What agents will make an engine run, run before they come: kernels are compiled and graphs recorded, not while they
wait."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.images import PreparedImage, prepare_image
from holotron.engine.pace import MOST_STEPS
from holotron.engine.requests import Event, GenerationRequest
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.model.tiling import ImageProcessor

TEXT_TOKENS = 64
SCREEN = (64, 64)


def warm_up(loop: EngineLoop, step: Callable[[], bool], sessions: int, adapter: str | None = None) -> None:
    """Sessions that are closed again: alone, beside others that decode, and in batches of up to so many.

    step: that of the loop, which raises where nothing more is wanted of it.

    Where a projection's rows are an odd multiple of 8 bytes, kernels are compiled for odd and for even numbers of
    decoding sessions: prompts come beside none, one and two.
    """
    loop.runner.record_graphs(sessions, loop.model.adapters is not None)
    image = _image(loop)
    held = [_begin(loop, image, adapter)]
    for _ in range(2):
        while (request := held[-1].request) is not None and not request.generated and step():
            pass
        held.append(_begin(loop, image, adapter))
    _finish(loop, step, held)
    count = 2
    while count <= min(sessions, loop.config.slots // 2):
        _finish(loop, step, [_begin(loop, image, adapter) for _ in range(count)])
        count *= 2


def _image(loop: EngineLoop) -> PreparedImage | None:
    vision = loop.model.config.vision
    if vision is None:
        return None
    processor = ImageProcessor(vision, on_device=loop.runner.device.type == "cuda")
    return prepare_image(lambda: processor(Image.new("RGB", SCREEN)))


def _begin(loop: EngineLoop, image: PreparedImage | None, adapter: str | None) -> SessionState:
    """A session that was asked for an answer."""
    vision = loop.model.config.vision
    ids = [0] * TEXT_TOKENS
    if vision is not None and image is not None:
        ids += [vision.image_token_id] * image.image.tokens
    # Long enough to decode still when the next prompt is taken up.
    count = 2 * (loop.config.prefill_every or MOST_STEPS) + 4
    sampling = SamplingParams(max_tokens=count, ignore_eos=True, temperature=1.0, logprobs=0)
    session = loop.open(adapter=adapter)
    loop.submit(GenerationRequest(session, _unheard, sampling), ids, [] if image is None else [(TEXT_TOKENS, image)])
    return session


def _finish(loop: EngineLoop, step: Callable[[], bool], sessions: list[SessionState]) -> None:
    while any(session.request is not None for session in sessions) and step():
        pass
    for session in sessions:
        loop.close(session)


def _unheard(_: GenerationRequest, event: Event) -> None:
    """Nobody waits for these answers."""
