"""Requests of vLLM's routes for RL, as TRL and prime-rl send them. Light to import, as schemas.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from holotron.server.fields import MAX_TOKENS, Body, Count, Options, ShortText, TokenId
from holotron.server.schemas import Part
from holotron.server.sglang_schemas import Path, Shape, Version

# Of vLLM's sampling parameters, those that say how an answer travels, and not what is in it.
OF_TRANSPORT = ("output_kind", "detokenize", "spaces_between_special_tokens", "skip_special_tokens")


class TransferInit(Options):
    master_address: ShortText
    master_port: Annotated[int, Field(ge=1, le=65535)]
    rank_offset: Annotated[int, Field(ge=1, le=2**16)] = 1
    world_size: Annotated[int, Field(ge=2, le=2**16)]
    backend: ShortText = "nccl"
    packed: bool = False
    packed_buffer_size_bytes: Annotated[int, Field(ge=1)] | None = None


class TransferRequest(Body):
    """POST /init_weight_transfer_engine."""

    init_info: TransferInit


class UpdateInfo(Options):
    names: Annotated[list[ShortText], Field(max_length=65536)]
    dtype_names: Annotated[list[ShortText], Field(max_length=65536)]
    shapes: Annotated[list[Shape], Field(max_length=65536)]
    packed: bool | None = None  # told at the beginning by newer trainers, here by older ones

    @model_validator(mode="after")
    def _alike(self) -> UpdateInfo:
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError("names, dtype_names and shapes must be as many as each other")
        return self


class VllmUpdate(Body):
    """POST /update_weights: prime-rl's folder, or what vLLM's trainers broadcast now."""

    weight_dir: Path | None = None
    update_info: UpdateInfo | None = None
    skip_prefix_cache_reset: bool = False

    @model_validator(mode="after")
    def _one(self) -> VllmUpdate:
        if (self.weight_dir is None) == (self.update_info is None):
            raise ValueError("weight_dir or update_info must be given, and not both")
        return self


class FinishUpdate(Body):
    weight_version: Version | None = None


class WeightCheck(Body):
    """POST /weight_checker: SHA-256 of every weight, or which of them differ from those of before."""

    action: Literal["checksum", "compare"]
    baseline: dict[ShortText, ShortText] | None = None

    @model_validator(mode="after")
    def _complete(self) -> WeightCheck:
        if (self.action == "compare") != (self.baseline is not None):
            raise ValueError("baseline belongs to compare, and only to it")
        return self


class RpcRequest(Body):
    """POST /collective_rpc: the name of a method of vLLM's workers, of which a few exist here."""

    method: Literal["update_weights", "update_weights_from_path", "reload_weights"]
    args: Annotated[list[JsonValue], Field(max_length=8)] = Field(default_factory=list)
    kwargs: dict[ShortText, JsonValue] = Field(default_factory=dict)
    timeout: float | None = None


class TokensRequest(Body):
    """POST /inference/v1/generate: token ids in, token ids out. `content_parts` are the images of the prompt."""

    token_ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKENS)]
    sampling_params: dict[ShortText, Any] = Field(default_factory=dict)
    content_parts: Annotated[list[Part], Field(max_length=1024)] | None = None
    features: None = None
    request_id: ShortText | None = None
    model: ShortText | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    priority: Annotated[Count, Field(ge=-(2**63), lt=2**63)] = 0
    stream: Literal[False] = False

    def as_fields(self) -> dict[str, Any]:
        """The fields of a completion."""
        given = {name: value for name, value in self.sampling_params.items() if name not in OF_TRANSPORT}
        urls = [part.image_url.url for part in self.content_parts or () if part.type == "image_url"]
        return given | {
            "prompt": self.token_ids,
            "images": urls or None,
            "model": self.model,
            "cache_salt": self.cache_salt,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
