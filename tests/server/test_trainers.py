"""Trainers of others against a live server: each replays the calls that its framework makes, in their order.

The bodies are those of slime 130027a, AReaL 0985d21, prime-rl 005c286 and TRL 1.16; none sends a key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import torch
from fastapi import Request

from holotron.engine.options import EngineOptions
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.server import messages as m
from holotron.server.auth import ADMIN, Keys
from holotron.server.engine_client import EngineClient
from holotron.server.errors import ApiError
from holotron.server.settings import ServerSettings
from holotron.server.weight_history import WeightHistory, WeightsLost, WeightUpdate

from .live import TINY, Live, serving, write_checkpoint
from .test_openai_client import picture
from .trainer_side import LastRank, Policy, TrainerGroup, announced, free_port

TEXT = "Where is the button?"
PROMPT = byte_tokenizer(TINY).encode(TEXT)
TOLERANCE = 2e-4


@pytest.fixture(scope="module")
def served(checkpoint) -> Policy:
    return Policy(checkpoint)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Policy:
    return Policy(write_checkpoint(tmp_path_factory.mktemp("trained"), seed=7))


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Live]:
    with serving(checkpoint, trainers=("127.0.0.0/8",), transfer_seconds=30.0) as live:
        yield live


@pytest.fixture
def trainer(server, served) -> Iterator[httpx.Client]:
    """A trainer's client, of a server with the weights of the beginning."""
    with server.client() as client:
        ok(client.post("/update_weights_from_disk", json={"model_path": served.folder, "weight_version": "start"}))
        yield client


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text[:500]
    return answer.json()


def refused(answer: httpx.Response, *words: str, status: int = 400) -> str:
    assert answer.status_code == status, answer.text[:500]
    message = str(answer.json()["error"]["message"])
    assert all(word in message for word in words), message
    return message


def generate(client: httpx.Client, sampling: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """As slime asks."""
    params = {"temperature": 0.8, "top_p": 1.0, "top_k": -1, "max_new_tokens": 12, "stop": None, "stop_token_ids": None}
    params |= {"skip_special_tokens": False, "no_stop_trim": True, "spaces_between_special_tokens": False}
    params |= {"ignore_eos": True} | (sampling or {})
    return ok(
        client.post("/generate", json={"input_ids": PROMPT, "return_logprob": True, "sampling_params": params} | more)
    )


def check_logprobs(policy: Policy, meta: dict[str, Any], temperature: float, prompt: list[int] = PROMPT) -> None:
    """They are those of the distribution that was drawn from, which a plain forward of the weights gives, too."""
    told = meta["output_token_logprobs"]
    ids = [id_ for _, id_, _ in told]
    assert [value for value, _, _ in told] == pytest.approx(
        policy.score([*prompt, *ids], len(ids), temperature), abs=TOLERANCE
    )


def check_weights(client: httpx.Client, policy: Policy) -> None:
    """Every bit of every parameter is what loading the checkpoint afresh gives."""
    names = [name for name in policy.checksums if name.endswith((".D", "conv1d.weight", "conv.weight"))]
    assert len(names) >= 4, sorted(policy.checksums)
    told = ok(client.post("/weight_checker", json={"action": "compare", "baseline": policy.checksums}))
    assert told == {"match": True, "mismatches": []}


def scores(client: httpx.Client) -> list[float]:
    """What the weights of now give a prompt, bit for bit: the first token of an answer and all of the prompt's."""
    body = {"input_ids": PROMPT * 3, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 5}
    meta = ok(client.post("/generate", json=body | {"sampling_params": {"max_new_tokens": 1, "temperature": 0}}))[
        "meta_info"
    ]
    assert meta["input_token_logprobs"][0][0] is None
    return [value for value, _, _ in meta["input_token_logprobs"][1:] + meta["output_token_logprobs"]]


@contextmanager
def in_flight(server: Live, rid: str) -> Iterator[Iterator[dict[str, Any]]]:
    """An answer that has begun, and would go on for long."""
    params = {"max_new_tokens": 3000, "temperature": 1.0, "ignore_eos": True}
    body = {"input_ids": PROMPT, "return_logprob": True, "stream": True, "rid": rid, "sampling_params": params}
    with server.client() as client, client.stream("POST", "/generate", json=body) as stream:
        events = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))
        next(events)
        yield events


def send_buckets(client: httpx.Client, group: TrainerGroup, policy: Policy, **more: Any) -> None:
    for bucket in policy.buckets(3):
        body = announced(bucket) | {"group_name": group.name} | more
        call = lambda body=body: client.post("/update_weights_from_distributed", json=body)  # noqa: E731
        assert ok(group.send(bucket.values(), call))["success"]


@contextmanager
def group_of(client: httpx.Client, name: str) -> Iterator[TrainerGroup]:
    group = TrainerGroup(name)
    place = {"master_address": "127.0.0.1", "master_port": group.port, "rank_offset": 1, "world_size": 2}
    body = place | {"group_name": name, "backend": "gloo"}
    assert ok(group.meet(lambda: client.post("/init_weights_update_group", json=body)))["success"]
    try:
        yield group
    finally:
        group.die()


def test_slime(server, trainer, served, trained):
    """External engines: discovery, rollouts, a paused update over a group, an abort until nothing is under way."""
    assert trainer.get("/health_generate").status_code == 200
    assert trainer.get("/flush_cache").status_code == 200
    info = ok(trainer.get("/server_info"))
    assert (info["tp_size"], info["pp_size"], info["num_gpus"]) == (1, 1, 1)
    assert info["enable_memory_saver"] is False  # what slime holds against its own setting
    before, first = generate(trainer), scores(trainer)
    meta = before["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 12)
    assert meta["weight_version"] == "start"
    check_logprobs(served, meta, temperature=0.8)
    again = generate(trainer, {"sampling_seed": 3})
    assert generate(trainer, {"sampling_seed": 3})["output_ids"] == again["output_ids"]
    ok(trainer.post("/pause_generation", json={}))
    assert trainer.get("/flush_cache").status_code == 200
    with group_of(trainer, "slime-pp_0") as group:
        send_buckets(trainer, group, trained, weight_version="1", flush_cache=False)
        assert ok(trainer.get("/get_weight_version"))["weight_version"] == "start"  # none of it shows yet
        check_weights(trainer, served)
        ok(trainer.post("/continue_generation", json={}))
        assert ok(trainer.get("/get_weight_version"))["weight_version"] == "1"
        check_weights(trainer, trained)
        after = generate(trainer)["meta_info"]
        assert after["weight_versions"] == ["1"] * 12
        check_logprobs(trained, after, temperature=0.8)
        over_group = scores(trainer)
        assert over_group != first
        ok(trainer.post("/destroy_weights_update_group", json={"group_name": group.name}))
    ok(trainer.post("/update_weights_from_disk", json={"model_path": trained.folder, "weight_version": "2"}))
    assert scores(trainer) == over_group
    with in_flight(server, "rollout-1") as events:
        assert ok(trainer.get("/v1/loads?include=core"))["loads"][0]["num_reqs"] == 1
        ok(trainer.post("/abort_request", json={"abort_all": True}))
        assert list(events)[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert ok(trainer.get("/v1/loads?include=core"))["loads"][0]["num_reqs"] == 0


def test_areal(server, trainer, served, trained):
    """Interruptible generation: a paused answer goes on with other weights, computed anew, and says which made what."""
    assert trainer.get("/health").status_code == 200
    with in_flight(server, "episode-1") as events:
        ok(trainer.post("/pause_generation", json={"mode": "retract"}))
        body = {"model_path": trained.folder, "abort_all_requests": False}
        assert ok(trainer.post("/update_weights_from_disk", json=body))["success"]
        ok(trainer.post("/continue_generation", json={}))
        version = ok(trainer.get("/get_weight_version"))["weight_version"]
        for event in events:
            if event["meta_info"]["weight_version"] == version:
                break
        ok(trainer.post("/abort_request", json={"rid": "episode-1"}))
        meta = list(events)[-1]["meta_info"]
    versions = meta["weight_versions"]
    assert set(versions) == {"start", version}
    assert versions == sorted(versions, key=lambda each: each != "start")  # the old ones first
    assert meta["finish_reason"]["type"] == "abort"
    old = versions.count("start")
    values, ids, _ = zip(*meta["output_token_logprobs"], strict=True)
    assert values[:old] == pytest.approx(served.score([*PROMPT, *ids[:old]], old, 1.0), abs=TOLERANCE)
    # Retracted: what it had said was computed again by the new weights, so that those alone explain what follows.
    assert values[old:] == pytest.approx(trained.score([*PROMPT, *ids], len(ids) - old, 1.0), abs=TOLERANCE)
    check_weights(trainer, trained)
    params = {"top_p": 1.0, "top_k": -1, "max_new_tokens": 6, "temperature": 0.0, "ignore_eos": True}
    params["stop_token_ids"] = []
    url = picture()
    body = {"input_ids": [*PROMPT, 5], "image_data": [url.partition(",")[2]], "sampling_params": params}
    seen = ok(trainer.post("/generate", json=body | {"return_logprob": True, "stream": False}))
    assert seen["meta_info"]["prompt_tokens"] > len(PROMPT) + 1  # the image's own tokens
    text = TEXT + "<image>"
    as_text = {"text": text, "image_data": [url], "sampling_params": params, "return_logprob": True}
    told = ok(trainer.post("/generate", json=as_text))["meta_info"]
    # The same tokens and the same image, or nothing of it would have been there already.
    assert told["prompt_tokens"] == seen["meta_info"]["prompt_tokens"]
    assert told["cached_tokens"] > len(PROMPT)
    teacher = {
        "input_ids": PROMPT,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
    }
    start = {"logprob_start_len": len(PROMPT) - 5 - 1, "top_logprobs_num": 0, "stream": False}
    scored = ok(trainer.post("/generate", json=teacher | start))["meta_info"]["input_token_logprobs"]
    assert [float(value) for value, _, _ in scored][-5:] == pytest.approx(trained.score(PROMPT, 5), abs=TOLERANCE)
    with group_of(trainer, "update_weight_group") as group:
        bucket = served.tensors
        flat = torch.cat([tensor.flatten().view(torch.uint8) for tensor in bucket.values()])
        body = announced(bucket) | {
            "group_name": group.name,
            "abort_all_requests": True,
            "load_format": "flattened_bucket",
        }
        assert ok(group.send([flat], lambda: trainer.post("/update_weights_from_distributed", json=body)))["success"]
        check_weights(trainer, served)  # without a pause they are taken at once
    ok(trainer.post("/release_memory_occupation", json={}))
    ok(trainer.post("/resume_memory_occupation", json={"tags": ["weights"]}))
    ok(trainer.post("/resume_memory_occupation", json={"tags": ["kv_cache"]}))
    check_logprobs(served, generate(trainer)["meta_info"], temperature=0.8)


def test_prime_rl(server, trainer, trained):
    """The filesystem transport: pause and keep, a folder, resume; tokens and log-probabilities of completions."""
    assert trainer.get("/health").status_code == 200
    assert ok(trainer.get("/v1/models"))["data"][0]["id"] == "tiny"
    with in_flight(server, "kept") as events:
        ok(trainer.post("/pause", params={"mode": "keep", "clear_cache": "false"}))
        assert ok(trainer.get("/is_paused")) == {"is_paused": True}
        assert ok(trainer.post("/update_weights", json={"weight_dir": trained.folder}))["status"] == "ok"
        ok(trainer.post("/resume"))
        for event in events:
            if len(set(event["meta_info"]["weight_versions"])) == 2:
                break
        ok(trainer.post("/abort_request", json={"rid": "kept"}))
        assert list(events)[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    check_weights(trainer, trained)
    params = {"temperature": 0.7, "max_tokens": 8, "logprobs": 0, "ignore_eos": True, "skip_special_tokens": False}
    body = {"model": "tiny", "token_ids": PROMPT, "sampling_params": params, "cache_salt": "3", "priority": 0}
    told = ok(trainer.post("/inference/v1/generate", json=body))
    (choice,) = told["choices"]
    content = choice["logprobs"]["content"]
    assert [entry["token_id"] for entry in content] == choice["token_ids"]
    ids = [*PROMPT, *choice["token_ids"]]
    # OpenAI's `logprob` is the model's own, at temperature 1; what was drawn from is beside it.
    assert [entry["logprob"] for entry in content] == pytest.approx(trained.score(ids, 8), abs=TOLERANCE)
    assert [entry["sampling_logprob"] for entry in content] == pytest.approx(trained.score(ids, 8, 0.7), abs=TOLERANCE)
    refused(trainer.post("/init_broadcaster", json={"host": "127.0.0.1", "port": 1}), "filesystem")
    refused(trainer.post("/update_weights", json={"weight_dir": f"{trained.folder}/nothing"}), "weight_dir")
    ok(trainer.post("/reload_weights"))


def test_trl(trainer, served, trained):
    """The server mode of GRPOTrainer, and an update that is opened, sent in packed buffers, and finished."""
    assert trainer.get("/health").status_code == 200
    assert ok(trainer.get("/get_world_size")) == {"world_size": 1}
    assert ok(trainer.get("/server_info", params={"config_format": "json"}))["vllm_config"]["lora_config"]
    sampling = {"n": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    body = {"model": "tiny", "prompt": [PROMPT, PROMPT[:7]], "max_tokens": 5, "logprobs": 0, "ignore_eos": True}
    asked = body | sampling | {"return_token_ids": True, "return_tokens_as_token_ids": True}
    choices = ok(trainer.post("/v1/completions", json=asked))["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [PROMPT, PROMPT, PROMPT[:7], PROMPT[:7]]
    for choice in choices:
        ids = [*choice["prompt_token_ids"], *choice["token_ids"]]
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(served.score(ids, 5), abs=TOLERANCE)
    teacher = {"model": "tiny", "prompt": [PROMPT], "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 4}
    for entry in ok(trainer.post("/v1/completions", json=teacher))["choices"][0]["prompt_logprobs"][1:]:
        ranked = sorted(entry.values(), key=lambda each: each["rank"])
        assert [each["logprob"] for each in ranked] == sorted((e["logprob"] for e in ranked), reverse=True)
    group = TrainerGroup("weight_transfer")
    place = {"master_address": "127.0.0.1", "master_port": group.port, "rank_offset": 1, "world_size": 2}
    init = {"init_info": place | {"backend": "gloo", "packed": True, "packed_buffer_size_bytes": 20_000}}
    ok(group.meet(lambda: trainer.post("/init_weight_transfer_engine", json=init)))
    ok(trainer.post("/pause", params={"mode": "keep"}))
    ok(trainer.post("/start_weight_update", json={}))
    info = announced(trained.tensors)
    info["dtype_names"] = info.pop("dtypes")
    call = lambda: trainer.post("/update_weights", json={"update_info": info})  # noqa: E731
    ok(group.send(packed(trained.tensors.values(), 20_000), call))
    ok(trainer.post("/resume"))  # what is open is not taken by this
    check_weights(trainer, served)
    ok(trainer.post("/finish_weight_update", json={"weight_version": "step-1"}))
    assert ok(trainer.get("/weight_info")) == {"weight_version": "step-1"}
    check_weights(trainer, trained)
    ok(trainer.post("/reset_prefix_cache"))
    group.die()
    ok(trainer.post("/sleep", params={"level": 1}))
    assert ok(trainer.get("/is_sleeping")) == {"is_sleeping": True}
    ok(trainer.post("/wake_up", params={"tags": ["weights"]}))
    refused(trainer.post("/finish_weight_update"), "start one first", status=409)


def test_trl_with_its_own_server(trainer, served, trained):
    """What GRPOTrainer of TRL 1.5 calls where `trl vllm-serve` runs: a parameter after another, taken together."""
    assert trainer.get("/health/").status_code == 200
    assert ok(trainer.get("/get_world_size/")) == {"world_size": 1}
    url = picture().partition(",")[2]
    sampling = {"n": 2, "temperature": 0.9, "top_k": -1, "max_tokens": 4, "generation_kwargs": {"ignore_eos": True}}
    body = sampling | {"prompts": [TEXT, TEXT + "<image>"], "images": [None, [url]], "logprobs": 0}
    told = ok(trainer.post("/generate/", json=body))
    assert [len(ids) for ids in told["completion_ids"]] == [4] * 4
    assert told["prompt_ids"][0] == PROMPT
    assert told["prompt_ids"][1].count(5) > 1
    values = [value for (value,) in told["logprobs"][0]]
    assert told["logprob_token_ids"][0] == [[id_] for id_ in told["completion_ids"][0]]
    ids = [*PROMPT, *told["completion_ids"][0]]
    assert values == pytest.approx(served.score(ids, 4, 0.9), abs=TOLERANCE)
    seen = [{"type": "image_pil", "image_pil": url}, {"type": "text", "text": "Where?"}]
    chats = [[{"role": "user", "content": "Hello"}], [{"role": "user", "content": seen}]]
    chatted = ok(trainer.post("/chat/", json=sampling | {"messages": chats, "logprobs": 1, "tools": None}))
    assert [len(each) for each in chatted["logprobs"]] == [4] * 4
    assert chatted["prompt_ids"][1].count(5) > 1
    port = free_port()
    place = {"host": "127.0.0.1", "port": port, "world_size": 2, "client_device_uuid": "none"}
    ok(trainer.post("/init_communicator/", json=place))
    group = LastRank(port)
    for name, tensor in trained.tensors.items():
        spec = {"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        ok(trainer.post("/update_named_param/", json=spec))
        group.send(tensor)
    assert ok(trainer.get("/weight_info")) == {"weight_version": "start"}
    ok(trainer.post("/reset_prefix_cache/"))
    check_weights(trainer, trained)
    ok(trainer.post("/update_named_param/", json={"name": "no.such.weight", "dtype": "torch.float32", "shape": [2]}))
    group.send(torch.ones(2))
    refused(trainer.post("/reset_prefix_cache/"), "no.such.weight")
    ok(trainer.post("/close_communicator/"))
    check_weights(trainer, trained)


def packed(tensors: Any, most: int) -> list[torch.Tensor]:
    """Buffers of bytes as vLLM's trainers fill them."""
    buffers: list[list[torch.Tensor]] = [[]]
    for tensor in tensors:
        buffers[-1].append(tensor.contiguous().view(torch.uint8).flatten())
        if sum(map(len, buffers[-1])) > most:
            buffers.append([])
    return [torch.cat(buffer) for buffer in buffers if buffer]


def test_a_trainer_that_dies_leaves_the_old_weights(trainer, served, trained):
    first = trained.buckets(3)[0]
    ok(trainer.post("/pause_generation", json={}))
    with group_of(trainer, "dies") as group:  # in the middle of a bucket
        body = announced(first) | {"group_name": "dies", "weight_version": "half"}

        def stop() -> list[torch.Tensor]:
            yield next(iter(first.values()))
            group.die()

        answer = group.send(stop(), lambda: trainer.post("/update_weights_from_distributed", json=body))
    assert refused(answer, "did not come from the trainer") == answer.json()["message"]
    assert answer.json()["success"] is False
    with group_of(trainer, "dies") as group:  # between two buckets
        call = lambda: trainer.post("/update_weights_from_distributed", json=body)  # noqa: E731
        ok(group.send(first.values(), call))
    refused(trainer.post("/continue_generation", json={}), "is gone after", "none is used")
    assert ok(trainer.get("/get_weight_version"))["weight_version"] == "start"
    check_weights(trainer, served)
    check_logprobs(served, generate(trainer)["meta_info"], temperature=0.8)  # and it goes on
    with group_of(trainer, "dies") as group:  # the trainer is started again
        send_buckets(trainer, group, trained, weight_version="whole")
        check_weights(trainer, trained)


def test_what_does_not_fit_changes_nothing(trainer, served, trained):
    refused(trainer.post("/update_weights_from_distributed", json=announced({}) | {"group_name": "none"}), "no group")
    nowhere = {"master_address": "127.0.0.1", "master_port": 9, "rank_offset": 1, "world_size": 2}
    refused(trainer.post("/init_weights_update_group", json=nowhere), "nccl needs a GPU")
    refused(trainer.post("/init_weights_update_group", json=nowhere | {"rank_offset": 2, "backend": "gloo"}), "rank 2")
    for host in ("", "a b", "a/b"):
        refused(trainer.post("/init_weights_update_group", json=nowhere | {"master_address": host}), repr(host), "host")
    refused(trainer.post("/generate", json={"input_ids": [1], "text": "a"}), "input_ids")
    refused(trainer.post("/update_weights_from_tensor", json={"serialized_named_tensors": ["gASV"]}), "pickles")
    odd = {"input_ids": [1], "sampling_params": {"max_new_tokens": 0}}
    refused(trainer.post("/generate", json=odd), "sampling_params.max_new_tokens")
    odd["sampling_params"] = {"custom_params": {"a": 1}}
    refused(trainer.post("/generate", json=odd), "custom_params")
    ok(trainer.post("/pause_generation", json={"mode": "in_place"}))
    with group_of(trainer, "wrong") as group:
        for bucket in ({"no.such.weight": torch.ones(3)}, {"language_model.lm_head.weight": torch.ones(3)}):
            body = announced(bucket) | {"group_name": "wrong"}
            call = lambda body=body: trainer.post("/update_weights_from_distributed", json=body)  # noqa: E731
            refused(group.send(bucket.values(), call), next(iter(bucket)))
        for side in (2**60, 10**30):
            body = {"names": ["a"], "dtypes": ["float32"], "shapes": [[side]], "group_name": "wrong"}
            refused(trainer.post("/update_weights_from_distributed", json=body), "no room")
        body = {"names": ["a"], "dtypes": ["string"], "shapes": [[1]], "group_name": "wrong"}
        refused(trainer.post("/update_weights_from_distributed", json=body), "string")
        ok(trainer.post("/continue_generation", json={}))
        ok(trainer.post("/pause_generation", json={"mode": "in_place"}))
        refused(trainer.post("/update_weights_from_distributed", json=body), "string")
        send_buckets(trainer, group, trained)  # by a trainer that does not mind
        refused(trainer.post("/continue_generation", json={}), "none is used", status=409)
    check_weights(trainer, served)


def test_weights_from_a_trainer_are_lost_with_the_engine():
    history = WeightHistory()
    history.add(WeightUpdate(None, 3, "step-3", ()), whole=True)
    with pytest.raises(WeightsLost, match="'step-3' came from a trainer"):
        history.updates()


def test_a_version_is_known_before_the_engine_has_its_weights(monkeypatch):
    """Or the first tokens of theirs would be called by a number."""
    client, called = EngineClient(m.Start(EngineOptions(), 600, 64)), []

    async def commit(method, epoch):
        called.append(client.version_of(epoch))
        return True

    monkeypatch.setattr(client, "call", commit)
    asyncio.run(client.commit_weights("run/7"))
    assert called == ["run/7"]


def test_only_trainers_that_are_trusted_may(server):
    """A page in a browser on a trusted machine is no trainer."""
    with server.client() as browser:
        for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            for path in ("/pause_generation", "/resume", "/flush_cache", "/admin/pause"):
                refused(browser.post(path, headers=header), "--admin-key", status=403)


@pytest.mark.parametrize(
    ("address", "trusted"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::5", True), ("11.1.2.3", False), ("testclient", False)],
)
def test_which_addresses_are_trusted(address, trusted):
    keys = Keys(ServerSettings(api_keys=("key",), trainers=("10.0.0.0/8", "fd00::5")))
    request = Request({"type": "http", "headers": [], "client": (address, 1)})
    for ask in (keys.caller, keys.admin):
        if trusted:
            assert ask(request) is ADMIN
        else:
            with pytest.raises(ApiError):
                ask(request)
    with pytest.raises(ValueError, match="nonsense"):
        ServerSettings(trainers=("nonsense",))
