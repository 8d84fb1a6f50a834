"""What people said of tasks or episodes, and how far a judge says the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holotron.eval.judging import Verdict

_TRUE, _FALSE = {"success", "1", "true", "yes", "pass"}, {"failure", "0", "false", "no", "fail", "not success"}


def read_labels(path: Path) -> dict[str, bool]:
    """What people said, by task or episode: a JSON object, or JSON or lines of objects with an id and a label."""
    text = path.read_text(encoding="utf-8").strip()
    try:
        found = json.loads(text) if text.startswith(("[", "{")) and "\n{" not in text else None
        rows = found if found is not None else [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ValueError(f"{path} is neither JSON nor JSON lines: {error}") from None
    if isinstance(rows, dict) and "label" not in rows:
        pairs = list(rows.items())
    else:
        pairs = [_labelled(path, row) for row in (rows if isinstance(rows, list) else [rows])]
    labels = {}
    for name, label in pairs:
        word = str(label).strip().lower()
        if word not in _TRUE | _FALSE:
            raise ValueError(f"{path}: the label of {name} is {label!r}; write success or failure")
        labels[str(name)] = word in _TRUE
    return labels


def _labelled(path: Path, row: Any) -> tuple[str, Any]:
    row = row if isinstance(row, dict) else {}
    name = next((row[key] for key in ("episode", "task_id", "id", "task") if key in row), None)
    label = next((row[key] for key in ("label", "human_label", "success") if key in row), None)
    if name is None or label is None:
        raise ValueError(f"{path}: a record has no id or no label: {json.dumps(row)[:100]}")
    return str(name), label


def agreement(verdicts: Sequence[Verdict], labels: Mapping[str, bool]) -> dict[str, Any]:
    """The share of equal verdicts, and Cohen's kappa, which is 0 where the share is that of chance.

    kappa is None where chance alone would agree always. undecided: labelled episodes that have no verdict.
    """
    labelled = [(each, labels.get(each.episode, labels.get(each.task))) for each in verdicts]
    known = [(each, label) for each, label in labelled if label is not None]
    pairs = Counter((each.reward == 1.0, label) for each, label in known if each.reward is not None)
    n = pairs.total()
    same = (pairs[True, True] + pairs[False, False]) / n if n else None
    judged, people = ((sum(pairs[key] for key in pairs if key[side]) / n if n else 0.0) for side in (0, 1))
    chance = judged * people + (1 - judged) * (1 - people)
    return {
        "labelled": n,
        "undecided": len(known) - n,
        "raw": same,
        "kappa": None if same is None or chance == 1 else (same - chance) / (1 - chance),
        "both_success": pairs[True, True],
        "judge_only": pairs[True, False],
        "people_only": pairs[False, True],
        "both_failure": pairs[False, False],
    }
