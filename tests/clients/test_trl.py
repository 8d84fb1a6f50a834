"""TRL's own clients of a vLLM server: rollouts, a teacher's scores, and AsyncGRPO's adapter of each step."""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerate import PartialState
from PIL import Image
from trl.experimental.async_grpo.vllm_client import VLLMClient as AsyncClient
from trl.generation import vllm_client
from trl.generation.vllm_client import VLLMClient

from holotron.model.loading import load
from tests.model.adapter_files import write_adapter
from tests.server.live import Live, serving, write_checkpoint
from tests.server.trainer_side import Policy

PROMPT = list(range(40, 60))
SAMPLING = {"max_tokens": 6, "generation_kwargs": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("trl"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Live]:
    """TRL's clients send no key, and read log-probabilities as those of the draw."""
    with serving(folder, trainers=("127.0.0.1",), logprobs_mode="processed_logprobs") as live:
        yield live


@pytest.fixture
def client(server: Live, monkeypatch: pytest.MonkeyPatch) -> VLLMClient:
    """It refuses to be made without vLLM, of which it needs nothing but for weights over NCCL."""
    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda *_, **__: True)
    return VLLMClient(base_url=server.url)


def test_rollouts(client: VLLMClient, folder: Path) -> None:
    assert client.get_world_size() == 1
    told = client.generate([PROMPT, PROMPT[:5]], n=2, temperature=0.7, logprobs=0, **SAMPLING)
    assert told["prompt_ids"] == [PROMPT, PROMPT[:5]]
    policy = Policy(folder)
    for number, (ids, values) in enumerate(zip(told["completion_ids"], told["logprobs"], strict=True)):
        prompt = told["prompt_ids"][number // 2]
        assert [value for (value,) in values] == pytest.approx(policy.score([*prompt, *ids], 6, 0.7), abs=2e-4)
    client.reset_prefix_cache()


def test_chats_with_pictures(client: VLLMClient, picture: str) -> None:
    image = Image.open(io.BytesIO(b64decode(picture.partition(",")[2])))
    parts = [{"type": "image", "image": image}, {"type": "text", "text": "Where?"}]
    told = client.chat([[{"role": "user", "content": "Hello"}], [{"role": "user", "content": parts}]], n=2, **SAMPLING)
    assert [len(ids) for ids in told["completion_ids"]] == [6] * 4
    assert len(told["prompt_ids"][1]) > len(told["prompt_ids"][0])


def test_a_teacher(client: VLLMClient, folder: Path) -> None:
    told = client.get_sequence_logprobs([PROMPT], [15], top_logprobs=4)
    actual = [value for (value,) in told["actual_logprobs"][0]]
    assert actual == pytest.approx(Policy(folder).score(PROMPT, 5), abs=2e-4)
    assert all(values == sorted(values, reverse=True) for values in told["logprobs"][0])


def test_an_adapter_for_each_step(server: Live, folder: Path, tmp_path: Path) -> None:
    PartialState(cpu=True)  # its log wants it
    client = AsyncClient(server.url)
    client.wait_for_server_ready()
    assert client.get_max_model_len() == 4096
    info = client.get_server_info()
    assert info["lora_config"]["max_lora_rank"] >= 64
    assert info["parallel_config"]["data_parallel_size"] == 1
    model = load(folder, "cpu")
    said = []
    for version in range(3):
        write_adapter(model, tmp_path / f"v{version}", version)
        client.pause()
        client.load_lora_adapter(f"trl-policy-v{version}", str(tmp_path / f"v{version}"))
        client.resume()
        body = {"model": f"trl-policy-v{version}", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 0}
        with server.client() as http:
            answer = http.post("/v1/completions", json=body | {"return_token_ids": True, "ignore_eos": True})
        said.append(answer.json()["choices"][0]["token_ids"])
    assert len(set(map(tuple, said))) == 3
    client.unload_lora_adapter("trl-policy-v0")
    client.unload_lora_adapter("trl-policy-v0")  # missing names are not an error
    with server.client() as http:
        assert "trl-policy-v0" not in [card["id"] for card in http.get("/v1/models").json()["data"]]
