"""The script that runs other servers' tests against ours, on small checkouts in their layouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.peers import __main__ as peers

VLLM = """
import pytest, pytest_asyncio
from ....utils import RemoteOpenAIServer
from vllm.sampling_params import SamplingParams
from vllm.tokenizers import get_tokenizer

@pytest.fixture(scope="module")
def server():
    with RemoteOpenAIServer("tiny", ["--max-model-len", "1024"]) as remote:
        yield remote

@pytest_asyncio.fixture
async def client(server):
    async with server.get_async_client() as client:
        yield client

@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["tiny", "some-lora"])
async def test_chat(client, name):
    answer = await client.chat.completions.create(
        model=name, messages=[{"role": "user", "content": "Hello"}], max_tokens=3, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 3

@pytest.mark.asyncio
async def test_that_nobody_passes(client):
    assert "vocabulary" == get_tokenizer(tokenizer_name="theirs").decode([72])

def test_custom_role():
    pass

def test_of_their_own_code():
    assert SamplingParams(n=3).n == 3
"""
SGLANG = """
from sglang.srt.utils import kill_process_tree
from sglang.test.test_utils import DEFAULT_SMALL_MODEL_NAME_FOR_TEST as MODEL
from sglang.test.test_utils import DEFAULT_TIMEOUT_FOR_SERVER_LAUNCH as SECONDS
from sglang.test.test_utils import DEFAULT_URL_FOR_TEST, CustomTestCase, popen_launch_server
import openai

class TestServer(CustomTestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = popen_launch_server(MODEL, DEFAULT_URL_FOR_TEST, timeout=SECONDS)

    @classmethod
    def tearDownClass(cls):
        kill_process_tree(cls.process.pid)

    def test_model_list(self):
        models = list(openai.Client(api_key="any", base_url=DEFAULT_URL_FOR_TEST + "/v1").models.list())
        assert models[0].id == MODEL

    def test_regex(self):
        assert False
"""


def write(root: Path, file: str, text: str) -> Path:
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def vllm(tmp_path):
    write(tmp_path, "tests/entrypoints/openai/basic/test_small.py", VLLM)
    for folder in ("tests", "tests/entrypoints", "tests/entrypoints/openai", "tests/entrypoints/openai/basic"):
        (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def verdicts(report: Path) -> dict[str, str]:
    rows = json.loads(report.read_text(encoding="utf-8"))["tests"]
    return {row["test"].rpartition("::")[2]: row["verdict"] for row in rows}


def test_tests_of_vllm(vllm, live, checkpoint, capfd):
    more = ["--url", live.url, "--model", str(checkpoint), "--out", str(vllm / "table.json")]
    assert peers.main([str(vllm), *more]) == 1  # one is unexpected
    assert verdicts(vllm / "table.json") == {
        "test_chat[tiny]": "passed",
        "test_chat[some-lora]": "expected",
        "test_that_nobody_passes": "unexpected",
        "test_custom_role": "outdated",
        "test_of_their_own_code": "skipped",
    }
    told = capfd.readouterr().out
    assert "unexpected tests/entrypoints/openai/basic/test_small.py::test_that_nobody_passes: " in told
    assert "1 expected, 1 outdated, 1 passed, 1 skipped, 1 unexpected" in told


def test_tests_of_sglang(tmp_path, live, checkpoint):
    write(tmp_path, "test/srt/openai_server/basic/test_small.py", SGLANG)
    more = ["--url", live.url, "--model", str(checkpoint), "--out", str(tmp_path / "table.json")]
    assert peers.main([str(tmp_path), *more]) == 0
    assert verdicts(tmp_path / "table.json") == {"test_model_list": "passed", "test_regex": "expected"}


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="is no checkout"):
        peers.main([str(tmp_path)])


def test_one_that_cannot_begin_is_never_expected():
    outcomes = {"a::test_regex": {"outcome": "error", "reason": "no server"}}
    (row,) = peers.judge(outcomes, {"*::test_regex": "not here"})
    assert (row.verdict, row.reason) == ("unexpected", "no server")
