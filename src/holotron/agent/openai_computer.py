"""OpenAI's computer tool through the Responses API, with the package `openai`."""

from __future__ import annotations

import json
from typing import Any

from holotron.agent.chat import Message, Reply
from holotron.agent.remote import ComputerChat, ComputerModel, picture


class OpenAIComputer(ComputerModel):
    """`computer-use-preview` models take the tool of that name, later ones `computer`.

    Where the provider wants a person to confirm a safety check, the run ends as infeasible with its words.
    """

    package = "openai"
    key_variable = "OPENAI_API_KEY"

    def _connect(self, base_url: str | None) -> Any:
        return self._sdk().AsyncOpenAI(base_url=base_url, max_retries=0)

    async def open(self) -> OpenAIChat:
        return OpenAIChat(self)


class OpenAIChat(ComputerChat):
    def __init__(self, model: OpenAIComputer) -> None:
        super().__init__()
        self._model = model
        self._previous: str | None = None
        self._calls: list[str] = []  # whose screenshots are owed

    async def _ask(self, message: Message) -> list[Reply]:
        style = self._model.style
        encoded, (width, height) = picture(message)
        url = f"data:image/png;base64,{encoded}"
        shown = {"type": "computer_screenshot", "image_url": url}
        items: list[dict[str, Any]] = [
            {"type": "computer_call_output", "call_id": call, "output": shown} for call in self._calls
        ]
        content = [{"type": "input_text", "text": message.text}] if message.text else []
        if not self._calls:
            content.append({"type": "input_image", "detail": "auto", "image_url": url})
        if content:
            items.append({"role": "user", "content": content})
        response = await self._model.ask(
            self._model.client.responses.create,
            model=self._model.name,
            tools=[_tool(self._model.name, width, height)],
            input=items,
            truncation="auto",
            max_output_tokens=style.max_tokens,
            **({"previous_response_id": self._previous} if self._previous else {}),
        )
        self._previous = response.id
        return self._replies(response)

    def _replies(self, response: Any) -> list[Reply]:
        output = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
        calls = [item for item in output if item["type"] == "computer_call"]
        self._calls = [call["call_id"] for call in calls]
        thought = " ".join(
            part["text"] for item in output if item["type"] == "reasoning" for part in item.get("summary", ())
        )
        checks = [check for call in calls for check in call.get("pending_safety_checks", ())]
        if checks:
            words = "; ".join(check.get("message") or check.get("code") or check["id"] for check in checks)
            found = [_refusal(f"the provider wants a person to confirm: {words}")]
        elif calls:
            found = [
                {"type": "computer_call", "action": action, "thought": thought}
                for call in calls
                for action in call.get("actions") or [call.get("action")]
            ]
        else:
            messages = [item for item in output if item["type"] == "message"]
            incomplete = response.incomplete_details.reason if response.incomplete_details else response.status
            found = messages[-1:] or [_refusal(f"the answer has neither an action nor a text ({incomplete})")]
        usage = response.usage
        first = Reply(
            json.dumps(found[0], ensure_ascii=False),
            prompt_tokens=usage.input_tokens if usage else None,
            cached_tokens=usage.input_tokens_details.cached_tokens if usage else None,
            completion_tokens=usage.output_tokens if usage else None,
            finish_reason=response.status,
        )
        return [first, *(Reply(json.dumps(item, ensure_ascii=False), completion_tokens=0) for item in found[1:])]


def _tool(model: str, width: int, height: int) -> dict[str, Any]:
    if not model.startswith("computer-use-preview"):
        return {"type": "computer"}
    return {
        "type": "computer_use_preview",
        "display_width": width,
        "display_height": height,
        "environment": "browser",
    }


def _refusal(reason: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": reason}]}
