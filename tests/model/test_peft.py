"""What PEFT trains and saves over transformers is what an adapter computes here, and the other way round."""

import pytest
import torch

from holotron.model.adapters import load_adapters
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.errors import ModelError
from holotron.train.lora import merge_adapter

from . import oracle
from .adapter_files import write_adapter
from .qwen_oracle import make_qwen_vl
from .test_parity import theirs_alone
from .tiny import draw_tokens

# PEFT itself refuses out_proj of Mamba layers.
CASES = {
    "hybrid": (lambda: oracle.make_nemotron(0, "dense"), ["in_proj", "q_proj", "o_proj", "up_proj", "down_proj"], {}),
    "scales": (lambda: oracle.make_nemotron(0, "dense"), ["in_proj", "up_proj"], {"use_rslora": True}),
    "shared expert": (lambda: oracle.make_nemotron(1, "moe"), ["in_proj", "shared_experts.up_proj"], {}),
    "transformer": (lambda: oracle.make_qwen3(0), "all-linear", {"alpha_pattern": {"q_proj": 3}}),
    "vision": (
        lambda: oracle.make_omni(0),
        r".*(language_model.*in_proj|vision_model.*(q_proj|v_proj|fc1)|linear_1)$",
        {},
    ),
}


@pytest.fixture(scope="module")
def peft():
    """Imported here: it takes seconds, and only one of the processes that run tests needs it."""
    return pytest.importorskip("peft")


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_of_peft(peft, case, tmp_path):
    make, targets, more = CASES[case]
    theirs = make()
    oracle.save(theirs, tmp_path / "base")
    config = peft.LoraConfig(r=4, lora_alpha=10, target_modules=targets, init_lora_weights=False, **more)
    adapted = peft.get_peft_model(theirs, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    ours = load_checkpoint(tmp_path / "base")
    load_adapters(ours, {"a": tmp_path / "adapter"})
    tokens = draw_tokens(19)
    with torch.no_grad(), ours.using("a"):
        expected = theirs_alone(adapted, tokens)
        assert oracle.difference(ours.score([tokens])[0], expected) < 1e-4
        with adapted.disable_adapter():
            assert oracle.difference(theirs_alone(adapted, tokens), expected) > 0.1


EXPERTS = ("experts.up_proj", "experts.down_proj")
# Nothing named is what is learned where a recipe names nothing.
OURS = {
    "hybrid": (lambda: oracle.make_nemotron(0, "dense"), ()),
    "transformer": (lambda: oracle.make_qwen3(0), ()),
    "vision": (lambda: oracle.make_omni(0), ("in_proj", "out_proj", "attn.qkv", "fc1", "projector.up")),
    "experts": (lambda: oracle.make_nemotron(1, "moe"), ("in_proj", *EXPERTS)),
    "latent experts": (lambda: oracle.make_nemotron(0, "latent"), EXPERTS),
    "gated experts": (
        lambda: make_qwen_vl(0, "experts"),
        ("q_proj", "attn.proj", "experts.gate_up_proj", "experts.down_proj"),
    ),
    "qwen2.5-vl": (lambda: make_qwen_vl(0, "qwen2.5"), ()),
    "one weight of the experts": (lambda: oracle.make_nemotron(1, "moe"), EXPERTS[:1]),
}


@pytest.mark.parametrize("case", OURS)
def test_an_adapter_of_ours_in_peft(peft, case, tmp_path):
    make, targets = OURS[case]
    theirs = make()
    ours = load_checkpoint(oracle.save(theirs, tmp_path / "base"))
    changed = write_adapter(ours, tmp_path / "adapter", 1, targets)
    adapted = peft.PeftModel.from_pretrained(theirs, str(tmp_path / "adapter")).eval()
    # What it had found no tensor for would be zero.
    assert all(weight.any() for name, weight in adapted.named_parameters() if "lora_B" in name)
    tokens = draw_tokens(19)
    with torch.no_grad():
        expected = changed.score([tokens])[0]
        assert oracle.difference(theirs_alone(adapted, tokens), expected) < 1e-4
        assert oracle.difference(ours.score([tokens])[0], expected) > 0.1


@pytest.mark.parametrize("kind", ["moe", "latent"])
def test_experts_that_peft_has_changed(peft, kind, tmp_path):
    """They are not served beside the base: a checkpoint is written with them."""
    theirs = oracle.make_nemotron(1, kind)
    oracle.save(theirs, tmp_path / "base")
    config = peft.LoraConfig(
        r=3, lora_alpha=10, target_modules=["in_proj"], target_parameters=list(EXPERTS), init_lora_weights=False
    )
    adapted = peft.get_peft_model(theirs, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match=r"adapter a: it changes routed experts .* by `holotron train merge"):
        load_adapters(load_checkpoint(tmp_path / "base"), {"a": tmp_path / "adapter"})
    merge_adapter(tmp_path / "base", tmp_path / "adapter", tmp_path / "merged")
    tokens = draw_tokens(19)
    with torch.no_grad():
        got = load_checkpoint(tmp_path / "merged").score([tokens])[0]
        assert oracle.difference(got, theirs_alone(adapted, tokens)) < 1e-4
