"""What the files of a checkpoint say beside its weights is followed, and what cannot be is refused by name."""

import asyncio
import json
import math
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import holotron
from holotron.agent.chat import Message
from holotron.agent.in_process import EngineModel
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.engine.sampling_params import SamplingParams
from holotron.model.checkpoint.config_json import parse_config, read_config, render_config
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import MambaConfig, MlpConfig, QwenVisionConfig
from holotron.model.errors import ConfigError
from holotron.model.initialize import random_model
from holotron.model.presets import PRESETS
from holotron.model.text.byte_tokenizer import byte_library, byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.tokenizer import load_tokenizer

from . import oracle
from .test_parity import theirs_alone
from .tiny import draw_tokens, tiny_config, tiny_model, tiny_vision

TEMPLATE = ChatTemplate(DEFAULT_TEMPLATE.read_text(encoding="utf-8"))


def edit(path, **changes) -> None:
    raw = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(raw | changes))


def see(model, tokenizer) -> str:
    """Shows the model a screenshot as an agent would; how its answer ended."""
    writer = ConversationWriter(tokenizer, TEMPLATE, model.config)
    with Engine(model, EngineConfig(slots=3, pages=80, page_size=64), tokenizer) as engine:
        policy = EngineModel(engine, writer)
        policy.style = replace(policy.style, max_tokens=2, use_grammar=False)

        async def ask() -> str:
            chat = await policy.open()
            reply = await chat.say([Message("user", "what is this?", Image.new("RGB", (640, 400)))])
            return reply.finish_reason

        return asyncio.run(ask())


# ---- images ----


@pytest.mark.parametrize("name", [name for name, known in PRESETS.items() if known.config.vision])
def test_every_preset_takes_a_screenshot(name):
    """Its vocabulary and its vision settings; the rest is small enough to run here."""
    config = PRESETS[name].config
    parts = {"width": 16, "depth": 1, "heads": 2, "mlp_size": 16}
    sizes = {"heads": 2, "kv_heads": 1, "head_dim": 16}
    if isinstance(config.vision, QwenVisionConfig):
        parts |= {"deepstack": (0,) if config.vision.deepstack else (), "full_attention": ()}
        sizes["mrope_section"] = (4, 2, 2)
        layers = {"pattern": "*-", "mlp": MlpConfig(16, gated=True)}
    else:
        parts["projector_size"] = 16
        mamba = MambaConfig(heads=2, head_dim=8, state_size=8, groups=1)
        layers = {"pattern": "M*-", "mlp": MlpConfig(16), "mamba": mamba}
    layers |= {"attention": replace(config.attention, **sizes), "vision": replace(config.vision, **parts), "moe": None}
    small = replace(config, hidden_size=16, **layers)
    assert see(random_model(small), byte_tokenizer(config)) in ("stop", "length")


@pytest.fixture(scope="module")
def omni(tmp_path_factory):
    """As Nemotron 3 Omni is published: an id for the image token, texts for what stands around it, and a tokenizer."""
    folder = tmp_path_factory.mktemp("omni") / "model"
    vision = tiny_vision(image_token_id=18, image_start_token_id=19, image_end_token_id=20)
    config = tiny_config("M-*-", vocab_size=300, vision=vision)
    save_checkpoint(random_model(config), folder)
    byte_library(config).save(str(folder / "tokenizer.json"))
    raw = json.loads((folder / "config.json").read_text())
    for key in ("image_token_id", "image_start_token_id", "image_end_token_id"):
        del raw[key]
    texts = {"img_context_token": "<image>", "img_start_token": "<img>", "img_end_token": "</img>"}
    (folder / "config.json").write_text(json.dumps(raw | {"img_context_token_id": 18} | texts))
    return folder


def test_the_tokens_around_an_image_are_the_tokenizers(omni):
    model = load_checkpoint(omni)
    vision = model.config.vision
    assert (vision.image_token_id, vision.image_start_token_id, vision.image_end_token_id) == (18, 19, 20)
    assert read_config(omni) == model.config
    writer = ConversationWriter(load_tokenizer(omni), TEMPLATE, model.config)
    written = writer.write([{"role": "user", "content": [{"type": "image"}]}], [(16, 16)])
    (place,) = written.places
    count = written.token_ids.count(18)
    assert written.token_ids[place - 1 : place + count + 1] == (19, *[18] * count, 20)
    assert see(model, load_tokenizer(omni)) in ("stop", "length")


def test_image_tokens_without_a_row_are_refused(omni, tmp_path):
    raw = json.loads((omni / "config.json").read_text())
    beyond = {"<image>": 131072, "<img>": 131073, "</img>": 131074}
    with pytest.raises(ConfigError, match="the start of an image is token 131073, but the embedding has 300 rows"):
        parse_config(raw, "x", beyond.get)
    with pytest.raises(ConfigError, match="img_start_token is '<img>', which the tokenizer does not have"):
        parse_config(raw, "x", {"<image>": 18}.get)
    with pytest.raises(ConfigError, match="says where images go"):
        parse_config({key: value for key, value in raw.items() if not key.startswith("img_")}, "x", {}.get)


@pytest.mark.parametrize("where", ["preprocessor_config.json", "processor_config.json"])
def test_sizes_and_normalisation_of_images_are_read(where, omni, tmp_path):
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    values = {"image_mean": mean, "image_std": std, "max_num_patches": 48}
    (tmp_path / "config.json").write_text((omni / "config.json").read_text())
    (tmp_path / "tokenizer.json").write_text((omni / "tokenizer.json").read_text())
    edit(tmp_path / where, **({"image_processor": values} if where == "processor_config.json" else values))
    vision = read_config(tmp_path).vision
    assert (list(vision.mean), list(vision.std), vision.max_patches) == (mean, std, 48)


# ---- text ----


def test_a_separate_head_is_used_whatever_the_config_says(tmp_path):
    theirs = oracle.make_nemotron(0, "dense")
    theirs.config.tie_word_embeddings = True
    folder = oracle.save(theirs, tmp_path / "model")
    ours = load_checkpoint(folder)
    tokens = draw_tokens(19)
    with torch.no_grad():
        assert oracle.difference(ours.score([tokens])[0], theirs_alone(theirs, tokens)) < 1e-4
    save_checkpoint(ours, tmp_path / "again")
    again = load_checkpoint(tmp_path / "again")
    assert not again.config.tied_embeddings
    assert torch.equal(again.decoder.lm_head.weight, theirs.lm_head.weight)


def test_a_head_that_is_the_embedding_stays_tied(tmp_path):
    model = tiny_model("M-*-", dtype=torch.float32, tied_embeddings=True)
    save_checkpoint(model, tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(stored["lm_head.weight"], stored["backbone.embeddings.weight"])
    again = load_checkpoint(tmp_path / "model")
    assert again.decoder.lm_head.weight is again.decoder.embeddings.weight
    stored["lm_head.weight"] = stored["lm_head.weight"] + 1
    save_file(stored, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    changed = load_checkpoint(tmp_path / "model").decoder
    assert torch.allclose(changed.lm_head.weight, changed.embeddings.weight + 1)


def test_answers_end_where_generation_config_says(tmp_path):
    model = tiny_model("M-*-", dtype=torch.float32, eos_token_ids=(63,))
    save_checkpoint(model, tmp_path)

    def generate() -> tuple[list[int], str]:
        with Engine(load_checkpoint(tmp_path), EngineConfig(slots=3, pages=9)) as engine:
            session = engine.open_session()
            answer = asyncio.run(session.generate([5, 6, 7], SamplingParams(max_tokens=5, temperature=0.0)))
            return answer.token_ids, answer.finish_reason

    tokens, reason = generate()
    assert (len(tokens), reason) == (5, "length")
    edit(tmp_path / "generation_config.json", eos_token_id=[tokens[3], 9])
    assert read_config(tmp_path).eos_token_ids == (tokens[3], 9, 63)
    assert generate() == (tokens[: tokens.index(tokens[3]) + 1], "eos")
    edit(tmp_path / "generation_config.json", eos_token_id="</s>")
    with pytest.raises(ConfigError, match="eos_token_id is"):
        read_config(tmp_path)
    edit(tmp_path / "generation_config.json", eos_token_id=64)
    with pytest.raises(ConfigError, match="a stop id is token 64, but the embedding has 64 rows"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt, NVFP4"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "compressed-tensors, pack-quantized"),
    ],
)
def test_quantised_checkpoints_are_refused_by_that_name(stated, named):
    raw = render_config(tiny_config())
    vision = render_config(tiny_config(vision=tiny_vision()))
    inner = {"text_config": vision["text_config"] | {"quantization_config": stated}}
    for given in (raw | {"quantization_config": stated}, vision | inner):
        with pytest.raises(ConfigError, match=rf"the checkpoint is quantised \({named}\).*BF16"):
            parse_config(given, "x")


def test_a_file_can_say_that_a_checkpoint_is_quantised(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(render_config(tiny_config())))
    edit(tmp_path / "hf_quant_config.json", producer={"name": "modelopt"}, quantization={"quant_algo": "NVFP4"})
    with pytest.raises(ConfigError, match=r"quantised \(NVFP4\)"):
        read_config(tmp_path)


# ---- step sizes ----


def test_the_other_name_of_the_limit_is_read():
    raw = render_config(tiny_config()) | {"mamba_dt_limit": [0.01, 0.5]}
    assert parse_config(raw, "x").mamba.dt_limit == (0.01, 0.5)


def test_transformers_clamps_small_steps_of_a_prompt_and_we_do_not(tmp_path):
    """The one known difference: with the limit that transformers takes from time_step_min, both are equal again."""
    theirs = oracle.make_nemotron(0, "dense")
    with torch.no_grad():
        for layer in theirs.model.layers:
            if hasattr(layer.mixer, "dt_bias"):
                layer.mixer.dt_bias.fill_(-9.0)  # steps of about 1e-4, where transformers takes 1e-3
    folder = oracle.save(theirs, tmp_path / "model")
    for module in theirs.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (theirs.config.time_step_min, math.inf)
    tokens = draw_tokens(19)

    def apart() -> float:
        with torch.no_grad():
            return oracle.difference(load_checkpoint(folder).score([tokens])[0], theirs_alone(theirs, tokens))

    assert apart() > 1e-3
    edit(folder / "config.json", time_step_limit=[theirs.config.time_step_min, {"__float__": "Infinity"}])
    assert apart() < 1e-4


def test_transformers_reads_the_bundled_policy_as_it_is_written_here(tmp_path):
    ours = holotron.load("holotron-nano", "cpu", torch.float32)
    save_checkpoint(ours, tmp_path / "nano")
    theirs, report = oracle.omni().NemotronH_Omni_Reasoning_V3.from_pretrained(
        tmp_path / "nano", output_loading_info=True
    )
    # A buffer that nothing here reads, and the embedding of video, which the policy does not have.
    unread = ("summary_idxs", "video_patch_projection.weight")
    assert all(key.endswith(unread) for key in report["missing_keys"])
    assert not report["unexpected_keys"]
    grid, image = (4, 6), ours.config.vision.image_token_id
    tokens = [*draw_tokens(9), *[image] * 6, *draw_tokens(5, seed=1)]
    patches = torch.rand(24, 768, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        (logits,) = ours.score([tokens], ours.encode_patches(patches, [grid]))
        seen = {"pixel_values": patches, "image_grid_hw": torch.tensor([grid])}
        expected = theirs.eval()(torch.tensor([tokens]), **seen).logits[0]
    assert expected.abs().max() > 1
    assert oracle.difference(logits, expected) < 1e-4
