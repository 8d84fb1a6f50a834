"""A sleeping engine leaves the GPU to others, and wakes up as it was. Runs as a script where pytest is missing."""

import asyncio
import gc
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

try:
    import pytest

    pytestmark = pytest.mark.gpu
except ImportError:
    pass

from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.engine.sampling_params import SamplingParams
from tests.engine.test_engine_gpu import small_model

GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def in_use() -> int:
    """Bytes of tensors on the GPU that somebody still needs."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def test_sleep_empties_the_gpu():
    # Other tests of this process may have left models, graphs and workspaces behind: only differences are this one's.
    # What sleep clears of theirs makes them larger, never smaller, so that the bounds are on what is left.
    elsewhere = in_use()
    model = small_model(torch.float32, "M-M*-")
    weights = sum(p.nbytes for p in model.parameters())

    async def live(sleeps):
        said = []
        with Engine(model, EngineConfig(slots=33, pages=512, max_context=4096)) as engine:
            sessions = [engine.open_session() for _ in range(8)]
            for turn in range(3):
                turns = (s.generate([turn, i, 7] * 30, GREEDY) for i, s in enumerate(sessions))
                said.append([answer.token_ids for answer in await asyncio.gather(*turns)])
                if sleeps:
                    used, pools = in_use(), sum(part.nbytes for part in vars(engine.loop.runner.memory).values())
                    engine.sleep(weights=turn > 0)
                    left = in_use()
                    print(f"used {used:,}, pools {pools:,}, weights {weights:,}, left {left:,}, before {elsewhere:,}")
                    assert used - left >= pools + (weights if turn > 0 else 0)
                    assert turn == 0 or left - elsewhere < 2**24
                    engine.wake()
                    assert model.device.type == "cuda"
        return said

    assert asyncio.run(live(True)) == asyncio.run(live(False))


if __name__ == "__main__":
    test_sleep_empties_the_gpu()
    print("all as it should be")
