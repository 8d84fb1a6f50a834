"""Several processes that play and learn together make what one makes alone, whatever their number is later."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from holotron.model.loading import load
from holotron.train.parallel import leave

from .runs import PATIENCE, lines, train
from .samples import write_run

RANKS, STEPS = 2, 4
CLOSE = ("loss", "gradient", "entropy", "answer_tokens", "episode_steps")
SAME = ("tasks", "success", "kept", "flat", "episodes", "fresh_tokens", "step", "version")


def program(rank: int, folder: Path) -> None:
    """A run to its end, and one that is killed."""
    os.environ |= {"RANK": str(rank), "TORCHELASTIC_RUN_ID": "tests"}  # as torchrun does
    for out in ("together", "killed"):
        dist.init_process_group("gloo", f"file://{folder}/{out}.group", rank=rank, world_size=RANKS)
        train(folder / "recipe.toml", folder / out)
        leave()


def test_two_ranks_make_what_one_makes_and_a_killed_run_goes_on_with_one(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=STEPS, count=4)
    path.write_text('updates = 2\nexport_dtype = "float32"\n' + path.read_text().replace("rate = 0.03", "rate = 0.001"))
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["holotron.train.rl.trainer", "holotron.train.rl.rollout"])
    processes = [server.Process(target=program, args=(rank, tmp_path)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    alone = train(path, tmp_path / "alone")
    deadline = time.monotonic() + PATIENCE
    while len(lines(tmp_path / "killed")) < 1:
        assert all(process.is_alive() for process in processes), "a rank ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for process in processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
    assert len(lines(tmp_path / "killed")) < STEPS
    train(path, tmp_path / "killed")

    expected = load(tmp_path / "alone" / "weights", "cpu", torch.float32)
    assert sum(progress.kept for progress in alone) > 4
    for out in ("together", "killed"):
        told = lines(tmp_path / out)
        assert [line["step"] for line in told] == list(range(1, STEPS + 1))  # each is told once, by one of them
        for one, line in zip(alone, told, strict=True):
            for key in CLOSE:
                assert line[key] == pytest.approx(getattr(one, key), rel=1e-5, abs=1e-6), (out, one.step, key)
            assert [line[key] for key in SAME] == [getattr(one, key) for key in SAME], (out, one.step)
        ledgers = [json.loads((tmp_path / each / f"ledger-{STEPS}.json").read_text()) for each in (out, "alone")]
        assert ledgers[0] == ledgers[1]
        for name, parameter in load(tmp_path / out / "weights", "cpu", torch.float32).named_parameters():
            torch.testing.assert_close(parameter, expected.get_parameter(name), rtol=0, atol=1e-6, msg=f"{out}: {name}")
