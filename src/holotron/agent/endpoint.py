"""A model behind an OpenAI-compatible address: ours, with sessions, or anybody's, without."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply

# An overloaded server asks to come back; so do the statuses of proxies whose server restarts.
AGAIN = (429, 502, 503, 504)
LONGEST_PAUSE = 30.0
FIRST_ANSWER = 15.0  # seconds in which a server must say what it serves
KEY_VARIABLES = ("HOLOTRON_API_KEY", "OPENAI_API_KEY")


def find_card(base_url: str, model: str | None = None, api_key: str | None = None) -> dict[str, Any]:
    """What the server says about a model (by default its first), asked once; {} from one that lists no models.

    ModelUnavailable within seconds where nobody answers.
    """
    root = base_url.rstrip("/").removesuffix("/v1")
    try:
        response = httpx.get(f"{root}/v1/models", headers=_headers(api_key), timeout=FIRST_ANSWER)
    except httpx.HTTPError as error:
        raise ModelUnavailable(f"{root} cannot be reached: {error or type(error).__name__}") from error
    except (httpx.InvalidURL, ValueError) as error:
        raise ModelUnavailable(f"{base_url!r} is no address: {error}") from error
    if response.status_code in (401, 403):
        raise ModelUnavailable(f"{root} wants an API key: {_message(response)}; set {' or '.join(KEY_VARIABLES)}")
    try:
        cards = response.json()["data"]
        return next((card for card in cards if model is None or card["id"] == model), {})
    except (ValueError, KeyError, TypeError):
        return {}


def find_key() -> str | None:
    """The API key that the environment holds."""
    return next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class EndpointModel:
    """Talks to `base_url` (with or without the final /v1). Sessions are used if the server has them.

    Pickled, it becomes another client of the same server.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        style: ChatOptions | None = None,
        *,
        sessions: bool | None = None,
        seconds: float = 300.0,
        attempts: int = 6,
    ) -> None:
        self.style = style or ChatOptions()
        self._again = partial(
            EndpointModel, base_url, model, api_key, style, sessions=sessions, seconds=seconds, attempts=attempts
        )
        self._model = model
        self._sessions = sessions
        self._attempts = attempts
        root = base_url.rstrip("/").removesuffix("/v1")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        self._http = httpx.AsyncClient(base_url=root, headers=_headers(api_key), timeout=seconds, limits=limits)
        self._asking = asyncio.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    @property
    def name(self) -> str:
        return self._model or "unknown"

    @property
    def is_ours(self) -> bool:
        """Whether it answered as a server of Holotron, once a conversation was opened."""
        return bool(self._sessions)

    async def open(self) -> EndpointChat:
        """A new conversation; ModelUnavailable if nobody answers."""
        async with self._asking:
            if self._model is None:
                self._model = (await self.request("GET", "/v1/models"))["data"][0]["id"]
            if self._sessions is None:
                self._sessions = await self._has_sessions()
        session = None
        if self._sessions and not self.style.windowed:
            session = await self._open_session()
        return EndpointChat(self, session)

    async def _open_session(self) -> str:
        body: dict[str, Any] = {"model": self._model}  # which may be an adapter of what is served
        if self.style.keep_images is not None:
            # A model that cannot forget screenshots without losing them keeps all of them.
            with suppress(EndpointRefused):
                kept = body | {"keep_images": self.style.keep_images}
                return str((await self.request("POST", "/v1/sessions", kept))["id"])
        return str((await self.request("POST", "/v1/sessions", body))["id"])

    async def _has_sessions(self) -> bool:
        try:
            response = await self._http.get("/v1/sessions")
        except httpx.HTTPError as error:
            raise ModelUnavailable(f"{self._http.base_url} does not answer: {error}") from error
        return response.status_code == 200

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request, tried again while the server is busy or away."""
        pause = 0.5
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
            try:
                response = await self._http.request(method, path, json=body)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if response.status_code in AGAIN:
                problem = f"{response.status_code} {_message(response)}"
                with suppress(ValueError):
                    pause = min(LONGEST_PAUSE, float(response.headers.get("retry-after", pause)))
                continue
            if response.status_code >= 500:
                raise ModelUnavailable(f"{path} failed: {response.status_code} {_message(response)}")
            if response.status_code >= 400:
                raise EndpointRefused(response.status_code, _message(response))
            answer: dict[str, Any] = response.json()
            return answer
        raise ModelUnavailable(f"{self._http.base_url} could not be used {self._attempts} times: {problem}")


class EndpointRefused(Exception):
    """The server found something wrong with a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class EndpointChat:
    """One conversation, in a session of the server or sent whole every time."""

    def __init__(self, model: EndpointModel, session: str | None) -> None:
        self._model = model
        self._session = session
        self._messages: list[Message] = []

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        style = self._model.style
        told = list(new) if self._session else style.sent_whole([*self._messages, *new])
        body: dict[str, Any] = {
            "model": self._model.name,
            "messages": [_message_body(said) for said in told],
            "max_tokens": style.max_tokens,
            "temperature": style.temperature,
            "top_p": style.top_p,
        }
        if style.seed is not None:
            body["seed"] = style.seed
        if style.template:
            body["chat_template_kwargs"] = dict(style.template)
        if schema is not None and style.use_grammar and "lark" in schema:
            if self._model.is_ours:  # other servers read other grammars
                body["structured_outputs"] = {"grammar": schema["lark"]}
        elif schema is not None and style.use_grammar:
            wanted = {"name": "step", "schema": dict(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if self._session:
            body["session_id"] = self._session
        if self._model.is_ours and style.record_tokens:
            body |= {"return_token_ids": True, "logprobs": True}
        try:
            answer = await self._model.request("POST", "/v1/chat/completions", body)
        except EndpointRefused as error:
            if error.status == 404 and self._session:
                raise ModelUnavailable(f"the session is gone: {error}") from error
            raise
        self._messages += new
        reply = _reply(answer)
        self._messages.append(Message("assistant", reply.text))
        return reply

    async def close(self) -> None:
        if self._session:
            session, self._session = self._session, None
            with suppress(ModelUnavailable, EndpointRefused):
                await self._model.request("DELETE", f"/v1/sessions/{session}")


def _message_body(said: Message) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(said.image or b"").decode()
    return {"role": said.role, "content": said.content({"type": "image_url", "image_url": {"url": url}})}


def _reply(answer: dict[str, Any]) -> Reply:
    choice = answer["choices"][0]
    refusal = choice["message"].get("refusal")
    usage = answer.get("usage") or {}
    ids = choice.get("token_ids")
    content = (choice.get("logprobs") or {}).get("content") or []
    known = ids is not None and len(content) == len(ids)
    versions = choice.get("weight_versions")
    return Reply(
        text=choice["message"].get("content") or refusal or "",
        prompt_ids=_tuple(answer.get("prompt_token_ids")),
        token_ids=_tuple(ids),
        logprobs=tuple(entry.get("sampling_logprob", entry["logprob"]) for entry in content) if known else None,
        model_logprobs=tuple(entry["logprob"] for entry in content) if known else None,
        forced=_tuple(choice.get("forced")),
        weight_version=answer.get("weight_version"),
        weight_versions=tuple(versions) if versions and len(set(versions)) > 1 else None,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        finish_reason="refusal" if refusal else choice.get("finish_reason"),
    )


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:300]
