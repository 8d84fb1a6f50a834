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

from holotron.bench.report import print_agent, print_figures, write_json
from holotron.model.model import Model
from holotron.train.plot import Point, draw_panels

# In the order of interest: a run that is cut short has the first ones. Agent workloads, unless they name a measure.
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
    "text-100-22k-fp8": "--sessions 100 --ages 8-9 --weights fp8 --kv fp8",
    "screens-100-22k": "--sessions 100 --ages 8-9 --screen 1920x1080",
    "screens-100-22k-fp8": "--sessions 100 --ages 8-9 --screen 1920x1080 --weights fp8 --kv fp8",
    "phases-12b": "phases",
    "phases-12b-fp8": "phases --weights fp8 --kv fp8",
    "think-70": "--sessions 70 --ages 8-9 --screen 1920x1080 --think 4-8 --seconds 30",
    "held": "--sessions 100 --ages 8-9 --screen 1920x1080 --think 4-8 --hold 5",
    "held-fp8": "--sessions 140 --ages 8-9 --screen 1920x1080 --think 4-8 --hold 5 --weights fp8 --kv fp8",
    "transformer-30": "--model qwen3-8b --sessions 30",
    "transformer-100": "--model qwen3-8b --sessions 100 --host 90",
    "screens-30": "--sessions 30 --screen 1920x1080",
    "experts-screens-30": "--model nemotron-3-nano-omni-30b-a3b --sessions 30 --screen 1920x1080",
    "experts-screens-100": "--model nemotron-3-nano-omni-30b-a3b --sessions 100 --screen 1920x1080",
    "holo2-8b-30": "--model holo2-8b --sessions 30 --screen 1920x1080",
    "holo2-8b-100": "--model holo2-8b --sessions 100 --screen 1920x1080 --host 90",
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
    """Run the cases one after another, a model for all cases that use it; a case that fails does not stop the rest.

    common: options of all agent workloads.
    """
    chosen = names.split(",") if names else list(CASES)
    if unknown := [name for name in chosen if name not in CASES]:
        raise SystemExit(f"there is no case {unknown[0]!r}; known are {', '.join(CASES)}")
    model: Model | None = None
    loaded = ("", "")
    reports: dict[str, dict[str, Any]] = {}
    for name in chosen:
        words = command(name)
        words += common.split() if words[0] == "agent" else []
        options = parse(words)
        if model is None or (options.model, options.weights) != loaded:
            model = None
            _free()
            model, loaded = load(options), (options.model, options.weights)
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
        if "workload" in report:
            print_agent(report)
        else:
            print_figures(report, digits=0)
    if reports:
        plot_sessions(list(reports.values()), folder / "sessions.svg")


def command(name: str) -> list[str]:
    """The words of a case behind `holotron bench`."""
    words = CASES[name].split()
    what = [words.pop(0)] if not words[0].startswith("--") else ["agent"]
    return [*what, "--random", *words]


def plot_sessions(reports: list[dict[str, Any]], path: Path) -> None:
    """Steps per second, and bytes per session, against the number of sessions; one line per model and KV type."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        workload = report.get("workload")
        if workload is None:
            continue
        if workload["group"] == 1 and workload["screen"] is None and workload["image_tokens"] == 2304:
            kv = "fp8 KV" if "float8" in report["engine"]["kv_dtype"] else "bf16 KV"
            kind = kv if report.get("weights", "bf16") == "bf16" else f"fp8 weights, {kv}"
            lines.setdefault(f"{report['model']}, {kind}", []).append(report)

    def points(key: str, scale: float) -> list[list[Point]]:
        return [sorted((each["sessions"], each[key] * scale) for each in rows) for rows in lines.values()]

    if lines:
        panels = [
            (f"agent steps/s on one {reports[0]['device']}", points("steps_per_second", 1.0), False),
            (f"GiB per session on the device, {reports[0]['date']}", points("bytes_per_session", 2.0**-30), False),
        ]
        path.write_text(draw_panels(list(lines), panels, "sessions"), encoding="utf-8")


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
