"""A data set of others, brought in, is learned from like any store."""

from __future__ import annotations

import json
from pathlib import Path

from holotron.episodes.datasets.importer import import_dataset
from holotron.episodes.datasets.settings import ImportSettings
from holotron.train.recipe import read_recipe
from holotron.train.sft import Trainer
from tests.episodes import dataset_files as made

from .samples import write_start

RECIPE = """
name = "imported"
stage = "navigation"
start = "start"
steps = 2
dtype = "float32"
workers = 0
log_every = 1
keep_every = 100
[[data]]
store = "agentnet"
suites = ["agentnet"]
[[data]]
store = "screenspot"
[batch]
tokens = 640
patches = 576
learned = 192
sequences = 4
images = 9
"""


def test_two_steps_on_imported_data(tmp_path: Path) -> None:
    write_start(tmp_path)
    for layout, path in (
        ("agentnet", made.agentnet(tmp_path / "a")),
        ("screenspot", made.screenspot(tmp_path / "s", "hub")),
    ):
        import_dataset(ImportSettings(layout, path, thoughts="none"), tmp_path / layout)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    trainer = Trainer(read_recipe(tmp_path / "recipe.toml"), tmp_path / "run", "cpu")
    trainer.run()
    told = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in told] == [1, 2]
    assert all(0 < line["loss"] < 20 for line in told)
    assert {kind for line in told for kind in line["kinds"]} == {"agentnet", "screenspot"}
