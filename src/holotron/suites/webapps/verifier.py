"""A verifier at work: in a process of its own, which knows the application's address and nothing else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from holotron.env.errors import InfrastructureError
from holotron.suites.webapps.processes import end, start_confined

SECONDS = 60.0
MEGABYTES = 1024


class VerifierFailed(InfrastructureError):
    """A verifier does not end, cannot be loaded or does not reach its application: the policy is not judged."""


@dataclass(frozen=True)
class Verification:
    """passed: the state is what was asked for. A verifier that raised has not found that; the message tells of it."""

    passed: bool
    message: str


async def verify(file: Path, address: str, seconds: float = SECONDS) -> Verification:
    """What the verifier in a file says of the application at an address."""
    with TemporaryDirectory(prefix="holotron-verifier-") as folder:
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        words = ("verify", str(file.resolve()), address)
        process = await start_confined(Path(folder), MEGABYTES, *words, **pipes)
        try:
            async with asyncio.timeout(seconds):
                answer, complaint = await process.communicate()
        except TimeoutError:
            raise VerifierFailed(f"the verifier {file} did not end within {seconds:g} s") from None
        finally:
            await end(process)
    try:
        found = json.loads(answer)
    except ValueError:
        last = (complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise VerifierFailed(f"the verifier {file} ended with {process.returncode}: {last}") from None
    if "broken" in found:
        hint = "; pip install 'holotron[eval]'" if "No module named 'requests'" in found["broken"] else ""
        raise VerifierFailed(f"the verifier {file}: {found['broken']}{hint}")
    if "raised" in found:
        return Verification(False, f"the verifier raised {found['raised']}")
    return Verification(found["passed"], found["message"])
