"""The names under which checkpoints store our parameters.

Four spellings are in use: text-only or inside a vision-language model, and the released one (`backbone.`, one tensor
per expert, RADIO's own block names) or the one that newer transformers keep internally (`model.`, stacked experts,
separate q, k and v). A checkpoint is written in the spelling it was read in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from holotron.model.config import ModelConfig, QwenVisionConfig

# Tensors that checkpoints carry and that are not weights of this model.
_KEPT = re.compile(r"(^|\.)(summary_idxs|input_conditioner\.norm_(mean|std)|layer_scale[12]\.lambda1)$")
_DROPPED = re.compile(r"^(mtp|language_model\.mtp|sound_encoder|sound_projection|audio_tower|embed_audio)\.|inv_freq$")

_RADIO = "vision_model.radio_model.model"
# Our names, each with the released and the internal one.
_VISION = {
    "vision.patch_embed": (f"{_RADIO}.patch_generator.embedder", "vision_model.embeddings.patch_projection"),
    "vision.video_embed": (
        f"{_RADIO}.patch_generator.video_embedder",
        "vision_model.embeddings.video_patch_projection",
    ),
    "vision.position_table": (f"{_RADIO}.patch_generator.pos_embed", "vision_model.embeddings.position_embedding"),
    "vision.prefix": (f"{_RADIO}.patch_generator.cls_token.token", "vision_model.embeddings.cls_register_token"),
    "vision.blocks": (f"{_RADIO}.blocks", "vision_model.encoder.layer"),
    "vision.final_norm": ("vision_final_layernorm", "vision_final_layernorm"),
    "projector.norm": ("mlp1.0", "multi_modal_projector.layer_norm"),
    "projector.up": ("mlp1.1", "multi_modal_projector.linear_1"),
    "projector.down": ("mlp1.3", "multi_modal_projector.linear_2"),
}

# What our names of Qwen's towers become in each version's files, one after another.
_QWEN_TOWER = {
    "3": (
        (r"^patch_embed\.", "patch_embed.proj."),
        (r"^position_table$", "pos_embed.weight"),
        (r"^deepstack\.", "deepstack_merger_list."),
        (r"\.mlp\.fc([12])\.", r".mlp.linear_fc\1."),
        (r"^(merger|deepstack_merger_list\.\d+)\.up\.", r"\1.linear_fc1."),
        (r"^(merger|deepstack_merger_list\.\d+)\.down\.", r"\1.linear_fc2."),
    ),
    "2.5": (
        (r"^patch_embed\.", "patch_embed.proj."),
        (r"\.mlp\.gate\.", ".mlp.gate_proj."),
        (r"\.mlp\.fc1\.", ".mlp.up_proj."),
        (r"\.mlp\.fc2\.", ".mlp.down_proj."),
        (r"^merger\.norm\.", "merger.ln_q."),
        (r"^merger\.up\.", "merger.mlp.0."),
        (r"^merger\.down\.", "merger.mlp.2."),
    ),
}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file, and the part of our parameter it fills: all of it, or part `index` of `count`.

    An expert's tensor is one entry of the stacked parameter (`stacked`), q is the first third of the rows of qkv.
    A transposed one has its last two axes the other way round.
    """

    name: str
    index: int = 0
    count: int = 1
    stacked: bool = False
    transposed: bool = False

    def part_of(self, parameter: Tensor) -> Tensor:
        """The part of our parameter that this tensor fills, as a view."""
        if self.transposed:
            return parameter.transpose(-2, -1)
        if self.stacked:
            return parameter[self.index]
        return parameter.chunk(self.count)[self.index] if self.count > 1 else parameter


@dataclass(frozen=True)
class Dialect:
    """One way of spelling a checkpoint.

    dense: layers are pairs as in Qwen's models; `prefix` and `tower` begin the names of their parts. Experts are
    transposed in the released files and not in those that transformers writes.
    """

    dense: bool = False
    prefix: str = ""
    released: bool = True
    tower: str = ""

    def stored(self, name: str, config: ModelConfig) -> list[Stored]:
        """The tensors that hold the parameter of that name."""
        part, _, rest = name.partition(".")
        if part != "decoder":
            return [Stored(self.tower + _qwen_tower(rest, config))] if self.dense else self._vision(name)
        if self.dense:
            return [Stored(_dense_name(rest, self.prefix), transposed=self.released and ".experts." in rest)]
        if rest == "lm_head.weight":
            return [Stored(f"{self.prefix}{rest}")]
        full = f"{self.prefix}{'backbone' if self.released else 'model'}.{rest}"
        if self.released and config.moe and (match := re.search(r"\.experts\.(up|down)_proj$", full)):
            stem, projection = full[: match.start()], match.group(1)
            return [
                Stored(f"{stem}.experts.{k}.{projection}_proj.weight", k, config.moe.experts, stacked=True)
                for k in range(config.moe.experts)
            ]
        return [Stored(full)]

    def _vision(self, name: str) -> list[Stored]:
        ours, (released, internal) = next(
            entry for entry in _VISION.items() if name == entry[0] or name.startswith(entry[0] + ".")
        )
        full = (released if self.released else internal) + name[len(ours) :]
        if self.released:
            return [Stored(full)]
        if match := re.search(r"\.attn\.qkv\.(weight|bias)$", full):
            stem, kind = full[: match.start()], match.group(1)
            return [Stored(f"{stem}.attention.{q}_proj.{kind}", i, 3) for i, q in enumerate("qkv")]
        return [Stored(full.replace(".attn.proj.", ".attention.o_proj."))]


def _qwen_tower(name: str, config: ModelConfig) -> str:
    assert isinstance(config.vision, QwenVisionConfig)
    for ours, theirs in _QWEN_TOWER[config.vision.version]:
        name = re.sub(ours, theirs, name)
    return name


def _dense_name(name: str, prefix: str) -> str:
    """A Qwen layer is our attention layer and the MLP or experts behind it."""
    fixed = {"embeddings.weight": f"{prefix}embed_tokens.weight", "norm_f.weight": f"{prefix}norm.weight"}
    match = re.match(r"layers\.(\d+)\.(norm|mixer)\.(.*)$", name)
    if match is None:
        return fixed.get(name, name)
    number, part, rest = int(match.group(1)), match.group(2), match.group(3)
    is_mlp = number % 2 == 1
    if part == "norm":
        return f"{prefix}layers.{number // 2}.{'post_attention_layernorm' if is_mlp else 'input_layernorm'}.{rest}"
    return f"{prefix}layers.{number // 2}.{'mlp' if is_mlp else 'self_attn'}.{rest}"


def detect(names: Iterable[str], config: ModelConfig) -> Dialect:
    """The dialect of a checkpoint with these tensors."""
    names = set(names)
    if isinstance(config.vision, QwenVisionConfig):
        return _qwen_dialect(nested=any(name.startswith("model.language_model.") for name in names))
    released = not any(re.match(r"(language_model\.)?model\.", name) for name in names)
    return default_dialect(config, released=released)


def default_dialect(config: ModelConfig, *, released: bool = True) -> Dialect:
    if isinstance(config.vision, QwenVisionConfig):
        dialect = _qwen_dialect(nested=config.vision.version == "3")
        # transformers tells the two forms of experts by their shape: those that are square it takes as they are.
        square = config.moe is not None and 2 * config.moe.expert_size == config.hidden_size
        return replace(dialect, released=not square)
    if config.uses_rope:
        return Dialect(dense=True, prefix="model.")
    return Dialect(prefix="language_model." if config.vision else "", released=released)


def module_dialect(config: ModelConfig) -> Dialect:
    """The names of modules in transformers, which are those of its adapters."""
    if isinstance(config.vision, QwenVisionConfig):
        return replace(_qwen_dialect(nested=True), released=False)
    return replace(default_dialect(config), released=False)


def all_dialects(config: ModelConfig) -> list[Dialect]:
    """Every spelling that a model of this kind comes in."""
    if isinstance(config.vision, QwenVisionConfig):
        return [_qwen_dialect(nested=nested) for nested in (True, False)]
    return [default_dialect(config, released=released) for released in (True, False)]


def _qwen_dialect(*, nested: bool) -> Dialect:
    """nested: as Qwen3-VL is released. Qwen2.5-VL is released with the tower beside the language model."""
    if nested:
        return Dialect(dense=True, prefix="model.language_model.", tower="model.visual.")
    return Dialect(dense=True, prefix="model.", tower="visual.")


def is_kept(name: str) -> bool:
    """Constants that are not weights here but belong into the file when it is written again."""
    return _KEPT.search(name) is not None


def is_dropped(name: str) -> bool:
    """Parts this stack does not run: audio, and heads that predict further tokens."""
    return _DROPPED.search(name) is not None
