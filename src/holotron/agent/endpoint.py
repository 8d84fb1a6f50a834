"""A model behind an OpenAI-compatible address: ours, with sessions, or anybody's, without."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply, turn_seed
from holotron.agent.proxies import client_options, told_proxy

log = logging.getLogger(__name__)
# An overloaded server asks to come back; so do the statuses of proxies whose server restarts.
AGAIN = (429, 502, 503, 504)
LONGEST_PAUSE = 30.0
FIRST_ANSWER = 15.0  # seconds in which a server must say what it serves
KEY_VARIABLES = ("HOLOTRON_API_KEY", "OPENAI_API_KEY")
# What a model of others may refuse, and what its makers call it otherwise: it is left out from then on.
OPTIONAL = dict.fromkeys(("temperature", "top_p", "seed", "chat_template_kwargs", "response_format"), "")
OPTIONAL |= {"max_tokens": "max_completion_tokens"}


def api_root(base_url: str) -> str:
    """Where an API's paths begin: at the address if a version is in it, such as …/v1beta/openai, else at its /v1."""
    base = base_url.rstrip("/")
    return base if re.search(r"/v\d\w*(/|$)", urlsplit(base).path) else f"{base}/v1"


def find_card(base_url: str, model: str | None = None, api_key: str | None = None) -> dict[str, Any]:
    """What the server says about a model (by default its first), asked once; {} from one that lists no models.

    ModelUnavailable within seconds where nobody answers.
    """
    try:
        root = api_root(base_url)
        options = client_options(root)
        response = httpx.get(f"{root}/models", headers=_headers(api_key), timeout=FIRST_ANSWER, **options)
    except httpx.UnsupportedProtocol as error:
        raise ModelUnavailable(f"{base_url} is no address; it must begin with http:// or https://") from error
    except httpx.HTTPError as error:
        problem = f"{error or type(error).__name__}{told_proxy(base_url)}"
        raise ModelUnavailable(f"{base_url} cannot be reached: {problem}") from error
    except (httpx.InvalidURL, ValueError) as error:
        at_fault = "the proxy that the environment names" if "proxy" in str(error) else repr(base_url)
        raise ModelUnavailable(f"{at_fault} is no address: {error}") from error
    if response.status_code in (401, 403):
        raise ModelUnavailable(f"{base_url} wants an API key: {_message(response)}; set {' or '.join(KEY_VARIABLES)}")
    with suppress(KeyError, TypeError):
        return next((card for card in _read(response)["data"] if model is None or card["id"] == model), {})
    return {}


def find_key() -> str | None:
    """The API key that the environment holds."""
    return next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class EndpointModel:
    """Talks to `base_url` (`api_root`). Sessions are used if the server has them.

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
        self._left_out: set[str] = set()
        root = api_root(base_url)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        self._http = httpx.AsyncClient(
            base_url=root, headers=_headers(api_key), timeout=seconds, limits=limits, **client_options(root)
        )
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
                try:
                    self._model = str((await self.request("GET", "/models"))["data"][0]["id"])
                except (KeyError, IndexError, TypeError):
                    problem = f"{self._http.base_url} lists no models; say which one is meant (--name)"
                    raise ModelUnavailable(problem) from None
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
                return str((await self.request("POST", "/sessions", kept))["id"])
        return str((await self.request("POST", "/sessions", body))["id"])

    async def _has_sessions(self) -> bool:
        try:
            response = await self._http.get("/sessions")
        except httpx.HTTPError as error:
            raise ModelUnavailable(f"{self._http.base_url} does not answer: {error}") from error
        # There are servers that answer 200 to whatever they do not know.
        return response.status_code == 200 and isinstance(_read(response).get("data"), list)

    def taken(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request without what the model refuses."""
        names = {name: OPTIONAL[name] if name in self._left_out else name for name in body}
        return {taken: body[name] for name, taken in names.items() if taken}

    def leaves_out(self, name: str, error: EndpointRefused) -> bool:
        """Whether a request that was refused for this field can be made again without it."""
        if self.is_ours or name not in OPTIONAL:
            return False
        if name not in self._left_out:
            log.warning("the model is asked without %s from now on: %s", name, error)
            self._left_out.add(name)
        return True

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
                problem = f"{type(error).__name__}: {error}{told_proxy(str(self._http.base_url))}"
                continue
            if response.status_code in AGAIN:
                problem = f"{response.status_code} {_message(response)}"
                with suppress(ValueError):
                    pause = min(LONGEST_PAUSE, float(response.headers.get("retry-after", pause)))
                continue
            if response.status_code >= 500:
                raise ModelUnavailable(f"{path} failed: {response.status_code} {_message(response)}")
            answer = _read(response)
            if response.status_code >= 400:
                where = f" ({response.url})" if response.status_code == 404 else ""
                raise EndpointRefused(response.status_code, _message(response) + where, _error(response).get("param"))
            if answer.get("error"):  # behind a gateway the status is that of the gateway
                problem = _message(response)
                continue
            if not answer:
                raise ModelUnavailable(f"{response.url} answers something else than JSON: no OpenAI-compatible API")
            return answer
        raise ModelUnavailable(f"{self._http.base_url} could not be used {self._attempts} times: {problem}")


class EndpointRefused(Exception):
    """The server found something wrong with a request."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.param = param


class EndpointChat:
    """One conversation, in a session of the server or sent whole every time. seed: its draws follow from it."""

    def __init__(self, model: EndpointModel, session: str | None, seed: int | None = None) -> None:
        self._model = model
        self._session = session
        self._seed, self._turns = seed, 0
        self._messages: list[Message] = []

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        style = self._model.style
        told = list(new) if self._session else style.sent_whole([*self._messages, *new])
        body: dict[str, Any] = {
            "model": self._model.name,
            "messages": [message_body(said) for said in told],
            "max_tokens": style.max_tokens,
            "temperature": style.temperature,
            "top_p": style.top_p,
        }
        seed = style.seed if self._seed is None else turn_seed(self._seed, self._turns)
        if seed is not None:
            body["seed"] = seed
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
            sent = self._model.taken(body)
            answer = await self._model.request("POST", "/chat/completions", sent)
        except EndpointRefused as error:
            if error.status == 404 and self._session:
                raise ModelUnavailable(f"the session is gone: {error}") from error
            if error.param is not None and error.param in sent and self._model.leaves_out(error.param, error):
                return await self.say(new, schema)
            raise
        if not answer.get("choices"):
            raise ModelUnavailable(f"an answer of {self._model.name} has no choices")
        self._messages += new
        self._turns += 1
        reply = _reply(answer)
        self._messages.append(Message("assistant", reply.text))
        return reply

    async def close(self) -> None:
        if self._session:
            session, self._session = self._session, None
            with suppress(ModelUnavailable, EndpointRefused):
                await self._model.request("DELETE", f"/sessions/{session}")


def message_body(said: Message) -> dict[str, Any]:
    """A message as the API takes it."""
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


def _read(response: httpx.Response) -> dict[str, Any]:
    """The object that was answered; {} where it is none."""
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error(response: httpx.Response) -> dict[str, Any]:
    found = _read(response).get("error")
    return found if isinstance(found, dict) else {}


def _message(response: httpx.Response) -> str:
    if title := re.search(
        r"<title>([^<]{1,100})", response.text[:2000], re.IGNORECASE
    ):  # of a gateway, or no model server
        return f"a web page in the place of JSON, {title[1].strip()!r}"
    return str(_error(response).get("message") or response.text[:300])
