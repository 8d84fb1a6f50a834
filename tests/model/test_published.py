"""Configs of published checkpoints, in published/: each loads at its true size, or is refused for a stated reason.

A checkpoint is one file: where its values are from, how many parameters are stated for it, what of them is not read
here, and its config.json as far as it is known. The table in docs/models.md has one line for each.
"""

import json
from pathlib import Path

import pytest
import torch

from holotron.model.checkpoint.config_json import parse_config
from holotron.model.errors import ConfigError
from holotron.model.model import Model

ROOT = Path(__file__).parents[2]
ENTRIES = [json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("published").glob("*.json"))]
MOST_UNREAD = 700_000_000  # of what is not read, where its size is not known


def parsed(entry):
    tokens = entry.get("tokens")
    return parse_config(entry["config"], entry["checkpoint"], tokens.get if tokens else None)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["checkpoint"])
def test_a_published_config_is_what_its_card_says(entry):
    if reason := entry.get("refused"):
        with pytest.raises(ConfigError, match=reason):
            parsed(entry)
        return
    config = parsed(entry)
    with torch.device("meta"):
        model = Model(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == config.parameters
    if (stated := entry["stated"]) is None:
        return
    unread = entry.get("unread_parameters", 0)
    if unread is None:
        assert 0 < float(stated.removesuffix("B")) * 1e9 - config.parameters < MOST_UNREAD
    elif stated.endswith("B"):
        decimals = len(stated.removesuffix("B").partition(".")[2])
        assert f"{(config.parameters + unread) / 1e9:.{decimals}f}B" == stated
    else:
        assert f"{config.parameters + unread:,}" == stated


def line(entry) -> str:
    """Its line of the table."""
    if "refused" in entry:
        result = f"refused: {entry['refused']}"
    else:
        result = f"loads, {parsed(entry).parameters:,}"
        result += f"; not read: {entry['unread']}" if "unread" in entry else ""
    return f"| {entry['checkpoint']} | {entry['stated'] or '—'} | {result} | {entry['source']} |"


def test_the_table_of_the_docs_is_this():
    lines = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
    table = [text for text in lines if text.startswith("| ") and "/" in text.split("|")[1]]
    assert table == [line(entry) for entry in ENTRIES]


if __name__ == "__main__":  # the lines to put into docs/models.md
    print("\n".join(line(entry) for entry in ENTRIES))
