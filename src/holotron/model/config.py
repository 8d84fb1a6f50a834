"""What a policy is made of: frozen descriptions from which every size and cost follows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from holotron.model.errors import ConfigError

MIXERS = {"M": "Mamba-2", "*": "attention", "-": "MLP", "E": "mixture of experts"}

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class MambaConfig:
    """A Mamba-2 mixer. Its inner width is heads x head_dim; nothing ties that to the hidden size."""

    heads: int
    head_dim: int
    state_size: int = 128
    groups: int = 8
    conv_kernel: int = 4
    conv_bias: bool = True
    chunk_size: int = 128
    dt_limit: tuple[float, float] = (0.0, float("inf"))

    def __post_init__(self) -> None:
        _positive(self, "heads", "head_dim", "state_size", "groups", "chunk_size")
        if self.conv_kernel < 2:
            raise ConfigError(f"mamba conv_kernel is {self.conv_kernel}; a causal convolution needs at least 2")
        if self.heads % self.groups:
            raise ConfigError(f"mamba heads ({self.heads}) must be a multiple of groups ({self.groups})")

    @property
    def inner_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """x, B and C pass through the convolution together."""
        return self.inner_size + 2 * self.groups * self.state_size

    @property
    def projection_size(self) -> int:
        """Rows of in_proj: gate z, then x|B|C, then one dt per head."""
        return self.inner_size + self.conv_channels + self.heads


@dataclass(frozen=True)
class AttentionConfig:
    """Causal grouped-query attention; without rope_theta it has no positional embedding at all."""

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float | None = None
    qk_norm: bool = False

    def __post_init__(self) -> None:
        _positive(self, "heads", "kv_heads", "head_dim")
        if self.heads % self.kv_heads:
            raise ConfigError(f"attention heads ({self.heads}) must be a multiple of kv heads ({self.kv_heads})")
        if self.rope_theta is not None and self.head_dim % 2:
            raise ConfigError(f"rotary embedding needs an even head_dim, got {self.head_dim}")


@dataclass(frozen=True)
class MlpConfig:
    """up → relu² → down, or with gated the usual silu(gate)·up → down."""

    size: int
    gated: bool = False

    def __post_init__(self) -> None:
        _positive(self, "size")


@dataclass(frozen=True)
class MoeConfig:
    """Sigmoid-routed relu² experts beside one shared expert; latent_size narrows what the routed ones see."""

    experts: int
    experts_per_token: int
    expert_size: int
    shared_size: int
    latent_size: int | None = None
    scaling: float = 1.0
    normalize: bool = True
    groups: int = 1
    groups_per_token: int = 1

    def __post_init__(self) -> None:
        _positive(self, "experts", "experts_per_token", "expert_size", "shared_size", "groups", "groups_per_token")
        if self.experts_per_token > self.experts:
            raise ConfigError(f"experts_per_token ({self.experts_per_token}) exceeds experts ({self.experts})")
        if self.experts % self.groups or self.groups_per_token > self.groups:
            raise ConfigError(
                f"{self.experts} experts cannot be {self.groups} groups of which {self.groups_per_token} are used"
            )
        if self.experts_per_token > self.experts // self.groups * self.groups_per_token:
            raise ConfigError(
                f"experts_per_token ({self.experts_per_token}) exceeds the experts in {self.groups_per_token} groups"
            )


@dataclass(frozen=True)
class VisionConfig:
    """The RADIO tower, its projector, and how an image is cut up for them."""

    width: int = 1280
    depth: int = 32
    heads: int = 16
    mlp_size: int = 5120
    patch_size: int = 16
    norm_eps: float = 1e-6
    max_image_size: int = 2048
    prefix_tokens: int = 10
    projector_size: int = 20480
    projector_eps: float = 1e-5
    final_norm: bool = False
    video_frames: int | None = None
    mode: Literal["tiles", "dynamic"] = "tiles"
    tile_size: int = 512
    max_tiles: int = 12
    thumbnail: bool = True
    min_patches: int = 1024
    max_patches: int = 13312
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    image_token_id: int = 18
    image_start_token_id: int | None = None
    image_end_token_id: int | None = None

    def __post_init__(self) -> None:
        _positive(self, "width", "depth", "heads", "mlp_size", "patch_size", "projector_size", "tile_size", "max_tiles")
        if self.width % self.heads:
            raise ConfigError(f"vision width ({self.width}) must be a multiple of heads ({self.heads})")
        if self.max_image_size % self.patch_size:
            raise ConfigError(f"max_image_size ({self.max_image_size}) must be a multiple of {self.patch_size}")
        if self.tile_size % (2 * self.patch_size):
            raise ConfigError(f"tile_size ({self.tile_size}) must be a multiple of {2 * self.patch_size}")
        if self.mode not in ("tiles", "dynamic"):
            raise ConfigError(f"vision mode is {self.mode!r}; known are 'tiles' and 'dynamic'")
        if self.prefix_tokens < 0:
            raise ConfigError(f"prefix_tokens is {self.prefix_tokens}")

    @property
    def patch_values(self) -> int:
        return 3 * self.patch_size**2

    @property
    def table_side(self) -> int:
        """Side of the square position table, in patches."""
        return self.max_image_size // self.patch_size

    @property
    def shuffled_width(self) -> int:
        """Channels after the 2x2 pixel shuffle."""
        return 4 * self.width

    def image_ids(self, tokens: int) -> tuple[list[int], int]:
        """The ids that stand for an image of so many tokens, start and end included, and where its own begin."""
        start = [] if self.image_start_token_id is None else [self.image_start_token_id]
        end = [] if self.image_end_token_id is None else [self.image_end_token_id]
        return [*start, *[self.image_token_id] * tokens, *end], len(start)


@dataclass(frozen=True)
class ModelConfig:
    """A policy: a pattern of mixers over one residual stream, and optionally a vision tower.

    The pattern has one character per layer: M Mamba-2, * attention, - MLP, E mixture of experts.
    """

    name: str
    pattern: str
    hidden_size: int
    vocab_size: int
    mamba: MambaConfig | None = None
    attention: AttentionConfig | None = None
    mlp: MlpConfig | None = None
    moe: MoeConfig | None = None
    vision: VisionConfig | None = None
    norm_eps: float = 1e-5
    tied_embeddings: bool = False
    max_positions: int = 131072
    bos_token_id: int | None = 1
    eos_token_ids: tuple[int, ...] = (2,)
    pad_token_id: int | None = 0

    def __post_init__(self) -> None:
        _positive(self, "hidden_size", "vocab_size", "max_positions")
        if not self.pattern:
            raise ConfigError("the layer pattern is empty; give one of M * - E per layer")
        for position, symbol in enumerate(self.pattern):
            if symbol not in MIXERS:
                raise ConfigError(
                    f"layer {position} of the pattern is {symbol!r}; known are "
                    + ", ".join(f"{s} ({name})" for s, name in MIXERS.items())
                )
        for symbol, part in (("M", self.mamba), ("*", self.attention), ("-", self.mlp), ("E", self.moe)):
            if symbol in self.pattern and part is None:
                raise ConfigError(f"the pattern has {symbol} layers but no {MIXERS[symbol]} description")
        self._check_ids()

    def _check_ids(self) -> None:
        """What is looked up in the embedding must have a row there; nothing is looked up for the image token itself."""
        named: list[tuple[str, int | None]] = [("a stop id", id_) for id_ in self.eos_token_ids]
        if v := self.vision:
            named += [("the start of an image", v.image_start_token_id), ("the end of an image", v.image_end_token_id)]
            if v.image_token_id < 0:
                raise ConfigError(f"{self.name}: the image token is {v.image_token_id}; ids begin at 0")
        for what, id_ in named:
            if id_ is not None and not 0 <= id_ < self.vocab_size:
                raise ConfigError(
                    f"{self.name}: {what} is token {id_}, but the embedding has {self.vocab_size} rows; the tokenizer "
                    "or the ids in its configs belong to another checkpoint"
                )

    def count(self, symbol: str) -> int:
        """How many layers of one kind the pattern has."""
        return self.pattern.count(symbol)

    @property
    def layers(self) -> int:
        return len(self.pattern)

    @property
    def uses_rope(self) -> bool:
        return self.attention is not None and self.attention.rope_theta is not None

    # ---- parameters ---------------------------------------------------------------------------------------------

    @cached_property
    def layer_parameters(self) -> dict[str, int]:
        """Parameters of one layer of each kind in the pattern, its norm included."""
        d = self.hidden_size
        sizes: dict[str, int] = {}
        if "M" in self.pattern and (m := self.mamba):
            conv = m.conv_channels * (m.conv_kernel + int(m.conv_bias))
            sizes["M"] = d + d * m.projection_size + conv + 3 * m.heads + m.inner_size + m.inner_size * d
        if "*" in self.pattern and (a := self.attention):
            qk_norm = 2 * a.head_dim if a.qk_norm else 0
            sizes["*"] = d + 2 * d * a.head_dim * (a.heads + a.kv_heads) + qk_norm
        if "-" in self.pattern and (f := self.mlp):
            sizes["-"] = d + (3 if f.gated else 2) * d * f.size
        if "E" in self.pattern and (e := self.moe):
            inner = e.latent_size or d
            latent = 2 * d * e.latent_size if e.latent_size else 0
            routed = 2 * inner * e.expert_size * e.experts
            sizes["E"] = d + e.experts * d + e.experts + routed + latent + 2 * d * e.shared_size
        return sizes

    @cached_property
    def text_parameters(self) -> int:
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        layers = sum(self.count(symbol) * size for symbol, size in self.layer_parameters.items())
        return embeddings + layers + self.hidden_size

    @cached_property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied with: the embedding is a look-up, unrouted experts rest."""
        active = sum(self.count(symbol) * size for symbol, size in self.layer_parameters.items())
        if e := self.moe:
            inner = e.latent_size or self.hidden_size
            active -= self.count("E") * 2 * inner * e.expert_size * (e.experts - e.experts_per_token)
        return active + self.vocab_size * self.hidden_size + self.hidden_size

    @cached_property
    def vision_parameters(self) -> int:
        if (v := self.vision) is None:
            return 0
        block = 4 * v.width + 4 * v.width**2 + 4 * v.width + 2 * v.width * v.mlp_size + v.mlp_size + v.width
        tables = v.table_side**2 * v.width + v.prefix_tokens * v.width
        patches = v.patch_values * v.width * (1 + (v.video_frames or 0))
        return v.depth * block + tables + patches + (2 * v.width if v.final_norm else 0)

    @cached_property
    def projector_parameters(self) -> int:
        if (v := self.vision) is None:
            return 0
        return v.shuffled_width + v.shuffled_width * v.projector_size + v.projector_size * self.hidden_size

    @property
    def parameters(self) -> int:
        return self.text_parameters + self.vision_parameters + self.projector_parameters

    # ---- memory of a session --------------------------------------------------------------------------------------

    @property
    def kv_values_per_token(self) -> int:
        if self.attention is None:
            return 0
        return self.count("*") * 2 * self.attention.kv_heads * self.attention.head_dim

    @property
    def ssm_values(self) -> int:
        """Values of SSM state that a session of any length carries."""
        if self.mamba is None:
            return 0
        return self.count("M") * self.mamba.inner_size * self.mamba.state_size

    @property
    def conv_values(self) -> int:
        """Values of convolution state that one session carries: the last conv_kernel - 1 inputs."""
        if self.mamba is None:
            return 0
        return self.count("M") * self.mamba.conv_channels * (self.mamba.conv_kernel - 1)


def _positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{type(config).__name__}.{name} is {value!r}; it must be a positive integer")
