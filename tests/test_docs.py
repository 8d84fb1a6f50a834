"""What the documentation shows runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks(name: str) -> list[str]:
    return FENCE.findall((ROOT / name).read_text(encoding="utf-8"))


def test_the_engine_example_runs():
    scope: dict[str, object] = {}
    for example in blocks("docs/engine.md"):
        exec(compile(example, "docs/engine.md", "exec"), scope)
    assert scope["first"].token_ids == scope["anew"].token_ids
    assert scope["first"].token_ids


def test_the_readme_example_runs():
    (example,) = blocks("README.md")
    without_download = "\n".join(line for line in example.splitlines() if "Hcompany" not in line)
    assert without_download != example
    scope: dict[str, object] = {}
    exec(compile(without_download, "README.md", "exec"), scope)
    (logits,) = scope["logits"]
    assert logits.shape == (3, scope["model"].config.vocab_size)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
        "benchmarks/README.md",
    ],
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} points to {target}"
