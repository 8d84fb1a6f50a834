"""What the providers' own clients have in common here: keys, retries, and errors in words."""

from __future__ import annotations

import asyncio
import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply
from holotron.model.image import image_size

ATTEMPTS = 6
LONGEST_PAUSE = 60.0
AGAIN = (408, 409, 429, 500, 502, 503, 504, 529)


class ComputerModel(ABC):
    """A provider's model with its computer tool, through its official client. Keys come from the environment."""

    package: ClassVar[str]
    key_variable: ClassVar[str]

    def __init__(self, model: str, style: ChatOptions | None = None, *, base_url: str | None = None) -> None:
        if not os.environ.get(self.key_variable):
            raise ModelUnavailable(f"{self.key_variable} is not set: {model} needs a key of its provider")
        self.name = model
        self.style = style or ChatOptions(max_tokens=4096)
        self.client = self._connect(base_url)

    @abstractmethod
    def _connect(self, base_url: str | None) -> Any:
        """The client, which must not try again by itself: `ask` does, and says so."""

    @abstractmethod
    async def open(self) -> ComputerChat: ...

    async def aclose(self) -> None:
        await self.client.close()

    async def ask(self, call: Any, **request: Any) -> Any:
        """One request, tried again while the provider is busy; ModelUnavailable with its own words where it refuses."""
        sdk = self._sdk()
        pause = 1.0
        for attempt in range(ATTEMPTS):
            try:
                return await call(**request)
            except sdk.APIStatusError as error:
                problem = f"{error.status_code} {_words(error)}"
                if error.status_code in (401, 403):
                    raise ModelUnavailable(f"{self.name}: {problem}; look at {self.key_variable}") from error
                if error.status_code not in AGAIN:
                    raise ModelUnavailable(f"{self.name} refused the request: {problem}") from error
                pause = _wished(error.response.headers, pause)
            except sdk.APIConnectionError as error:
                problem = f"{type(error).__name__}: {error}"
            if attempt < ATTEMPTS - 1:
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
        raise ModelUnavailable(f"{self.name} could not be used {ATTEMPTS} times: {problem}")

    @classmethod
    def _sdk(cls) -> Any:
        import importlib

        try:
            return importlib.import_module(cls.package)
        except ImportError as error:
            raise ModelUnavailable(
                f"the package {cls.package} is missing; install it with: pip install 'holotron[remote]'"
            ) from error


class ComputerChat(ABC):
    """One conversation. Several actions of one answer are given out one by one, and answered for together."""

    def __init__(self) -> None:
        self._waiting: list[Reply] = []

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        if not self._waiting:
            [message] = new
            self._waiting = await self._ask(message)
        return self._waiting.pop(0)

    @abstractmethod
    async def _ask(self, message: Message) -> list[Reply]:
        """The next screenshot and words to the provider; what it wants done, at least one thing."""

    async def close(self) -> None:
        """The provider is told nothing: what it keeps of a conversation it forgets by its own rules."""
        self._waiting.clear()


def picture(message: Message) -> tuple[str, tuple[int, int]]:
    """The screenshot in base 64, and its size."""
    if message.image is None:
        raise ModelUnavailable("a computer tool needs a screenshot at every step")
    return base64.b64encode(message.image).decode(), image_size(message.image)


def _words(error: Any) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error") if isinstance(body.get("error"), dict) else body
    return str((inner or {}).get("message") or error.message)[:300]


def _wished(headers: Mapping[str, str], pause: float) -> float:
    """How long the provider asks to wait."""
    try:
        return min(LONGEST_PAUSE, max(0.0, float(headers.get("retry-after", pause))))
    except ValueError:
        return pause
