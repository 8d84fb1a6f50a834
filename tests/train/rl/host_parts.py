"""What an iteration of online RL costs the processor besides learning: reading, packing, sending weights, recording.

    python -m tests.train.rl.host_parts RUN --groups 12

RUN is the folder of a run, whose recorded episodes are read; nothing in it is changed. Milliseconds of the clock, of
the trainer's process and of those that it started: of each the least of several rounds, since other programs only add.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from holotron.agent.in_process import loaded
from holotron.agent.model_processes import ModelProcesses
from holotron.engine.token_sampler import TokenSampler
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore
from holotron.train.batches import Packer
from holotron.train.rl.collector import trajectory_of
from holotron.train.rl.config import GrpoRecipe, read_grpo_recipe
from holotron.train.rl.engines_beside import EnginesBeside
from holotron.train.rl.groups import RolloutGroup
from holotron.train.rl.played import PlayedReader
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.reading import GroupReader
from holotron.train.rl.rollout import Rollout
from holotron.train.rl.rollout_batch import WeighedSequence, weigh
from holotron.train.rl.token_masks import TokenMasks
from holotron.train.rl.trainer import EPISODES

RECIPE = Path(__file__).parents[3] / "recipes" / "grpo-miniwob.toml"


class Parts:
    """The least of several rounds: of the clock, of this process and of those that it started, in milliseconds."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self.told = rounds, dict[str, dict[str, float]]()

    def take(self, name: str, work: Callable[[], Any]) -> Any:
        seen = []
        for _ in range(self._rounds):
            before = _now()
            found = work()
            seen.append([1000 * (after - then) for after, then in zip(_now(), before, strict=True)])
        least = [round(min(column), 1) for column in zip(*seen, strict=True)]
        self.told[name] = dict(zip(("clock", "own", "others"), least, strict=True))
        print(name, self.told[name], flush=True)
        return found


def _now() -> tuple[float, float, float]:
    others = 0.0
    for process in multiprocessing.active_children():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        others += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), time.process_time(), others


def played_groups(store: EpisodeStore, size: int, most: int) -> list[RolloutGroup]:
    """Those whose attempts were all played, in the order of their numbers."""
    found: dict[int, list[EpisodeInfo]] = defaultdict(list)
    for info in store.list_episodes(finished=True):
        number = info.task.extra["group"]
        assert isinstance(number, int)
        found[number].append(info)
    whole = [(number, infos) for number, infos in sorted(found.items()) if len(infos) == size][:most]
    return [
        RolloutGroup.of(number, infos[0].task.name or "", 0, (trajectory_of(info, "") for info in infos))
        for number, infos in whole
    ]


def measure(run: Path, recipe: GrpoRecipe, most: int, rounds: int, processes: int, copies: int) -> dict[str, Any]:
    parts, rollout = Parts(rounds), Rollout(recipe, run / EPISODES)
    learner = PolicyLearner(recipe, torch.device("cpu"))
    config, tokenizer = learner.model.config, learner.writer.tokenizer
    masks = TokenMasks(tokenizer, config, TokenSampler(config, tokenizer).banned.tolist())
    reader = PlayedReader(rollout.store, config, rollout.policy_format, masks, rollout.formats)
    groups = played_groups(rollout.store, recipe.groups.size, most)
    with GroupReader(reader, Packer(config, recipe.batch), recipe.objective, processes) as pool:

        def read() -> list[WeighedSequence]:
            for group in groups:
                pool.begin(group)
            episodes = [episode for group in groups for episode in pool.read(group)]
            return [
                each
                for episode in episodes
                for each in weigh(episode, [0.1] * sum(len(one.states) for one in episode), False, 0)
            ]

        weighed = parts.take("reading", read)
        batches = parts.take("packing", lambda: list(pool.pack(weighed, len(weighed))))
    parts.take("recording", partial(record, rollout.store, groups))
    copy = partial(loaded, recipe.starting_point, "cpu", bf16_products=False)
    with ModelProcesses(copies, recipe.start, copy) as model:
        engines = EnginesBeside(model)
        engines.send(learner, 0)
        parts.take("sending", lambda: engines.send(learner, 1))
    pictures = [picture for each in weighed for picture in each.played.sequence.pictures]
    return {
        "groups": len(groups),
        "episodes": len(weighed),
        "steps": sum(trajectory.steps for group in groups for trajectory in group.trajectories),
        "screens": len(pictures),
        "different_screens": len({picture.name for picture in pictures}),
        "batches": len(batches),
        "patches_looked_at": sum(batch.batch.used_patches for batch in batches),
        "patches_computed": len(batches) * recipe.batch.patches,
        "processes": processes,
        "copies": copies,
        "milliseconds": parts.told,
    }


def record(store: EpisodeStore, groups: list[RolloutGroup]) -> None:
    """All episodes once more, as workers write them."""
    with tempfile.TemporaryDirectory() as folder:
        other = EpisodeStore(folder, sync="never")
        for episode in [store.read(each.episode) for group in groups for each in group.trajectories]:
            with other.begin(episode.task, episode.policy, episode.environment) as writer:
                for step in episode.steps:
                    assert step.observation.image is not None
                    writer.add_step(step, store.image(step.observation.image))
                assert episode.outcome is not None
                writer.finish(episode.outcome)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.train.rl.host_parts", description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a run, with episodes")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the recipe")
    parser.add_argument("--groups", type=int, default=12, help="that are learned from")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="that read and pack")
    parser.add_argument("--copies", type=int, default=2, help="of the policy, with an engine each")
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = read_grpo_recipe(given.recipe, given.set, compile=False, dtype="float32")
    report = measure(given.run, recipe, given.groups, given.rounds, given.processes, given.copies)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
