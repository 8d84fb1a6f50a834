"""Anthropic's computer tool through the Messages API, with the package `anthropic`."""

from __future__ import annotations

import json
from typing import Any

from holotron.agent.chat import ChatOptions, Message, Reply
from holotron.agent.remote import ComputerChat, ComputerModel, picture

VERSION, BETA = "computer_20250124", "computer-use-2025-01-24"
KEPT_IMAGES = 5
OMITTED = "[an older screenshot]"


class AnthropicComputer(ComputerModel):
    """tool, beta: the version of the computer tool, and the beta that it belongs to."""

    package = "anthropic"
    key_variable = "ANTHROPIC_API_KEY"

    def __init__(
        self,
        model: str,
        style: ChatOptions | None = None,
        *,
        base_url: str | None = None,
        tool: str = VERSION,
        beta: str = BETA,
    ) -> None:
        self.tool, self.beta = tool, beta
        super().__init__(model, style, base_url=base_url)

    def _connect(self, base_url: str | None) -> Any:
        return self._sdk().AsyncAnthropic(base_url=base_url, max_retries=0)

    async def open(self) -> AnthropicChat:
        return AnthropicChat(self)


class AnthropicChat(ComputerChat):
    def __init__(self, model: AnthropicComputer) -> None:
        super().__init__()
        self._model = model
        self._messages: list[dict[str, Any]] = []
        self._calls: list[str] = []  # whose results are owed

    async def _ask(self, message: Message) -> list[Reply]:
        encoded, (width, height) = picture(message)
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        shown = {"type": "image", "source": source}
        text = [{"type": "text", "text": message.text}] if message.text else []
        if self._calls:
            # Each call wants a result; what was done together is seen once, at the end.
            *before, last = self._calls
            content: list[dict[str, Any]] = [
                *({"type": "tool_result", "tool_use_id": call, "content": "done"} for call in before),
                {"type": "tool_result", "tool_use_id": last, "content": [shown]},
                *text,
            ]
        else:
            content = [*text, shown]
        self._messages.append({"role": "user", "content": content})
        _forget_images(self._messages)
        tool = {"type": self._model.tool, "name": "computer", "display_width_px": width, "display_height_px": height}
        response = await self._model.ask(
            self._model.client.beta.messages.create,
            model=self._model.name,
            max_tokens=self._model.style.max_tokens,
            tools=[tool],
            messages=self._messages,
            betas=[self._model.beta],
        )
        blocks = [block.model_dump(mode="json", exclude_none=True) for block in response.content]
        self._messages.append({"role": "assistant", "content": blocks})
        return self._replies(response, blocks)

    def _replies(self, response: Any, blocks: list[dict[str, Any]]) -> list[Reply]:
        calls = [block for block in blocks if block["type"] == "tool_use"]
        self._calls = [call["id"] for call in calls]
        said = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        found: list[dict[str, Any]]
        if response.stop_reason == "refusal":
            found = [{"refusal": f"the provider's model refused: {said or 'without words'}"}]
        elif calls:
            found = [{"thought": said, "inputs": [call["input"]]} for call in calls]
        elif response.stop_reason in ("end_turn", "stop_sequence"):
            found = [{"answer": said}]
        else:
            found = [{"refusal": f"the answer ended with {response.stop_reason} before an action"}]
        usage = response.usage
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        first = Reply(
            json.dumps(found[0], ensure_ascii=False),
            prompt_tokens=usage.input_tokens + read + written,
            cached_tokens=read,
            completion_tokens=usage.output_tokens,
            finish_reason=response.stop_reason,
        )
        return [first, *(Reply(json.dumps(part, ensure_ascii=False), completion_tokens=0) for part in found[1:])]


def _forget_images(messages: list[dict[str, Any]]) -> None:
    """All but the last screenshots become a line of text."""
    places: list[tuple[list[Any], int]] = []
    for message in messages:
        inner = [block["content"] for block in message["content"] if block["type"] == "tool_result"]
        for parts in (message["content"], *(content for content in inner if isinstance(content, list))):
            places += [(parts, index) for index, part in enumerate(parts) if part["type"] == "image"]
    for parts, index in places[: max(0, len(places) - KEPT_IMAGES)]:
        parts[index] = {"type": "text", "text": OMITTED}
