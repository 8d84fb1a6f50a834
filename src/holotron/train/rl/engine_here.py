"""The engine in the trainer's process: it has new weights a moment after they were learned."""

from __future__ import annotations

import asyncio

from holotron.agent.in_process import EngineModel
from holotron.engine.errors import EngineError
from holotron.engine.requests import AnyEvent, FinishEvent, PromptEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.train.learner import Learner
from holotron.train.rl.weight_sync import send_weights
from holotron.train.sequences import Sequence


class EngineHere:
    """What a trainer asks of its engine; EnginesThere is asked the same. model: what attempts are played with."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model

    def send(self, learner: Learner, version: int) -> str:
        """Have it hold the weights of now; their checksum."""
        return send_weights(learner, self.model.engine, version)

    def warm_up(self, sessions: int) -> None:
        """While a thread learns, graphs are better not recorded; nor should first attempts wait for kernels."""
        self.model.engine.warm_up(sessions, self.model.adapter)

    def tend(self) -> None:
        """What is to be done now and then while attempts are waited for."""

    def sleep(self) -> None:
        """Give the memory of sessions back while the trainer learns."""
        self.model.engine.sleep()

    def wake(self) -> None:
        self.model.engine.wake()

    def score(self, sequence: Sequence) -> list[float] | None:
        """The log-probability of each token after those before it, with the weights of now; 0 of the first."""
        return asyncio.run(self._score(sequence))

    async def _score(self, sequence: Sequence) -> list[float]:
        engine = self.model.engine
        prepared = [await engine.prepare_image(picture.png) for picture in sequence.pictures]
        vision, ids = engine.model.config.vision, sequence.token_ids.tolist()
        assert vision is not None or not prepared
        places = [place for place, token in enumerate(ids) if vision is not None and token == vision.image_token_id]
        placed = []
        for picture, image in zip(sequence.pictures, prepared, strict=True):
            placed.append((places[0], image))
            del places[: picture.patches // 4]
        ended: asyncio.Future[FinishEvent] = asyncio.get_running_loop().create_future()
        found: list[float] = []

        def hear(_: int, event: AnyEvent) -> None:
            if isinstance(event, PromptEvent):
                found.extend(0.0 if entry is None else entry.model for entry in event.logprobs)
            elif isinstance(event, FinishEvent) and not ended.done():
                ended.set_result(event)

        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        session = await asyncio.to_thread(self.model.open_session)
        try:
            await engine.submit(ids, sampling, hear, session_id=session.id, images=placed)
            finish = await ended
        finally:
            await asyncio.to_thread(session.close)
        if finish.error is not None or len(found) != len(ids):
            raise EngineError(f"{len(ids)} tokens were to be scored, and {len(found)} were: {finish.error}")
        return found
