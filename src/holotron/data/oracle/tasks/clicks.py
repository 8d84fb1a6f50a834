"""Tasks that are done by clicking one thing after another."""

from __future__ import annotations

import random

from holotron.agent.actions import Action
from holotron.data.oracle.acts import click
from holotron.data.oracle.registry import teaches
from holotron.env.miniwob.eyes import Eyes


@teaches("click-button")
async def click_button(eyes: Eyes, chance: random.Random) -> Action | None:
    return click(await eyes.one("#area button", eyes.quoted[0]))
