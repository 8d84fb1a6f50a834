"""What a policy is made of: frozen descriptions from which every size and cost follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

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
    """Causal grouped-query attention; without rope_theta it has no positional embedding at all.

    mrope_section: how many of the rotary frequencies follow a token's time, row and column, where those differ; they
    take turns with mrope_interleaved, else they lie side by side. bias is that of q, k and v.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float | None = None
    qk_norm: bool = False
    bias: bool = False
    mrope_section: tuple[int, int, int] | None = None
    mrope_interleaved: bool = True

    def __post_init__(self) -> None:
        _positive(self, "heads", "kv_heads", "head_dim")
        if self.heads % self.kv_heads:
            raise ConfigError(f"attention heads ({self.heads}) must be a multiple of kv heads ({self.kv_heads})")
        if self.rope_theta is not None and self.head_dim % 2:
            raise ConfigError(f"rotary embedding needs an even head_dim, got {self.head_dim}")
        if (section := self.mrope_section) is not None:
            frequencies = self.head_dim // 2
            crowded = self.mrope_interleaved and 3 * max(section[1:]) > frequencies
            if len(section) != 3 or sum(section) != frequencies or crowded:
                raise ConfigError(
                    f"mrope_section is {list(section)}; it must share the {frequencies} rotary frequencies out among "
                    "time, rows and columns"
                )


@dataclass(frozen=True)
class MlpConfig:
    """up → relu² → down, or with gated the usual silu(gate)·up → down."""

    size: int
    gated: bool = False

    def __post_init__(self) -> None:
        _positive(self, "size")


@dataclass(frozen=True)
class MoeConfig:
    """Routed relu² experts, or gated silu ones, beside a shared expert unless its size is 0.

    latent_size narrows what the routed ones see. A softmax router has no correction of its choice.
    """

    experts: int
    experts_per_token: int
    expert_size: int
    shared_size: int
    latent_size: int | None = None
    scaling: float = 1.0
    normalize: bool = True
    groups: int = 1
    groups_per_token: int = 1
    router: Literal["sigmoid", "softmax"] = "sigmoid"
    gated: bool = False

    def __post_init__(self) -> None:
        _positive(self, "experts", "experts_per_token", "expert_size", "groups", "groups_per_token")
        if self.shared_size < 0:
            raise ConfigError(f"shared_size is {self.shared_size}; without a shared expert it is 0")
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

    @property
    def matrices(self) -> int:
        """Of an expert."""
        return 3 if self.gated else 2


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
    mode: Literal["tiles", "dynamic", "scaled"] = "tiles"
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
        if self.mode == "tiles" and self.tile_size % (2 * self.patch_size):
            raise ConfigError(f"tile_size ({self.tile_size}) must be a multiple of {2 * self.patch_size}")
        if self.mode not in ("tiles", "dynamic", "scaled"):
            raise ConfigError(f"vision mode is {self.mode!r}; known are 'tiles', 'dynamic' and 'scaled'")
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

    @property
    def gated(self) -> bool:
        """Whether the blocks have gated MLPs, and RMS norms with them."""
        return False

    @property
    def window(self) -> int | None:
        """The side, in patches, of the windows that patches attend within; None where they attend to all."""
        return None

    def shrunk(self, max_patches: int) -> Self:
        """With images of at most so many patches."""
        return replace(self, max_patches=max_patches)

    @property
    def parameters(self) -> int:
        """Those of the tower."""
        width = self.width
        block = 4 * width + 4 * width**2 + 4 * width + 2 * width * self.mlp_size + self.mlp_size + width
        tables = self.table_side**2 * width + self.prefix_tokens * width
        patches = self.patch_values * width * (1 + (self.video_frames or 0))
        return self.depth * block + tables + patches + (2 * width if self.final_norm else 0)

    def projector_parameters(self, hidden_size: int) -> int:
        """Those of what makes tokens of its patches."""
        return self.shuffled_width * (1 + self.projector_size) + self.projector_size * hidden_size


@dataclass(frozen=True)
class QwenVisionConfig(VisionConfig):
    """The tower of Qwen2.5-VL or Qwen3-VL with its mergers, and the sizes that images are scaled to for it.

    Version 3 hands the features after the blocks in `deepstack` to the first decoder layers. Version 2.5 attends within
    windows of `window_size` pixels in all blocks but those in `full_attention`. The tokens around an image are written
    by the chat template of these models.
    """

    version: Literal["2.5", "3"] = "3"
    width: int = 1152
    depth: int = 27
    mlp_size: int = 4304
    max_image_size: int = 768
    prefix_tokens: int = 0
    mode: Literal["tiles", "dynamic", "scaled"] = "scaled"
    deepstack: tuple[int, ...] = ()
    window_size: int | None = None
    full_attention: tuple[int, ...] = ()
    min_pixels: int = 65536
    max_pixels: int = 16777216
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_token_id: int = 151655

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "min_pixels", "max_pixels", *(["window_size"] if self.version == "2.5" else []))
        if self.version not in ("2.5", "3"):
            raise ConfigError(f"the tower's version is {self.version!r}; known are '2.5' and '3'")
        if self.mode != "scaled":
            raise ConfigError(f"vision mode is {self.mode!r}; this tower takes images that are 'scaled'")
        if self.width // self.heads % 4:
            raise ConfigError(f"rotary rows and columns need heads of a multiple of 4, got {self.width // self.heads}")
        if self.window_size is not None and self.window_size % (2 * self.patch_size):
            raise ConfigError(f"window_size ({self.window_size}) must be a multiple of {2 * self.patch_size}")
        for name in ("deepstack", "full_attention"):
            if any(not 0 <= block < self.depth for block in getattr(self, name)):
                raise ConfigError(f"{name} is {list(getattr(self, name))}; the tower has blocks 0 to {self.depth - 1}")

    @property
    def gated(self) -> bool:
        return self.version == "2.5"

    def shrunk(self, max_patches: int) -> Self:
        most = max_patches * self.patch_size**2
        return replace(self, min_pixels=min(self.min_pixels, most), max_pixels=most)

    @property
    def window(self) -> int | None:
        return None if self.window_size is None else self.window_size // self.patch_size

    @property
    def parameters(self) -> int:
        width, inner = self.width, self.mlp_size
        patches, attention = 2 * self.patch_values * width, 4 * width**2 + 4 * width
        if self.version == "2.5":
            return patches + self.depth * (2 * width + attention + 3 * width * inner + 2 * inner + width)
        block = 4 * width + attention + 2 * width * inner + inner + width
        return patches + width + self.table_side**2 * width + self.depth * block

    def projector_parameters(self, hidden_size: int) -> int:
        wide = self.shuffled_width
        layers = wide**2 + wide + wide * hidden_size + hidden_size
        if self.version == "2.5":
            return self.width + layers
        return 2 * self.width + layers + len(self.deepstack) * (2 * wide + layers)


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

    @property
    def uses_mrope(self) -> bool:
        """Whether the tokens of an image lie at positions of their own, so that those after it are moved."""
        return self.attention is not None and self.attention.mrope_section is not None

    @property
    def deepstack_layers(self) -> int:
        """How many layers of features the vision tower gives for each image token beside its embedding."""
        return len(self.vision.deepstack) if isinstance(self.vision, QwenVisionConfig) else 0

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
            bias = a.head_dim * (a.heads + 2 * a.kv_heads) if a.bias else 0
            sizes["*"] = d + 2 * d * a.head_dim * (a.heads + a.kv_heads) + qk_norm + bias
        if "-" in self.pattern and (f := self.mlp):
            sizes["-"] = d + (3 if f.gated else 2) * d * f.size
        if "E" in self.pattern and (e := self.moe):
            inner = e.latent_size or d
            latent = 2 * d * e.latent_size if e.latent_size else 0
            routed = e.matrices * inner * e.expert_size * e.experts
            correction = e.experts if e.router == "sigmoid" else 0
            shared = e.matrices * d * e.shared_size
            sizes["E"] = d + e.experts * d + correction + routed + latent + shared
        return sizes

    @property
    def expert_parameters(self) -> int:
        """The weights of one routed expert in all layers."""
        if (e := self.moe) is None:
            return 0
        return e.matrices * (e.latent_size or self.hidden_size) * e.expert_size * self.count("E")

    @cached_property
    def shared_parameters(self) -> int:
        """The weights of all layers but for routed experts: what every token is multiplied with there."""
        layers = sum(self.count(symbol) * size for symbol, size in self.layer_parameters.items())
        return layers - self.expert_parameters * (self.moe.experts if self.moe else 0)

    @cached_property
    def text_parameters(self) -> int:
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        experts = self.expert_parameters * (self.moe.experts if self.moe else 0)
        return embeddings + self.shared_parameters + experts + self.hidden_size

    @cached_property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied with: the embedding is a look-up, unrouted experts rest."""
        experts = self.expert_parameters * (self.moe.experts_per_token if self.moe else 0)
        return self.shared_parameters + experts + self.vocab_size * self.hidden_size + self.hidden_size

    @property
    def vision_parameters(self) -> int:
        return 0 if self.vision is None else self.vision.parameters

    @property
    def projector_parameters(self) -> int:
        return 0 if self.vision is None else self.vision.projector_parameters(self.hidden_size)

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
