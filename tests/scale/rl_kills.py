"""`make rl-kills`: online RL on a Ray cluster while hosts, machines and the trainer itself are killed.

The cluster is real, with its machines as processes here (ray.cluster_utils.Cluster), and so is the page's browser. A
bandit is learned synchronously, which can be repeated exactly: the run must end as one without Ray and kills. A page is
learned while it is played on. Every episode must be there once, and be counted once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from holotron.episodes.store import EpisodeStore
from holotron.scale.live_hosts import live_on_ray
from holotron.scale.ray_hosts import connected
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.trainer import EPISODES, GrpoTrainer
from tests.env.driver import descendants
from tests.eval.killed import circumstances
from tests.train.rl.click_page import ClickPageSuite
from tests.train.rl.runs import SAME, episodes, lines, train
from tests.train.rl.samples import write_run

MACHINES = 2
SIZE, COUNT = 8, 4  # attempts of a group, groups of an iteration
POLL_SECONDS = 0.02


def train_on_ray(path: Path, out: Path, address: str, page: bool) -> None:
    torch.set_num_threads(1)
    suite = ClickPageSuite() if page else None
    with connected(address):
        trainer = GrpoTrainer(read_grpo_recipe(path), out, "cpu", suite, live_on_ray(address))
        trainer.run(lambda progress: print(progress.line, file=sys.stderr, flush=True))


class Chaos:
    """Kills something each time so many episodes more are there: a host twice, then a machine, for which another comes.

    Once it is the trainer, where it may be.
    """

    def __init__(self, cluster: Any, every: int, trainer: bool) -> None:
        self._cluster, self._every, self._trainer = cluster, every, trainer
        self._machines = [cluster.add_node(num_cpus=1) for _ in range(MACHINES)]
        self.kills: Counter[str] = Counter()

    def run(self, path: Path, out: Path, page: bool) -> None:
        """The run to its end, begun again where it was killed."""
        number = 0
        while True:
            arguments = (path, out, self._cluster.address, page)
            process = multiprocessing.get_context("spawn").Process(target=train_on_ray, args=arguments)
            process.start()
            while process.is_alive():
                process.join(POLL_SECONDS)
                if episodes(out) >= (number + 1) * self._every:
                    number += 1
                    self._kill(number, process.pid or 0)
            if process.exitcode == 0:
                return
            assert process.exitcode == -signal.SIGKILL, process.exitcode

    def _kill(self, number: int, trainer: int) -> None:
        if self._trainer and number == 2:
            self._trainer = False
            self.kills["trainers"] += 1
            os.kill(trainer, signal.SIGKILL)
        elif number % 3 == 0:
            self.kills["machines"] += 1
            self._cluster.remove_node(self._machines.pop(0), allow_graceful=False)
            self._machines.append(self._cluster.add_node(num_cpus=1))
        else:
            hosts = [pid for pid, line in descendants(os.getpid()).items() if line.startswith("ray::BrowserHost")]
            for pid in hosts[:1]:
                self.kills["hosts"] += 1
                os.kill(pid, signal.SIGKILL)


def told(out: Path, steps: int, size: int) -> dict[str, Any]:
    """What a run left: whether each episode is there once, and was counted once."""
    store = EpisodeStore(out / EPISODES)
    infos = store.list_episodes(finished=True)
    keys = Counter(store.key(info.task) for info in infos)
    ledger, rows = json.loads((out / f"ledger-{steps}.json").read_text()), lines(out)
    outputs = [step.output for info in infos for step in store.steps(info.id)]
    success = [row["success"] for row in rows]
    return {
        "iterations": len(rows),
        "success_first_two": sum(success[:2]) / 2,
        "success_last_two": sum(success[-2:]) / 2,
        "episodes": len(infos),
        "doubled": sum(keys.values()) - len(keys),
        "counted": ledger["totals"]["episodes"],
        "counted_wrongly": ledger["totals"]["episodes"] - size * (ledger["begun"] - len(ledger["open"])),
        "lost": ledger["totals"]["lost"],
        "damaged": len(store.check()),
        "weight_versions_played_with": len({output.weight_version for output in outputs if output is not None}),
        "most_staleness": max(row["most_staleness"] or 0 for row in rows),
        "most_logprob_difference": max(row["logprob_difference"] or 0.0 for row in rows),
        "cluster_seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def killed_runs(folder: Path, steps: int) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    report: dict[str, Any] = {}
    for name, page in (("bandit", False), ("page", True)):
        path, out = folder / name, folder / name / "killed"
        workers = f"workers = {MACHINES}"
        recipe = write_run(path, steps=steps, staleness=int(page), rollout=workers, size=SIZE, count=COUNT)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        began = time.monotonic()
        try:
            chaos = Chaos(cluster, every=3 * SIZE * COUNT // 2, trainer=not page)
            chaos.run(recipe, out, page)
        finally:
            cluster.shutdown()
        report[name] = {"killed": dict(chaos.kills)} | told(out, steps, SIZE)
        report[name]["seconds_with_starts"] = round(time.monotonic() - began, 1)
        if not page:
            calm = train(write_run(path / "calm", steps=steps, size=SIZE, count=COUNT), path / "calm" / "run")
            pairs = zip(lines(out), calm, strict=True)
            same = [row[key] == getattr(one, key) for row, one in pairs for key in SAME]
            report[name]["same_as_without_ray_and_kills"] = all(same)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scale.rl_kills", description=__doc__)
    parser.add_argument("--steps", type=int, default=7, help="iterations of each run")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = killed_runs(Path(folder), given.steps)
    report = circumstances(f"python -m tests.scale.rl_kills --steps {given.steps}") | {"machines": MACHINES} | found
    text = json.dumps(report, indent=1) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    wrong = [found[name][key] for name in found for key in ("doubled", "counted_wrongly", "lost", "damaged")]
    sys.exit(any(wrong) or not found["bandit"]["same_as_without_ray_and_kills"])


if __name__ == "__main__":
    main()
