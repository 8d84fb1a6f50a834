"""The standard set of agent workloads: one report each, and a plot of throughput and memory against sessions."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from holotron.bench.report import print_agent, print_figures, write_json
from holotron.model.model import Model
from holotron.train.plot import Point, draw_panels

HOLD = "--ages 8-11 --screen 1920x1080 --think 4-8 --hold 5 --target-step-latency 5"
# In the order of interest: a run that is cut short has the first ones. Agent workloads, unless they name a measure.
CASES = {
    "text-100": "--sessions 100",
    "text-100-22k": "--sessions 100 --ages 8-11",
    "screens-100": "--sessions 100 --screen 1920x1080",
    "text-30": "--sessions 30",
    "text-200": "--sessions 200 --host 80 --warmup 15 --seconds 45",
    "text-400-fp8kv": "--sessions 400 --kv fp8 --host 90 --warmup 30 --seconds 90",
    "small-screens-100": "--sessions 100 --image-tokens 256",
    "groups-of-8": "--sessions 96 --group 8",
    "text-100-fp8kv": "--sessions 100 --kv fp8",
    "text-100-22k-fp8": "--sessions 100 --ages 8-11 --weights fp8 --kv fp8",
    "screens-100-22k": "--sessions 100 --ages 8-11 --screen 1920x1080",
    "screens-100-22k-fp8": "--sessions 100 --ages 8-11 --screen 1920x1080 --weights fp8 --kv fp8",
    "phases-12b": "phases",
    "phases-12b-fp8": "phases --weights fp8 --kv fp8",
    "think-70": "--sessions 70 --ages 8-11 --screen 1920x1080 --think 4-8 --seconds 30",
    "held": f"--sessions 80 {HOLD} --guess 46",
    "held-fp8": f"--sessions 120 {HOLD} --guess 70 --weights fp8 --kv fp8",
    "transformer-30": "--model qwen3-8b --sessions 30",
    "transformer-100": "--model qwen3-8b --sessions 100 --host 90",
    "screens-30": "--sessions 30 --screen 1920x1080",
    "experts-screens-30": "--model nemotron-3-nano-omni-30b-a3b --sessions 30 --screen 1920x1080",
    "experts-screens-100": "--model nemotron-3-nano-omni-30b-a3b --sessions 100 --screen 1920x1080",
    "holo2-8b-30": "--model holo2-8b --sessions 30 --screen 1920x1080",
    "holo2-8b-100": "--model holo2-8b --sessions 100 --screen 1920x1080 --host 90",
}

# What `--cases` knows by one name: those of the least time, model by model, and the options that make them short.
GROUPS = {
    "latency": (
        *("text-100-22k", "screens-100-22k", "think-70", "held", "phases-12b"),
        *("text-100-22k-fp8", "screens-100-22k-fp8", "held-fp8", "phases-12b-fp8", "text-100-fp8kv", "text-400-fp8kv"),
    )
}
SHORT = {
    "text-100-22k": "--warmup 20 --seconds 14",  # the first one waits for kernels to be compiled
    "text-400-fp8kv": "--warmup 15 --seconds 30 --host 60",
    "held": "--warmup 12 --seconds 20",
    "think-70": "--warmup 20 --seconds 22",
}
SHORT["held-fp8"] = SHORT["held"]
PROBES = 3  # that a search for agents held takes, begun with a good guess
BESIDE = 10.0  # seconds of a case that are not measured: memory, histories, graphs

Parse = Callable[[list[str]], argparse.Namespace]


def run_suite(
    names: str | None,
    folder: Path,
    common: str,
    budget: float,
    resume: bool,
    parse: Parse,
    load: Callable[[argparse.Namespace], Model],
    measures: Mapping[str, Callable[[argparse.Namespace, Model], dict[str, Any]]],
) -> None:
    """Run the cases one after another, a model for all cases that use it; a case that fails does not stop the rest.

    common: options of all agent workloads. budget: seconds; a case that is not likely to end within them is left out.
    resume: cases are passed over whose report is there and was made by the same command.
    """
    began = time.monotonic()
    group = GROUPS.get(names or "")
    chosen = list(group or (names.split(",") if names else CASES))
    if unknown := [name for name in chosen if name not in CASES]:
        raise SystemExit(f"there is no case {unknown[0]!r}; known are {', '.join(CASES)}")
    model: Model | None = None
    loaded = ("", "")
    reports: dict[str, dict[str, Any]] = {}
    for name in chosen:
        words = command(name)
        if words[0] == "agent":
            words += (SHORT.get(name, "--warmup 6 --seconds 14") if group else "").split() + common.split()
        options, line = parse(words), f"holotron bench {' '.join(words)}"
        if resume and _command_of(folder / f"{name}.json") == line:
            print(f"== {name}: is there", file=sys.stderr, flush=True)
            continue
        left = budget - (time.monotonic() - began)
        if expected(options) > left:
            print(f"== {name}: left out, {left:.0f} s are left of the budget", file=sys.stderr, flush=True)
            continue
        print(f"== {name}: {line}", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            if (options.model, options.weights) != loaded:
                model = None
            _free()
            if model is None:
                model, loaded = load(options), (options.model, options.weights)
            report = measures[options.what](options, model) | {"case": name, "command": line}
            report["seconds_of_the_case"] = time.monotonic() - started
        except Exception:
            traceback.print_exc()
            continue
        reports[name] = report
        write_json(folder / f"{name}.json", report)
        if "workload" in report:
            print_agent(report)
        else:
            print_figures(report, digits=0)
    if reports:
        plot_sessions(list(reports.values()), folder / "sessions.svg")


def expected(options: argparse.Namespace) -> float:
    """Seconds that a case is likely to take, its model loaded and its kernels compiled."""
    if options.what == "phases":
        return BESIDE
    return float(BESIDE + (options.warmup + options.seconds) * (PROBES if options.hold else 1))


def _command_of(path: Path) -> str | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report.get("command") if isinstance(report, dict) else None


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
