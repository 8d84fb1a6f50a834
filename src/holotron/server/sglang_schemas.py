"""Requests of SGLang's own API, as slime and AReaL send them, and what they are here.

Light to import, as schemas.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from holotron.server.fields import MAX_TOKENS, Body, Count, ImageText, ShortText, Text, TokenId

# What SGLang calls fields that exist here under another name.
OWN_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
# These change the text of an answer, which SglangAnswer writes, and not its tokens.
OF_TEXT = ("skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens")
DEFAULT_TOKENS = 128
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Shape = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=8)]
Version = Annotated[str, Field(min_length=1, max_length=128)]


class GenerateRequest(Body):
    """POST /generate: token ids or texts, one or several, and images for one of them."""

    input_ids: (
        Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKENS)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=64)]
        | None
    ) = None
    text: Text | Annotated[list[Text], Field(min_length=1, max_length=64)] | None = None
    image_data: ImageText | Annotated[list[ImageText], Field(max_length=1024)] | None = None
    sampling_params: dict[ShortText, Any] = Field(default_factory=dict)
    rid: ShortText | None = None
    return_logprob: bool = False
    logprob_start_len: Annotated[Count, Field(ge=-1, le=MAX_TOKENS)] = -1
    top_logprobs_num: Annotated[Count, Field(ge=0, le=20)] = 0
    return_text_in_logprobs: bool = False
    stream: bool = False
    lora_path: ShortText | None = None
    model: ShortText | None = None
    return_routed_experts: Literal[False] | None = None
    return_hidden_states: Literal[False] | None = None

    @model_validator(mode="after")
    def _one(self) -> GenerateRequest:
        if (self.input_ids is None) == (self.text is None):
            raise ValueError("give either input_ids or text")
        return self

    @property
    def is_batch(self) -> bool:
        """Whether the answer is a list."""
        asked: Any = self.input_ids if self.text is None else self.text
        several = isinstance(asked, list) and not isinstance(asked[0], int)
        return several or self.sampling_params.get("n", 1) != 1

    def says(self, option: str, default: bool) -> bool:
        """One of the sampling parameters that are about the text."""
        return bool(self.sampling_params.get(option, default))

    def as_fields(self) -> dict[str, Any]:
        """The fields of a completion; what it has under the same name is taken as it is."""
        given = {"max_new_tokens": DEFAULT_TOKENS} | self.sampling_params
        given = {OWN_NAMES.get(name, name): value for name, value in given.items() if name not in OF_TEXT}
        regex, schema = given.pop("regex", None), given.pop("json_schema", None)
        if regex or schema:
            given["structured_outputs"] = {"regex": regex} if regex else {"json": schema}
        images = [self.image_data] if isinstance(self.image_data, str) else self.image_data
        fields = given | {
            "prompt": self.input_ids if self.text is None else self.text,
            "stream": self.stream,
            "images": [url if ":" in url[:8] else f"data:image/png;base64,{url}" for url in images or ()] or None,
            "model": self.lora_path or self.model,
            "logprobs": self.top_logprobs_num if self.return_logprob else None,
            "return_token_ids": True,
        }
        if self.return_logprob and self.logprob_start_len >= 0:
            fields["prompt_logprobs"] = self.top_logprobs_num
        return fields


class SglangPause(Body):
    mode: Literal["abort", "in_place", "retract"] = "abort"


class DiskUpdate(Body):
    """POST /update_weights_from_disk: a checkpoint folder or a file of one that the engine's process can read."""

    model_path: Path
    weight_version: Version | None = None
    load_format: Literal["auto", "safetensors"] | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class GroupRequest(Body):
    """POST /init_weights_update_group."""

    master_address: ShortText
    master_port: Annotated[int, Field(ge=1, le=65535)]
    rank_offset: Annotated[int, Field(ge=1, le=2**16)]
    world_size: Annotated[int, Field(ge=2, le=2**16)]
    group_name: ShortText = "weight_update_group"
    backend: ShortText = "nccl"


class NamedGroup(Body):
    group_name: ShortText = "weight_update_group"


class DistributedUpdate(NamedGroup):
    """POST /update_weights_from_distributed: what is broadcast over a group now."""

    names: Annotated[list[ShortText], Field(max_length=65536)]
    dtypes: Annotated[list[ShortText], Field(max_length=65536)]
    shapes: Annotated[list[Shape], Field(max_length=65536)]
    weight_version: Version | None = None
    load_format: Literal["flattened_bucket"] | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True

    @model_validator(mode="after")
    def _alike(self) -> DistributedUpdate:
        if not len(self.names) == len(self.dtypes) == len(self.shapes):
            raise ValueError("names, dtypes and shapes must be as many as each other")
        return self


class NewVersion(Body):
    """POST /update_weight_version: another name for the weights of now."""

    new_version: Version
    abort_all_requests: bool = False


class MemoryTags(Body):
    """POST /release_memory_occupation and /resume_memory_occupation."""

    tags: list[Literal["weights", "kv_cache", "cuda_graph"]] | None = None


class NamedAdapter(Body):
    """POST /load_lora_adapter and /unload_lora_adapter, SGLang's and vLLM's."""

    lora_name: Annotated[str, Field(min_length=1, max_length=512)]
    lora_path: Path | None = None
    load_inplace: bool = False
    pinned: bool = False
