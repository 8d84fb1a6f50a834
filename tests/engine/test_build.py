"""One function builds every engine: what its options mean, and what it refuses."""

import asyncio

import pytest
import torch

from holotron.engine.build import build_engine
from holotron.engine.errors import EngineError
from holotron.engine.options import EngineOptions
from holotron.engine.sampling_params import SamplingParams
from tests.tiny_checkpoint import write_checkpoint

SMALL = {"device": "cpu", "memory_gib": 0.05, "host_gib": 0.0, "tokens_per_session": 256, "max_context": 512}


def test_a_checkpoint_has_a_tokenizer_and_answers(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny")
    with build_engine(EngineOptions(model=str(folder), **SMALL)) as engine:
        answer = asyncio.run(
            engine.open_session().generate(
                engine.tokenizer.encode("hello"), SamplingParams(max_tokens=4, ignore_eos=True)
            )
        )
        assert len(answer.token_ids) == 4
        assert engine.config.max_context == 512


def test_a_small_policy_computes_in_float32_on_a_cpu():
    with build_engine(EngineOptions(model="holotron-nano", **SMALL)) as engine:
        assert engine.model.dtype == torch.float32
    with build_engine(EngineOptions(model="holotron-nano", dtype="bfloat16", **SMALL)) as engine:
        assert engine.model.dtype == torch.bfloat16


def test_what_the_options_say_is_what_the_engine_has(tmp_path):
    options = EngineOptions(
        model=str(write_checkpoint(tmp_path / "tiny")),
        sessions=3,
        checkpoints=2,
        page_size=16,
        prefill_tokens=99,
        max_running=7,
        state_dtype="float16",
        kv_dtype="bfloat16",
        cuda_graphs=False,
        image_cache_mib=1,
        disk_gib=1,
        disk_folder=str(tmp_path),
        tokenizer=False,
        **SMALL,
    )
    with build_engine(options) as engine:
        config = engine.config
        assert engine.tokenizer is None
    assert (config.slots, config.pages) == (3 * 3 + 1, 3 * 512 // 16 + 1)
    assert (config.page_size, config.prefill_tokens, config.max_running) == (16, 99, 7)
    assert (config.state_dtype, config.kv_dtype, config.cuda_graphs) == (torch.float16, torch.bfloat16, False)
    assert (config.image_cache_bytes, config.disk_bytes, config.disk_folder) == (2**20, 2**30, tmp_path)


def test_sessions_are_as_long_as_the_model_was_made_for_unless_asked():
    long = {"random": True, **SMALL, "max_context": 100_000, "tokenizer": False}
    for extrapolate, expected in ((False, 65_536), (True, 100_000)):
        with build_engine(EngineOptions(extrapolate=extrapolate, **long)) as engine:
            assert engine.config.max_context == expected


@pytest.mark.parametrize("wrong", [{"dtype": "int4"}, {"state_dtype": None}, {"kv_dtype": "fp4"}, {"max_context": 0}])
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(EngineError, match=next(iter(wrong))):
        EngineOptions(**wrong)


def test_a_stepped_engine_has_no_thread_to_post_to():
    engine = build_engine(EngineOptions(random=True, tokenizer=False, **SMALL), stepped=True)
    with pytest.raises(EngineError, match="closed"):
        engine.open_session()
