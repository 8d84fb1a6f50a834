"""The OpenAI API tests of vLLM or SGLang against our server: `python -m tests.peers CHECKOUT`, which fetches nothing.

CHECKOUT is a clone of their repository. Their tests start servers under the names of their models; they get ours with a
tiny model of random weights instead. `expected.toml` says which tests must fail then, and why. Exit code 1 if another
one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from holotron.bench.report import machine, write_json
from tests.tiny_checkpoint import write_checkpoint

HERE = Path(__file__).parent
# Where the tests of each are, in the layouts that they have had, and the folder above which their settings need them.
FOLDERS = {
    "vllm": ("tests/entrypoints/openai",),
    "sglang": ("test/srt/openai_server", "test/registered/openai_server"),
}
CONFIGURED_FROM = {"vllm": "tests/entrypoints", "sglang": "test"}
# About what this server does not do.
IGNORED = ("*embed*", "*rerank*", "*score*", "*pooling*", "*audio*", "*transcription*", "*translation*", "*speech*")
IGNORED += ("*realtime*", "*correctness*", "*video*", "*grpc*")


@dataclass(frozen=True)
class Row:
    """A test of theirs. verdict: passed, expected, unexpected, skipped, or outdated (passed, but listed)."""

    test: str
    verdict: str
    reason: str


def find_peer(checkout: Path) -> tuple[str, list[Path]]:
    for peer, folders in FOLDERS.items():
        if found := [checkout / folder for folder in folders if (checkout / folder).is_dir()]:
            return peer, found
    wanted = ", ".join(folder for folders in FOLDERS.values() for folder in folders)
    raise SystemExit(f"{checkout} is no checkout of vLLM or SGLang: it has none of {wanted}")


def expected_differences(peer: str) -> dict[str, str]:
    table = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    return {str(test): str(reason) for test, reason in table.get(peer, {}).items()}


def run_tests(checkout: Path, peer: str, tests: list[str], model: str, url: str | None) -> dict[str, dict[str, str]]:
    """What became of each test."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "outcomes.json"
        source = str(HERE.parents[1] / "src")
        known = {"PYTHONPATH": f"{HERE}{os.pathsep}{source}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        known |= {"PEERS_RESULT": str(result)}
        known |= {"PEERS_MODEL": model} | ({"PEERS_URL": url} if url else {})
        words = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(checkout), "-p", "stand_ins"]
        words += ["-p", "no:cacheprovider", "--confcutdir", str(checkout / CONFIGURED_FROM[peer])]
        words += ["-q", "--tb=line", *(f"--ignore-glob={pattern}" for pattern in IGNORED), *tests]
        done = subprocess.run(words, cwd=checkout, env=os.environ | known, stdout=sys.stderr, check=False)
        if not result.exists():
            raise SystemExit(f"pytest ended with code {done.returncode} before it had run the tests")
        outcomes: dict[str, dict[str, str]] = json.loads(result.read_text(encoding="utf-8"))
    return outcomes


def judge(outcomes: dict[str, dict[str, str]], expected: dict[str, str]) -> list[Row]:
    """Each outcome beside what was expected of it. In the table, * stands for anything."""
    patterns = {re.compile(re.escape(test).replace(r"\*", ".*")): reason for test, reason in expected.items()}
    rows = []
    for test, told in sorted(outcomes.items()):
        listed = next((reason for pattern, reason in patterns.items() if pattern.fullmatch(test)), None)
        match told["outcome"]:
            case "passed":
                rows.append(Row(test, "passed" if listed is None else "outdated", listed or ""))
            case "skipped":
                rows.append(Row(test, "skipped", told["reason"]))
            case "failed" if listed is not None:
                rows.append(Row(test, "expected", listed))
            case _:  # also one that could not begin, which says nothing about what it tests
                rows.append(Row(test, "unexpected", told["reason"]))
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs="*", help="files or ids of tests, as pytest knows them (default: all)")
    parser.add_argument("--model", help="checkpoint folder to serve (default: a tiny one with random weights)")
    parser.add_argument("--url", help="a server that runs already and takes their model names")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    checkout = options.checkout.resolve()
    peer, folders = find_peer(checkout)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or str(write_checkpoint(Path(folder) / "tiny"))
        outcomes = run_tests(checkout, peer, options.tests or list(map(str, folders)), model, options.url)
    rows = judge(outcomes, expected_differences(peer))
    for row in rows:
        print(f"{row.verdict:10} {row.test}{f': {row.reason}' if row.reason else ''}")
    counts = Counter(row.verdict for row in rows)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "no tests")
    if options.out:
        command = "python -m tests.peers CHECKOUT " + " ".join(options.tests)
        facts = machine() | {"command": command.strip(), "peer": peer, "counts": dict(counts)}
        write_json(options.out, facts | {"tests": [asdict(row) for row in rows]})
    return 1 if counts["unexpected"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
