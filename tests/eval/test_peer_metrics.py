"""The comparison with published metric code, on metric files of our own: it must tell a right rule from a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peer_metrics import main

RULE = """import not_installed
def eval_coord_output(action, bbox, img_size):
    if action is None:
        return 0.0, None
    x, y = action[0] * img_size[0], action[1] * img_size[1]
    return float(bbox[0] {0} x {0} bbox[2] and bbox[1] {0} y {0} bbox[3]), [x, y]
"""


@pytest.mark.parametrize(("edges", "code"), [("<", 0), ("<=", 1)])
def test_a_rule_that_differs_on_edges_alone_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edges: str, code: int
) -> None:
    file = tmp_path / "eval_agent_desiderata" / "eval_gui_grounding.py"
    file.parent.mkdir()
    file.write_text(RULE.format(edges))
    assert main([f"{tmp_path}@abc", "--answers", "100"]) == code
    assert ("100 of 100 agree" in capsys.readouterr().out) == (code == 0)
