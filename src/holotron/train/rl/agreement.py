"""Whether engine and trainer say the same of the same tokens: the engine scores an episode anew with what it was sent.

Tokens that it drew with older weights, or in sessions that remember older ones, cannot tell.

Shapes: N drawn tokens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import torch

from holotron.engine.errors import EngineError
from holotron.engine.requests import AnyEvent, FinishEvent, PromptEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.rollout_batch import RolloutBatch
from holotron.train.sequences import Sequence

if TYPE_CHECKING:
    from holotron.agent.in_process import EngineModel


def scored_difference(learner: PolicyLearner, model: EngineModel, sequence: Sequence, batch: RolloutBatch) -> float:
    """The mean difference of the learned tokens' log-probabilities under the model alone; batch: of this sequence."""
    scored = asyncio.run(_scored(model, sequence))
    own_N = learner.model_logprobs(batch)
    learned = torch.from_numpy(sequence.learn).nonzero()[:, 0].tolist()
    engine_N = torch.tensor([scored[place] for place in learned])
    return float((own_N[: len(learned)].cpu() - engine_N).abs().mean())


async def _scored(model: EngineModel, sequence: Sequence) -> list[float]:
    """The engine's log-probability of each token after those before it; 0 of the first."""
    engine = model.engine
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
    session = await asyncio.to_thread(model.open_session)
    try:
        await engine.submit(ids, sampling, hear, session_id=session.id, images=placed)
        finish = await ended
    finally:
        await asyncio.to_thread(session.close)
    if finish.error is not None or len(found) != len(ids):
        raise EngineError(f"{len(ids)} tokens were to be scored, and {len(found)} were: {finish.error}")
    return found
