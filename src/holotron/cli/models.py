"""`holotron models`: the models known by name, and what each costs a session."""

from __future__ import annotations

from typing import Any

from holotron.cli.output import MIB, JsonOption, billions, console, examples, plain_table, print_json, print_wrapped
from holotron.model.config import ModelConfig
from holotron.model.presets import PRESETS, Preset
from holotron.plan.planner import describe_model

EXAMPLES = examples("holotron models", "holotron models --json")


def models(json: JsonOption = False) -> None:
    """List the known models: layers, parameters, memory per token and per session."""
    if json:
        print_json([_describe(preset) for preset in PRESETS.values()])
    else:
        _print_table()


def _describe(preset: Preset) -> dict[str, Any]:
    config = preset.config
    return describe_model(config) | {
        "about": preset.about,
        "hub_id": preset.hub_id,
        "kv_bytes_per_token": 2 * config.kv_values_per_token,
        "state_bytes_16_bit": 2 * config.ssm_values,
        "state_bytes_32_bit": 4 * config.ssm_values,
        "conv_bytes": 2 * config.conv_values,
        "max_positions": config.max_positions,
    }


def _print_table() -> None:
    sizes = plain_table(gap=1)
    sizes.add_column("\nmodel", style="cyan", no_wrap=True)
    shares = [f"{part}\nparams" for part in ("text", "active", "vision")]
    for heading in ("layers\nM/-E/*", *shares, "KV bytes\nper token", "state\n16/32 b"):
        sizes.add_column(heading, justify="right", no_wrap=True)
    # Hub ids are long and meant to be copied: in a table of their own they are never cut off.
    homes = plain_table()
    homes.add_column("model", style="cyan", no_wrap=True)
    homes.add_column("weights, on the Hugging Face hub", overflow="fold")
    for preset in PRESETS.values():
        config = preset.config
        sizes.add_row(
            config.name,
            f"{config.count('M')}/{config.count('-') + config.count('E')}/{config.count('*')}",
            billions(config.text_parameters),
            billions(config.active_parameters) if config.moe else "",
            billions(config.vision_parameters + config.projector_parameters) if config.vision else "",
            f"{2 * config.kv_values_per_token:,}",
            _state(config),
        )
        homes.add_row(config.name, preset.hub_id or "[dim]in this package[/dim]")
    out = console()
    out.print(sizes)
    out.print()
    out.print(homes)
    out.print()
    print_wrapped(
        "Layers: M Mamba-2, - MLP or E mixture of experts, * attention. KV in bf16. The state, in MiB with 16 and 32"
        " bits, is what one session carries, however long it is. Vision: tower and projector."
    )


def _state(config: ModelConfig) -> str:
    if config.ssm_values == 0:
        return "none"
    return "/".join(f"{round(config.ssm_values * size / MIB, 1):g}" for size in (2, 4))
