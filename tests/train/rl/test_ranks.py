"""Several processes, each with a part of the model, make what one makes alone, whatever their number is later."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from holotron.engine.engine import Engine
from holotron.model.loading import load
from holotron.model.model import Model
from holotron.train.batches import Packer
from holotron.train.learner import Learner
from holotron.train.optimizer import trained
from holotron.train.parallel import leave, local, whole
from holotron.train.rl import engine_here
from holotron.train.rl import trainer as trainer_module
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.rollout_batch import build_batch, nothing
from holotron.train.rl.trainer import GrpoTrainer
from holotron.train.rl.weight_sync import POLICY, send_weights

from .runs import PATIENCE, lines, train
from .samples import TINY, write_run

RANKS, STEPS = 2, 3
CLOSE = ("loss", "gradient", "entropy", "answer_tokens", "episode_steps", "kl")
SAME = ("tasks", "success", "kept", "flat", "episodes", "fresh_tokens", "step", "version")


def recipes(folder: Path) -> dict[str, Path]:
    """Of all weights in two updates an iteration; of low-rank changes, held to the model at the beginning."""
    path = write_run(folder, steps=STEPS, count=3)
    text = path.read_text().replace("rate = 0.03", "rate = 0.001")
    whole_path, lora_path = folder / "whole.toml", folder / "lora.toml"
    whole_path.write_text(f'updates = 2\nexport_dtype = "float32"\n{text}')
    held = text.replace("tokens = 8.0", "tokens = 8.0\nkl = 0.1")
    lora_path.write_text(f'export_dtype = "float32"\n{held}[lora]\nrank = 4\n')
    return {"whole": whole_path, "lora": lora_path}


def differing(learner: Learner, engine: Engine) -> list[str]:
    """The parameters of an engine that are not, bit for bit, what the ranks hold together."""
    if learner.recipe.lora.rank:
        adapters = engine.model.adapters
        assert adapters is not None
        held = adapters.changes_by_layer()
        number = adapters.number(POLICY)
        parameters = {name: whole(p) for name, p in trained(learner.model).items()}
        scale = learner.recipe.lora.scale
        return [
            layer
            for layer in {name.rpartition(".")[0] for name in parameters}
            if not torch.equal(held[layer][number].A_RI, parameters[f"{layer}.lora_A"])
            or not torch.equal(held[layer][number].B_OR, scale * parameters[f"{layer}.lora_B"])
        ]
    with torch.device("meta"):
        names = [name for name, _ in Model(TINY).named_parameters()]
    assert any(name.endswith("mixer.D") for name in names)
    assert any("conv1d" in name for name in names)
    return [
        name
        for name in names
        if not torch.equal(engine.model.get_parameter(name), whole(learner.model.get_parameter(name)))
    ]


def program(rank: int, folder: Path) -> None:
    """Runs to their ends, and one that is killed."""
    os.environ |= {"RANK": str(rank), "TORCHELASTIC_RUN_ID": "tests"}  # as torchrun does
    sent = list[list[str]]()
    made = list[int]()

    def sending(learner: Learner, engine: Engine, version: int) -> str:
        checksum = send_weights(learner, engine, version)
        sent.append(differing(learner, engine))
        return checksum

    def making(vocab_size: int) -> Any:
        made.append(1)
        return nothing(vocab_size)

    engine_here.send_weights, trainer_module.nothing = sending, making  # type: ignore[attr-defined]
    for out in ("whole", "lora", "killed"):
        dist.init_process_group("gloo", f"file://{folder}/{out}.group", rank=rank, world_size=RANKS)
        path = folder / ("whole.toml" if out == "killed" else f"{out}.toml")
        torch.set_num_threads(1)
        trainer = GrpoTrainer(read_grpo_recipe(path), folder / f"{out}-together", "cpu")
        trainer.run()
        parameters = trainer.learner.model.parameters()
        held, count = (sum(sizes) for sizes in zip(*((local(p).numel(), p.numel()) for p in parameters), strict=True))
        note = {"share": held / count, "differing": sent, "sent": len(sent), "empty": len(made)}
        (folder / f"{out}.{rank}.json").write_text(json.dumps(note))
        leave()


def check(out: Path, alone: Path, told: list[GrpoProgress]) -> None:
    """Whether a run made what one process made, to rounding."""
    again = lines(out)
    assert [line["step"] for line in again] == list(range(1, STEPS + 1))  # each is told once, by one of them
    for one, line in zip(told, again, strict=True):
        for key in CLOSE:
            assert line[key] == pytest.approx(getattr(one, key), rel=1e-5, abs=1e-6), (out, one.step, key)
        assert [line[key] for key in SAME] == [getattr(one, key) for key in SAME], (out, one.step)
    ledgers = [json.loads((each / f"ledger-{STEPS}.json").read_text()) for each in (out, alone)]
    assert ledgers[0] == ledgers[1]
    expected = load(alone / "weights", "cpu", torch.float32)
    for name, parameter in load(out / "weights", "cpu", torch.float32).named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), rtol=0, atol=1e-6, msg=f"{out}: {name}")


def test_two_ranks_make_what_one_makes_and_a_killed_run_goes_on_with_one(tmp_path: Path) -> None:
    paths = recipes(tmp_path)
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, "holotron.train.rl.rollout", "torch.distributed.fsdp"])
    processes = [server.Process(target=program, args=(rank, tmp_path)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    alone = {name: train(path, tmp_path / name) for name, path in paths.items()}
    deadline = time.monotonic() + PATIENCE
    killed = tmp_path / "killed-together"
    while len(lines(killed)) < 1:
        assert all(process.is_alive() for process in processes), "a rank ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for process in processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
    assert len(lines(killed)) < STEPS
    train(paths["whole"], killed)

    assert sum(progress.kept for progress in alone["whole"]) > 4
    check(killed, tmp_path / "whole", alone["whole"])
    for name, told in alone.items():
        check(tmp_path / f"{name}-together", tmp_path / name, told)
        notes = [json.loads((tmp_path / f"{name}.{rank}.json").read_text()) for rank in range(RANKS)]
        assert [note["share"] for note in notes] == pytest.approx([1 / RANKS] * RANKS, abs=0.05)
        assert not any(wrong for note in notes for wrong in note["differing"])
        assert all(note["sent"] > STEPS for note in notes)
    assert max(progress.kl or 0.0 for progress in alone["lora"]) > 0
    # Of three groups the second update has one: a rank without any computes with the other all the same.
    assert sum(json.loads((tmp_path / f"whole.{rank}.json").read_text())["empty"] for rank in range(RANKS)) > 0


def test_an_empty_batch_has_a_gradient_of_zeros_for_every_weight(tmp_path: Path) -> None:
    """Ranks add up what they have: a gradient that one of them lacks would be added to another weight's."""
    learner = PolicyLearner(read_grpo_recipe(write_run(tmp_path, steps=1)), torch.device("cpu"))
    batch = build_batch(Packer(TINY, learner.recipe.batch), [nothing(TINY.vocab_size)], 1.0, learner.recipe.objective)
    logprobs, _ = learner.logprobs(batch)
    (logprobs * batch.drawn.weight_N).sum().backward()
    for name, parameter in trained(learner.model).items():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name
