"""The suite with the state that each episode left, and with scripts that do some tasks: do episodes meet?"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from holotron.agent.agent import Ending
from holotron.env.task import Task
from holotron.suites.webapps.environment import AppEnvironment, AppPool
from holotron.suites.webapps.suite import WebAppsSuite
from tests.webapps.script import perform
from tests.webapps.solutions import SOLUTIONS

LEFT = "; state "  # in an outcome's detail, before the digest


@dataclass(frozen=True)
class WatchedApps(WebAppsSuite):
    """With odd seeds a script does the task before the policy begins. A detail ends with the digest of the state."""

    @asynccontextmanager
    async def begin(self, pool: AppPool, task: Task) -> AsyncIterator[AppEnvironment]:
        async with super().begin(pool, task) as env:
            if (task.seed or 0) % 2:
                await perform(env, SOLUTIONS[task.name or ""])
            yield env

    async def judge(self, env: AppEnvironment, task: Task, ending: Ending, rule: str) -> Ending:
        ended = await super().judge(env, task, ending, rule)
        return replace(ended, detail=f"{ended.detail}{LEFT}{await state_digest(env)}")


async def state_digest(env: AppEnvironment) -> str:
    """Of what the verifiers read; one application dates some of its letters from the moment it begins."""
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        state: Any = (await client.get(f"{env.server.address}/api/state")).raise_for_status().json()
    days = "|".join((datetime.now(UTC) - timedelta(days=back)).date().isoformat() for back in (0, 1))
    text = re.sub(rf'"({days})T[\d:.]+Z"', '"now"', json.dumps(state, sort_keys=True))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
