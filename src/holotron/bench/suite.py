"""The standard set of agent workloads: one report each, and a plot of throughput and memory against sessions."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from holotron.bench.plot import Series, line_plot
from holotron.bench.report import print_agent, write_json
from holotron.model.model import Model

# In the order of interest: a run that is cut short has the first ones.
CASES = {
    "text-100": "--sessions 100",
    "text-100-22k": "--sessions 100 --ages 8-9",
    "screens-100": "--sessions 100 --screen 1920x1080",
    "text-30": "--sessions 30",
    "text-200": "--sessions 200 --host 80 --warmup 15 --seconds 45",
    "text-400-fp8kv": "--sessions 400 --kv fp8 --host 90 --warmup 30 --seconds 90",
    "small-screens-100": "--sessions 100 --image-tokens 256",
    "groups-of-8": "--sessions 96 --group 8",
    "text-100-fp8kv": "--sessions 100 --kv fp8",
    "transformer-30": "--model qwen3-8b --sessions 30",
    "transformer-100": "--model qwen3-8b --sessions 100 --host 90",
}

Parse = Callable[[list[str]], argparse.Namespace]


def run_suite(
    names: str | None,
    folder: Path,
    common: str,
    parse: Parse,
    load: Callable[[argparse.Namespace], Model],
    run: Callable[[argparse.Namespace, Model], dict[str, Any]],
) -> None:
    """Run the cases one after another, a model for all cases that use it; a case that fails does not stop the rest."""
    chosen = names.split(",") if names else list(CASES)
    if unknown := [name for name in chosen if name not in CASES]:
        raise SystemExit(f"there is no case {unknown[0]!r}; known are {', '.join(CASES)}")
    model: Model | None = None
    loaded = ""
    reports: dict[str, dict[str, Any]] = {}
    for name in chosen:
        words = ["agent", "--random", *CASES[name].split(), *common.split()]
        options = parse(words)
        if model is None or options.model != loaded:
            model = None
            _free()
            model, loaded = load(options), options.model
        print(f"== {name}: holotron bench {' '.join(words)}", file=sys.stderr, flush=True)
        try:
            report = run(options, model) | {"case": name, "command": f"holotron bench {' '.join(words)}"}
        except Exception:
            traceback.print_exc()
            continue
        finally:
            _free()
        reports[name] = report
        write_json(folder / f"{name}.json", report)
        print_agent(report)
    if reports:
        plot_sessions(list(reports.values()), folder / "sessions.svg")


def plot_sessions(reports: list[dict[str, Any]], path: Path) -> None:
    """Steps per second, and bytes per session, against the number of sessions; one line per model and KV type."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        workload = report["workload"]
        if workload["group"] == 1 and workload["screen"] is None and workload["image_tokens"] == 2304:
            kv = "fp8 KV" if "float8" in report["engine"]["kv_dtype"] else "bf16 KV"
            lines.setdefault(f"{report['model']}, {kv}", []).append(report)

    def series(key: str, scale: float) -> list[Series]:
        return [Series(name, sorted((r["sessions"], r[key] * scale) for r in rows)) for name, rows in lines.items()]

    if lines:
        device = f"{reports[0]['device']}, {reports[0]['date']}"
        figure = line_plot(
            [
                ("agent steps per second", series("steps_per_second", 1.0)),
                ("GiB per session on the device", series("bytes_per_session", 2.0**-30)),
            ],
            title=f"The agent workload on one {device}",
            x_label="sessions",
        )
        path.write_text(figure, encoding="utf-8")


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
