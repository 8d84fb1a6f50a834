"""Small conversations over drawn screenshots, and a policy small enough to learn them on a CPU."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from holotron.agent.policy_format import NANO, save_format
from holotron.episodes.examples import Example, ExampleTurn
from holotron.episodes.shards import ShardWriter
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import (
    AttentionConfig,
    MambaConfig,
    MlpConfig,
    ModelConfig,
    QwenVisionConfig,
    VisionConfig,
)
from holotron.model.initialize import random_model
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.policy_tokenizer import policy_template, policy_tokenizer, save_policy_texts

CONFIG = ModelConfig(
    name="tiny-policy",
    pattern="M-M*-",
    hidden_size=64,
    vocab_size=2368,
    tied_embeddings=True,
    mamba=MambaConfig(heads=4, head_dim=16, state_size=16, groups=2, chunk_size=16),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=16),
    mlp=MlpConfig(128),
    vision=VisionConfig(
        width=48,
        depth=2,
        heads=3,
        mlp_size=96,
        max_image_size=128,
        prefix_tokens=2,
        projector_size=64,
        mode="dynamic",
        min_patches=4,
        max_patches=64,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)


def qwen_config(version: str) -> ModelConfig:
    """A policy of Qwen3-VL's shape ("3") or Qwen2.5-VL's ("2.5")."""
    is_3 = version == "3"
    vision = QwenVisionConfig(
        version=version,  # type: ignore[arg-type]
        width=48,
        depth=3,
        heads=3,
        mlp_size=64,
        patch_size=8,
        max_image_size=64,
        deepstack=(0, 2) if is_3 else (),
        window_size=None if is_3 else 32,
        full_attention=() if is_3 else (1,),
        min_pixels=16 * 16,
        max_pixels=64 * 64,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    )
    attention = AttentionConfig(
        heads=4,
        kv_heads=2,
        head_dim=16,
        rope_theta=10_000.0,
        qk_norm=is_3,
        bias=not is_3,
        mrope_section=(4, 2, 2) if is_3 else (2, 3, 3),
        mrope_interleaved=is_3,
    )
    return replace(
        CONFIG, pattern="*-*-", mamba=None, attention=attention, mlp=MlpConfig(96, gated=True), vision=vision
    )


def policy_writer(config: ModelConfig) -> ConversationWriter:
    return ConversationWriter(policy_tokenizer(config), policy_template(), config)


# Large enough to learn to click on the button of a MiniWoB++ page within a hundred steps.
CLICKER = ModelConfig(
    name="tiny-policy",
    pattern="M-*-",
    hidden_size=96,
    vocab_size=2368,
    tied_embeddings=True,
    mamba=MambaConfig(heads=6, head_dim=32, state_size=16, groups=1, chunk_size=64),
    attention=AttentionConfig(heads=3, kv_heads=1, head_dim=32),
    mlp=MlpConfig(192),
    vision=VisionConfig(
        width=96,
        depth=3,
        heads=3,
        mlp_size=192,
        max_image_size=256,
        prefix_tokens=1,
        projector_size=128,
        mode="dynamic",
        min_patches=16,
        max_patches=160,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)
# What fits it, in a recipe.
CLICKER_RECIPE = """
dtype = "float32"
workers = 0
coordinate_sigma = 12.0
[batch]
tokens = 1024
patches = 2240
learned = 320
sequences = 16
images = 16
[optimizer]
kind = "muon"
rate = 3e-3
warmup = 10
average = 0.9
decay = 0.4
"""


def write_clicker(folder: Path) -> None:
    """A checkpoint with random weights that says how it wants to be asked."""
    save_checkpoint(random_model(CLICKER), folder)
    save_policy_texts(CLICKER, folder)
    save_format(NANO, folder)


def picture(chance: random.Random, size: tuple[int, int] = (64, 64)) -> tuple[bytes, tuple[int, int]]:
    """A square on a plain ground, and where it is in thousandths."""
    x, y = chance.randrange(8, size[0] - 8), chance.randrange(8, size[1] - 8)
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((x - 7, y - 7, x + 7, y + 7), fill=chance.choice(["red", "blue", "green"]))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue(), (1000 * x // size[0], 1000 * y // size[1])


def written(seed: int, letters: str = "abcd") -> Example:
    """A few letters on a plain ground, a question about them, and what is written where."""
    chance = random.Random(f"written/{seed}")
    image, words = Image.new("RGB", (64, 64), "white"), []
    for row in (8, 24, 40):
        letter, x = chance.choice(letters), 16 * chance.randrange(4) + 8
        # Letters as bars of their own height: what matters is that they can be told apart.
        tall = 3 + 3 * letters.index(letter)
        ImageDraw.Draw(image).rectangle((x - 3, row + 7 - tall, x + 3, row + 7), fill="black")
        words.append((letter, row, (x,)))
    file = io.BytesIO()
    image.save(file, "PNG")
    turn = ExampleTurn("Read: all", "".join(letter for letter, _, _ in words), file.getvalue())
    return Example("written", (turn,), {"writing": {"words": words, "unread": [(0, 48, 63, 63)]}})


def sample(seed: int, steps: int | None = None, size: tuple[int, int] | None = None) -> Example:
    chance = random.Random(seed)
    turns = []
    for step in range(steps or chance.randrange(1, 5)):
        png, (x, y) = picture(chance, size or chance.choice([(64, 64), (96, 64), (48, 80)]))
        image = png if step == 0 or chance.random() < 0.7 else None
        said = f"Task: click {chance.randrange(10**6)}" if step == 0 else ""
        turns.append(
            ExampleTurn(said, f'{{"action":"click","x":{x},"y":{y}}}', image, learn=chance.random() < 0.8 or step == 0)
        )
    return Example("squares", tuple(turns), {"seed": seed})


def write_start(folder: Path) -> None:
    """Three shards of samples in `data`, one with letters in `written`, and checkpoints in `start` and `qwen`."""
    for shard in range(3):
        with ShardWriter(folder / "data" / f"part{shard}") as shards:
            for seed in range(20):
                shards.add(sample(100 * shard + seed))
    with ShardWriter(folder / "written" / "part") as shards:
        for seed in range(60):
            shards.add(written(seed))
    for name, config in (("start", CONFIG), ("qwen", qwen_config("3"))):
        save_checkpoint(random_model(config, seed=1), folder / name)
        save_policy_texts(config, folder / name)


def write_store(folder: Path, episodes: int = 24) -> None:
    """Episodes of two tasks over drawn screenshots, played by a teacher, with a policy's mistake in every fourth."""
    from holotron.actions.action import Click
    from holotron.env.task import Task
    from holotron.episodes.record import (
        EnvironmentInfo,
        ModelOutput,
        ObservationRecord,
        Outcome,
        PolicyInfo,
        Step,
        StepAction,
    )
    from holotron.episodes.store import EpisodeStore

    store = EpisodeStore(folder, sync="never")
    for seed in range(episodes):
        chance = random.Random(f"store/{seed}")
        task = Task(text=f"click {seed}", benchmark="squares", name=f"task-{seed % 2}", seed=seed)
        with store.begin(task, PolicyInfo(model="tiny"), EnvironmentInfo(name="drawn")) as writer:
            for index in range(chance.randrange(1, 4)):
                png, (x, y) = picture(chance)
                wanted, wrong = Click(x=x, y=y), Click(x=y, y=x)
                astray = seed % 4 == 0 and index == 0
                step = Step(
                    index=index,
                    observation=ObservationRecord(width=64, height=64),
                    actor="policy" if astray else "teacher",
                    action=StepAction.of(wrong if astray else wanted, 64, 64),
                    teacher=StepAction.of(wanted, 64, 64),
                    output=ModelOutput(text=StepAction.of(wrong, 64, 64).text) if astray else None,
                )
                writer.add_step(step, png)
            writer.finish(Outcome(reason="done", success=True, reward=1.0))
