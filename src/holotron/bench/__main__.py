"""`holotron bench`, and `python -m holotron.bench` where only torch is installed.

Argparse rather than the command line's own library, so that it runs on a bare GPU machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import torch

from holotron.bench import kernels, train
from holotron.bench.agent import AgentLoad, AgentWorkload
from holotron.bench.arrivals import read_trace, write_trace
from holotron.bench.measuring import write_profile
from holotron.bench.phases import measure_phases
from holotron.bench.report import agent_report, machine, print_agent, print_figures, write_json
from holotron.bench.suite import CASES, GROUPS, run_suite
from holotron.engine.build import EngineOptions, build_engine, load_model
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError
from holotron.engine.info import counters
from holotron.model.heartbeat import Heartbeat, to_stderr
from holotron.model.model import Model
from holotron.model.presets import PRESETS
from holotron.plan.errors import PlanError
from holotron.plan.held import most_held
from holotron.plan.workload import DEFAULT_IMAGE_TOKENS, parse_seconds, parse_size
from holotron.train.forward import Recompute

STATE_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
KV_TYPES = {"bf16": None, "fp8": "fp8"}  # of weights, too
# Options of the agent workload that are called as its fields are.
WORKLOAD_OPTIONS = (
    *("sessions", "steps", "system_tokens", "image_tokens", "text_tokens", "generated_tokens"),
    *("history", "group", "changed", "rate", "burst"),
)

ABOUT = """Measures the engine on this machine. On a machine with only torch: python -m holotron.bench"""
EXAMPLES = """examples:
  holotron bench agent --model holotron-12b --random --sessions 100 --seconds 60
  holotron bench agent --model holotron-nano --random --sessions 16 --steps 4 --image-tokens 64 --seconds 10 --json
  holotron bench agent --random --sessions 80 --screen 1920x1080 --think 4-8 --ages 8-9 --hold 5
  holotron bench agent --random --sessions 40 --rate 0.5 --burst 4 --think 4-8
  holotron bench trace runs/shop --out shop.jsonl && holotron bench agent --random --trace shop.jsonl
  holotron bench phases --model qwen3-8b --random
  holotron bench kernels
  holotron bench move --random --tokens 25000
  holotron bench quality runs/shop --model holotron-nano
  holotron bench train --preset holotron-12b --lora 16 --tokens 32768
  holotron bench grpo --preset holotron-12b --screens recorded
  holotron bench cluster --replicas 64 --agents 100
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "holotron bench", description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    agent = commands.add_parser("agent", help="the agent workload, closed loop, in the steady state")
    phases = commands.add_parser("phases", help="prefill and decode by themselves")
    kernel = commands.add_parser("kernels", help="each kernel's time and share of the roofline (CUDA)")
    kernel.add_argument("--only", choices=kernels.PARTS, help="the kernels of one kind of layer")
    suite = commands.add_parser("suite", help="the standard set of agent workloads, one file each and a plot")
    suite.add_argument("--cases", help=f"some of {', '.join(CASES)}; or {', '.join(GROUPS)} (default: all)")
    suite.add_argument("--budget", type=float, default=math.inf, help="seconds; longer cases are left out")
    suite.add_argument("--resume", action="store_true", help="pass over cases whose report is there")
    suite.add_argument("--folder", type=Path, default=Path("benchmarks/results"), help="where the files go")
    suite.add_argument("--common", default="", help="options added to every agent workload, such as '--seconds 20'")
    training = commands.add_parser(
        "train", help="training steps of a preset's shape: tokens/s, share of the peak, memory"
    )
    train.add_options(training)
    trace = commands.add_parser("trace", help="lengths and pauses of recorded episodes, for `bench agent --trace`")
    trace.add_argument("store", type=Path, help="folder of an episode store")
    trace.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    grpo = commands.add_parser("grpo", help="an iteration of online RL, LoRA over random weights: seconds by part")
    grpo.add_argument("--preset", default="holotron-12b", choices=PRESETS, metavar="NAME", help="shape of the model")
    grpo.add_argument("--groups", type=int, default=8)
    grpo.add_argument("--group-size", type=int, default=8, help="attempts of a group")
    grpo.add_argument("--steps", type=int, default=10, help="steps of an attempt")
    grpo.add_argument("--screens", type=Path, help="folder of recorded screenshots, PNG files of one size")
    grpo.add_argument("--screen", default="1920x1080", help="WIDTHxHEIGHT of drawn ones, where none were recorded")
    grpo.add_argument("--answer", type=int, default=128, help="letters, and so tokens, of an answer before its action")
    grpo.add_argument("--lora", type=int, default=16, metavar="RANK")
    grpo.add_argument("--learned", type=int, default=0, help="attempts of a group that are learned from (default: all)")
    grpo.add_argument("--updates", type=int, default=1, help="steps of the optimiser; more need a pass of their own")
    grpo.add_argument("--iterations", type=int, default=1, help="the last one is told")
    grpo.add_argument("--memory", type=float, default=56.0, help="GiB for sessions while attempts are played")
    grpo.add_argument("--recompute", default="selective", choices=get_args(Recompute))
    grpo.add_argument("--no-compile", action="store_true", help="run layers as they are")
    grpo.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    move = commands.add_parser("move", help="a session that moves to another engine, beside computing it again")
    move.add_argument("--model", default="holotron-12b", help="folder, hub id or preset")
    move.add_argument("--random", action="store_true", help="random weights in the shape of the preset")
    move.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    move.add_argument("--state-type", choices=STATE_TYPES.values(), default="float16", help="type of the SSM state")
    move.add_argument("--tokens", type=int, default=25_000)
    move.add_argument("--repeats", type=int, default=5)
    move.add_argument("--memory", type=float, default=4.0, help="GiB for sessions, of each of the two engines")
    move.add_argument("--host", type=float, default=2.0, help="GiB of host memory, of each of them")
    quality = commands.add_parser("quality", help="what fewer bits change over recorded episodes of a trained policy")
    quality.add_argument("store", type=Path, help="folder of an episode store")
    quality.add_argument("--model", default="holotron-nano", help="folder, hub id or preset")
    quality.add_argument("--bits", choices=("fp8", "bf16-products"), default="fp8", help="of layers, or of products")
    quality.add_argument("--episodes", type=int, default=0, help="so many of them (default: all that succeeded)")
    quality.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    cluster = commands.add_parser("cluster", help="many replicas and agents with failures, simulated: the first limit")
    import_module("holotron.bench.cluster").add_options(cluster)
    for command in (agent, phases):
        _add_engine_options(command)
    _add_workload_options(agent)
    for command in (agent, phases, kernel, training, grpo, quality, move, cluster):
        command.add_argument("--json", action="store_true", help="print the figures as JSON")
        command.add_argument("--out", type=Path, help="also write them to this file")
    options = parser.parse_args(arguments)
    if options.what == "suite":
        given = (options.cases, options.folder, options.common, options.budget, options.resume)
        run_suite(*given, parser.parse_args, _load, {"agent": _agent_report, "phases": _phases_report})
        return 0
    if options.what == "trace":
        print(f"{write_trace(options.store, options.out)} episodes in {options.out}")
        return 0
    measures = {"agent": _agent, "phases": _phases, "kernels": _kernels, "train": train.run}
    try:
        # The others need an HTTP client, a browser or records, which a bare GPU machine has not.
        run = measures.get(options.what) or import_module(f"holotron.bench.{options.what}").run
        report = run(options)
    except (EngineError, PlanError) as error:
        raise SystemExit(str(error)) from error
    if options.out:
        write_json(options.out, report)
    if options.json:
        print(json.dumps(report))
    return 0


def _add_engine_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", default="holotron-12b", help=f"folder, hub id or preset: {', '.join(PRESETS)}")
    command.add_argument("--random", action="store_true", help="random weights in the shape of the preset")
    command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    command.add_argument("--state", choices=STATE_TYPES, default="fp16", help="type of the SSM state")
    command.add_argument("--kv", choices=KV_TYPES, default="bf16", help="type of keys and values")
    command.add_argument("--weights", choices=KV_TYPES, default="bf16", help="type of the decoder's layers")
    command.add_argument("--page-size", type=int, default=64)
    command.add_argument("--prefill-tokens", type=int, default=2560, help="most prompt tokens in one step")
    command.add_argument("--checkpoints", type=int, default=0, help="states kept per session for going back")
    command.add_argument("--memory", type=float, help="GiB for sessions (default: what is free, less 10 GiB)")
    command.add_argument("--host", type=float, default=0, help="GiB of host memory for sessions that do not fit")
    command.add_argument("--image-cache", type=float, default=0, help="MiB for encoded tiles that come again")
    command.add_argument("--no-graphs", action="store_true", help="run decode steps without CUDA graphs")
    command.add_argument(
        "--target-token-latency", type=float, help="seconds between two tokens: prompts are cut for it"
    )
    command.add_argument("--target-step-latency", type=float, help="seconds for a step: prompts wait for each other")
    command.add_argument("--reads-late", action="store_true", help="begin decode steps before the last tokens are read")
    command.add_argument("--sessions", type=int, default=100)


def _add_workload_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--steps", type=int, default=20, help="steps in a session's life")
    command.add_argument("--system-tokens", type=int, default=1024)
    command.add_argument("--history", type=int, default=0, help="tokens before the first step, besides the system's")
    command.add_argument("--ages", help="steps that sessions begin with, as LOW-HIGH (default: all ages)")
    command.add_argument(
        "--image-tokens", type=int, default=DEFAULT_IMAGE_TOKENS, help="tokens per screenshot, given as text"
    )
    command.add_argument("--screen", help="WIDTHxHEIGHT of real screenshots through the vision tower")
    command.add_argument("--changed", type=float, default=1.0, help="share of the screen that changes per step")
    command.add_argument("--text-tokens", type=int, default=64)
    command.add_argument("--generated-tokens", type=int, default=128)
    command.add_argument("--think", default="0", help="seconds between steps, as LOW or LOW-HIGH")
    command.add_argument("--group", type=int, default=1, help="sessions forked from one prompt")
    command.add_argument("--rate", type=float, default=0, help="agents that come in a second: an open loop")
    command.add_argument("--burst", type=int, default=1, help="how many of them come at once")
    command.add_argument("--trace", type=Path, help="JSONL of recorded episodes whose lengths and pauses are replayed")
    command.add_argument("--hold", type=float, help="search up to --sessions for the most whose p95 is so many seconds")
    command.add_argument("--guess", type=int, help="where --hold begins to search (default: in the middle)")
    command.add_argument("--warmup", type=float, default=15, help="seconds before measuring")
    command.add_argument("--seconds", type=float, default=40, help="seconds of measuring")
    command.add_argument("--profile", type=Path, help="write a table of where the device's time goes")


def _load(options: argparse.Namespace) -> Model:
    dtype = KV_TYPES[options.weights]
    return load_model(EngineOptions(model=options.model, random=options.random, device=options.device, dtype=dtype))


def _loop_for(options: argparse.Namespace, model: Model, tokens_per_session: int, max_context: int) -> EngineLoop:
    on_cpu = options.device == "cpu"
    chosen = EngineOptions(
        model=options.model,
        random=options.random,
        device=options.device,
        state_dtype="float32" if on_cpu else STATE_TYPES[options.state],
        kv_dtype=KV_TYPES[options.kv],
        memory_gib=options.memory,
        tokens_per_session=tokens_per_session,
        sessions=options.sessions + options.sessions // 4 + 8,  # while some end, others have begun
        max_context=max_context,
        extrapolate=True,
        host_gib=options.host,
        page_size=options.page_size,
        checkpoints=options.checkpoints,
        prefill_tokens=options.prefill_tokens,
        max_running=512,
        target_token_latency=options.target_token_latency,
        target_step_latency=options.target_step_latency,
        reads_late=options.reads_late,
        image_cache_mib=options.image_cache,
        cuda_graphs=not options.no_graphs,
        tokenizer=False,
    )
    return build_engine(chosen, model, stepped=True).loop


def _agent(options: argparse.Namespace) -> dict[str, Any]:
    to_stderr(f"loading {options.model} on {options.device}")
    with Heartbeat("loading the model"):
        model = _load(options)
    report = _agent_report(options, model)
    if not options.json:
        print_agent(report)
    return report


def _agent_report(options: argparse.Namespace, model: Model) -> dict[str, Any]:
    named = {name: getattr(options, name) for name in WORKLOAD_OPTIONS}
    if options.screen:
        if model.config.vision is None:
            raise SystemExit(f"{model.config.name} has no vision tower: leave --screen out, or choose another model")
        named |= {"screen": parse_size("--screen", options.screen), "text_only": False, "image_tokens": None}
    workload = AgentWorkload(
        ages=_ages(options.ages, options.steps) if options.ages else None,
        think_seconds=parse_seconds("--think", options.think),
        trace=tuple(read_trace(options.trace)) if options.trace else (),
        **named,
    ).resolved(model.config)
    loop = _loop_for(options, model, workload.mean_tokens, workload.longest + 64)
    began = time.perf_counter()
    with Heartbeat("computing the first session, of which the others are copies") as heartbeat:

        def tell(message: str) -> None:
            to_stderr(message)
            heartbeat.now(message)

        agents = AgentLoad(loop, workload, at_work=0 if options.hold else None)
        agents.prepare(tell)
        prepared = time.perf_counter() - began

        def measure(sessions: int) -> dict[str, Any]:
            agents.set_agents(sessions)
            found = agents.measure(options.warmup, options.seconds, tell).summary()
            tell(f"{sessions} agents: p95 {found['latency_p95']:.2f} s, {found['steps_per_second']:.2f} steps/s")
            return found

        if options.hold:
            held, probes = most_held(measure, workload.sessions, options.hold, options.guess)
            shown = next((row for row in probes if row["agents"] == held), probes[-1])
            workload = replace(workload, sessions=shown["agents"])
            figures = shown | {"agents_held": held, "held_within_seconds": options.hold, "probes": probes}
        else:
            figures = dict(agents.measure(options.warmup, options.seconds, tell).summary())
            if options.profile:
                write_profile(options.profile, lambda: agents.run_more(4.0), on_gpu=options.device != "cpu")
    counted = counters(loop)
    figures |= {f"traffic_{name}": counted[name] for name in ("evicted", "restored", "dropped", "recomputed_tokens")}
    figures["seconds_to_prepare"] = prepared
    figures |= {name: counted[name] for name in ("encoded_parts", "reused_parts")}
    return agent_report(model.config, workload, loop.config, figures, options.weights)


def _ages(text: str, steps: int) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not (low.isdigit() and high.isdigit() and int(low) < int(high) <= steps):
        raise SystemExit(f"--ages is {text!r}; it must be LOW-HIGH with LOW < HIGH, up to the {steps} of --steps")
    return int(low), int(high)


def _phases(options: argparse.Namespace) -> dict[str, Any]:
    figures = _phases_report(options, _load(options))
    if not options.json:
        print_figures(figures, digits=0)
    return figures


def _phases_report(options: argparse.Namespace, model: Model) -> dict[str, Any]:
    loop = _loop_for(options, model, 4608, 8192)
    named = {"model": model.config.name, "weights": options.weights}
    return machine() | named | measure_phases(loop, options.sessions)


def _kernels(options: argparse.Namespace) -> dict[str, Any]:
    if not torch.cuda.is_available():
        raise SystemExit("holotron bench kernels needs a CUDA device; the kernels' results are tested without one")
    rows: list[dict[str, Any]] = []
    for row in kernels.rows(only=options.only):
        rows.append(row)
        if not options.json:
            print("  " + "  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        if options.out:
            write_json(options.out, machine() | {"kernels": rows})  # a run that is cut short keeps what it has
    return machine() | {"kernels": rows}


if __name__ == "__main__":
    sys.exit(main())
