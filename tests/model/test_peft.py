"""What PEFT trains and saves over transformers is what an adapter computes here."""

import pytest
import torch

from holotron.model.adapters import load_adapters
from holotron.model.checkpoint.reader import load_checkpoint

from . import oracle
from .test_parity import theirs_alone
from .tiny import draw_tokens

peft = pytest.importorskip("peft")

SIGHT = r".*(language_model.*in_proj|vision_model.*(q_proj|v_proj|fc1)|linear_1)$"
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


@pytest.mark.parametrize("case", CASES)
def test_an_adapter_of_peft(case, tmp_path):
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
