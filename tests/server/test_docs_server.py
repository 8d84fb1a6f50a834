"""Every request that docs/server.md shows is answered as it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .live import serving

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
CURLS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
HOST = "http://127.0.0.1:8000"
# The fields that an answer has, by a part of its request.
FIELDS = {
    "chat/completions": {"id", "choices", "usage", "weight_version"},
    "v1/completions": {"choices", "usage", "weight_version"},
    "/input_tokens": {"object", "input_tokens"},
    "/v1/responses": {"id", "output", "usage", "session_id"},
    "/count_tokens": {"input_tokens"},
    "/v1/messages": {"id", "content", "stop_reason", "usage"},
    "/tokenize": {"tokens", "count"},
    "/detokenize": {"prompt"},
    "/turns": {"choices", "session_id"},
    "/fork": {"data"},
    "/rollback": {"tokens", "turns"},
    "-X DELETE": {"deleted"},
    "/update_weights": {"weight_version"},
    "/admin/status": {"engine", "engine_pid", "weight_version"},
    "/admin/": {"ok"},
    "/v1/sessions/$SESSION\n": {"tokens", "turns", "device_bytes", "residency"},
    "/v1/sessions ": {"id", "ttl"},
}


@pytest.fixture(scope="module")
def server(checkpoint):
    with serving(checkpoint, admin_key="operator") as live:
        yield live


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_curl_is_answered(server, checkpoint):
    variables = {"ADMIN_KEY": "operator", "CHECKPOINT": str(checkpoint), "SESSION": ""}
    assert len(CURLS) >= 18
    for block in CURLS:
        line = block.replace("curl ", "curl -sS --noproxy '*' -w '\\n%{http_code}' ", 1).replace(HOST, server.url)
        done = subprocess.run(
            ["bash", "-c", line], env=os.environ | variables, capture_output=True, text=True, timeout=60, check=True
        )
        body, _, status = done.stdout.rpartition("\n")
        assert status == "200", f"{block}\n{body}"
        if "stream" in block:
            assert body.rstrip().endswith("data: [DONE]")
            assert '"usage"' in body
        elif "/metrics" in block:
            assert "vllm:generation_tokens_total" in body
        else:
            answer = json.loads(body)
            part = next(part for part in FIELDS if part in block)
            assert answer.keys() >= FIELDS[part], block
            if part == "/v1/sessions ":
                variables["SESSION"] = answer["id"]


def test_the_python_example_runs(server):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(example.replace(HOST, server.url), "docs/server.md", "exec"), scope)
    assert scope["answer"].choices[0].logprobs.content
