"""Tiny random Qwen vision-language models of transformers, drawn by seed, and prompts with images for them."""

from __future__ import annotations

import random

import torch

from holotron.model.tiling import ProcessedImage

from .oracle import IMAGE_TOKEN, scatter_weights, transformers

KINDS = ("qwen3", "experts", "qwen2.5")
VOCABULARY, START, END = 100, 92, 93
PATCH = 4
Grid = tuple[int, int]


def draw_text(draw: random.Random, kind: str) -> dict:
    kv_heads = draw.choice([1, 2])
    heads = kv_heads * draw.choice([1, 2])
    head_dim = draw.choice([16, 32])
    half = head_dim // 2
    rows = draw.randint(1, half // 3)
    columns = draw.randint(1, half // 3)
    if kind == "qwen2.5":
        rows = columns = 3 * half // 8
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * head_dim if kind == "qwen2.5" else draw.choice([32, 48]),
        "intermediate_size": draw.choice([40, 64]),
        "num_hidden_layers": draw.choice([2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": draw.choice([10_000.0, 5_000_000.0]),
            "mrope_section": [half - rows - columns, rows, columns],
        },
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if kind != "qwen2.5":
        text["head_dim"] = head_dim
        text["rope_parameters"]["mrope_interleaved"] = True
    if kind == "experts":
        text |= {"moe_intermediate_size": draw.choice([12, 16, text["hidden_size"]]), "num_experts": 5}
        text |= {"num_experts_per_tok": draw.choice([1, 3]), "mlp_only_layers": draw.choice([[], [1]])}
    return text


def draw_tower(draw: random.Random, kind: str, hidden_size: int, layers: int) -> dict:
    heads, depth = draw.choice([1, 2]), 3
    tower = {
        "depth": depth,
        "hidden_size": heads * draw.choice([8, 12]),
        "intermediate_size": draw.choice([24, 40]),
        "num_heads": heads,
        "patch_size": PATCH,
        "out_hidden_size": hidden_size,
    }
    if kind == "qwen2.5":
        full = sorted(draw.sample(range(depth), draw.choice([0, 1])))
        return tower | {"window_size": draw.choice([8, 16, 24]), "fullatt_block_indexes": full}
    deepstack = sorted(draw.sample(range(depth), draw.choice([1, min(layers, depth)])))
    return tower | {"num_position_embeddings": draw.choice([16, 36]), "deepstack_visual_indexes": deepstack}


def make_qwen_vl(seed: int, kind: str) -> torch.nn.Module:
    draw = random.Random(f"{kind}{seed}")
    text = draw_text(draw, kind)
    family = {"qwen3": "Qwen3VL", "experts": "Qwen3VLMoe", "qwen2.5": "Qwen2_5_VL"}[kind]
    config = getattr(transformers, f"{family}Config")(
        text_config=text,
        vision_config=draw_tower(draw, kind, text["hidden_size"], text["num_hidden_layers"]),
        image_token_id=IMAGE_TOKEN,
        video_token_id=91,
        vision_start_token_id=START,
        vision_end_token_id=END,
        tie_word_embeddings=draw.choice([True, False]),
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    scatter_weights(model, seed)
    return model


def exactly(theirs: torch.nn.Module) -> torch.nn.Module:
    """The same model in float64, made anew inside `in_float64` so that its rotary tables are in float64, too."""
    exact = type(theirs)(theirs.config).eval().double()
    exact.load_state_dict(theirs.state_dict())
    for module in exact.modules():
        if hasattr(module, "config"):
            module.config._experts_implementation = "eager"  # its grouped matrix product knows no float64
    return exact


# ---- prompts ----


def random_image(seed: int, grid: Grid) -> ProcessedImage:
    """An image of which only the patches are known, row by row."""
    rows, columns = grid
    patches = torch.randn(rows * columns, 3 * PATCH**2, generator=torch.Generator().manual_seed(seed))
    return ProcessedImage((grid,), rows * columns // 4, (columns * PATCH, rows * PATCH), patches)


def prompt(seed: int, grids: list[Grid]) -> tuple[list[int], list[tuple[int, ProcessedImage]]]:
    """Text, and images in their markup with text after each; and each image with the place of its first token."""
    draw = random.Random(seed)
    ids = [draw.randrange(90) for _ in range(draw.randint(1, 9))]
    places = []
    for number, grid in enumerate(grids):
        image = random_image(10 * seed + number, grid)
        places.append((len(ids) + 1, image))
        ids += [START, *[IMAGE_TOKEN] * image.tokens, END]
        ids += [draw.randrange(90) for _ in range(draw.randint(0, 5))]
    return [*ids, draw.randrange(90)], places


def their_patches(image: ProcessedImage) -> torch.Tensor:
    """The patches as their towers take them: four of a token together, each shown twice."""
    ((rows, columns),) = image.grids
    patches = image.patches.view(rows // 2, 2, columns // 2, 2, 3, 1, -1).transpose(1, 2)
    return patches.expand(-1, -1, -1, -1, -1, 2, -1).reshape(rows * columns, -1)


def their_inputs(ids: list[int], images: list[ProcessedImage]) -> dict:
    token_ids = torch.tensor([ids])
    # Without a mask, `generate` would leave out tokens that look like padding.
    inputs = {"input_ids": token_ids, "attention_mask": torch.ones_like(token_ids)}
    inputs["mm_token_type_ids"] = (token_ids == IMAGE_TOKEN).int()
    if images:
        inputs["pixel_values"] = torch.cat([their_patches(image) for image in images])
        inputs["image_grid_thw"] = torch.tensor([(1, *image.grids[0]) for image in images])
    return inputs


@torch.no_grad()
def their_logits(theirs: torch.nn.Module, ids: list[int], images: list[ProcessedImage]) -> torch.Tensor:
    theirs.base_model.rope_deltas = None  # it would remember those of the prompt before
    return theirs(**their_inputs(ids, images), use_cache=False).logits[0]


@torch.no_grad()
def their_answer(theirs: torch.nn.Module, ids: list[int], images: list[ProcessedImage], count: int) -> list[int]:
    """Greedy; as here, the image token is never generated."""
    theirs.base_model.rope_deltas = None
    options = {"max_new_tokens": count, "do_sample": False, "suppress_tokens": [IMAGE_TOKEN], "pad_token_id": 0}
    return theirs.generate(**their_inputs(ids, images), **options)[0, len(ids) :].tolist()
