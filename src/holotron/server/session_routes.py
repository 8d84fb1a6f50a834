"""The sessions API: open, take turns, fork, roll back, look at, delete."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holotron.server import messages as m
from holotron.server.answers import ERRORS, ChatCompletion, Deleted, SessionAnswer, SessionList
from holotron.server.auth import Caller
from holotron.server.chat import answer_chat
from holotron.server.errors import ApiError
from holotron.server.schemas import ChatRequest, ForkRequest, OpenRequest, RollbackRequest
from holotron.server.sessions import OpenSession
from holotron.server.state import State, caller_of, state_of

router = APIRouter(prefix="/v1/sessions", responses=ERRORS)


def _told(session: OpenSession, details: dict[str, Any] | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": session.id,
        "object": "session",
        "created": int(session.created),
        "ttl": session.ttl,
        "expires_in": round(session.expires_in, 3),
        "busy": session.busy,
    }
    if details is not None:
        told |= {key: details[key] for key in ("tokens", "computed", "device_bytes", "residency", "running")}
        told["weight_epoch"] = details["epoch"]
        told["turns"] = list(details["turns"])
    return told


@router.post("", response_model=SessionAnswer)
async def open_session(http: Request, body: OpenRequest | None = None, caller: Caller = Depends(caller_of)) -> Any:
    """Open an empty session. It is closed when nobody has used it for `ttl` seconds."""
    state = state_of(http)
    body = body or OpenRequest()
    state.sessions.check_room(caller)
    id_ = await state.client.call(lambda number: m.Open(number, body.on_update, body.keep_images))
    session = OpenSession(id_, caller.name, body.ttl or state.settings.session_seconds, state.texts.prompts.start())
    state.sessions.add(session)
    return _told(session)


@router.get("", response_model=SessionList)
async def list_sessions(http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """The caller's own sessions."""
    return {"object": "list", "data": [_told(session) for session in state_of(http).sessions.owned_by(caller)]}


@router.get("/{session_id}", response_model=SessionAnswer)
async def inspect_session(session_id: str, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """Its tokens and turns, its bytes on the device, and where its memory is: gpu, host, disk or none."""
    state = state_of(http)
    session = state.sessions.find(session_id, caller)
    return _told(session, await state.client.call(lambda number: m.Inspect(number, session.id)))


@router.delete("/{session_id}", response_model=Deleted)
async def delete_session(session_id: str, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """Forget a session; a turn that runs in it is cancelled."""
    state = state_of(http)
    session = state.sessions.find(session_id, caller)
    await close(state, session)
    return {"id": session.id, "deleted": True}


@router.post("/{session_id}/turns", responses={200: {"model": ChatCompletion}}, response_model=None)
async def take_turn(session_id: str, body: ChatRequest, http: Request, caller: Caller = Depends(caller_of)) -> Response:
    """A chat completion in this session: the messages are only the new ones."""
    if body.session_id not in (None, session_id):
        raise ApiError(400, "session_id: the path names another session", param="session_id")
    return await answer_chat(http, body.model_copy(update={"session_id": session_id}), caller)


@router.post("/{session_id}/fork", response_model=SessionList)
async def fork_session(
    session_id: str, http: Request, body: ForkRequest | None = None, caller: Caller = Depends(caller_of)
) -> Any:
    """So many sessions that go on from here. What they have in common is computed and kept once."""
    state = state_of(http)
    count = (body or ForkRequest()).n
    session = state.sessions.find(session_id, caller)
    state.sessions.check_room(caller, count)
    await session.rest()
    with session.working():
        ids = await state.client.call(lambda number: m.Fork(number, session.id, count))
        forks = [session.fork(id_) for id_ in ids]
        for fork in forks:
            state.sessions.add(fork)
    return {"object": "list", "data": [_told(fork) for fork in forks]}


@router.post("/{session_id}/rollback", response_model=SessionAnswer)
async def roll_back(
    session_id: str, http: Request, body: RollbackRequest | None = None, caller: Caller = Depends(caller_of)
) -> Any:
    """Forget turns from the end; with `keep_prompt` the last question stays, to be answered anew."""
    state = state_of(http)
    body = body or RollbackRequest()
    session = state.sessions.find(session_id, caller)
    await session.rest()
    with session.working():
        turns = session.turns
        if not -turns <= body.turn < turns:
            raise ApiError(400, f"turn: there is no turn {body.turn}; the session has {turns}", param="turn")
        await state.client.call(lambda number: m.Rollback(number, session.id, body.turn, body.keep_prompt))
        session.rolled_back(body.turn, body.keep_prompt)
        details = await state.client.call(lambda number: m.Inspect(number, session.id))
        session.tokens = details["tokens"]
    return _told(session, details)


@router.post("/{session_id}/park", response_model=SessionAnswer)
async def park_session(session_id: str, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """Send its memory off the device now; the next turn brings it back."""
    return await _move(state_of(http), session_id, caller, m.Park)


@router.post("/{session_id}/resume", response_model=SessionAnswer)
async def resume_session(session_id: str, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """Bring its memory back ahead of its next turn."""
    return await _move(state_of(http), session_id, caller, m.Bring)


async def _move(state: State, session_id: str, caller: Caller, message: type[m.Park] | type[m.Bring]) -> Any:
    session = state.sessions.find(session_id, caller)
    await session.rest()
    with session.working():
        await state.client.call(lambda number: message(number, session.id))
        return _told(session, await state.client.call(lambda number: m.Inspect(number, session.id)))


async def close(state: State, session: OpenSession) -> None:
    """Forget a session here and in the engine."""
    state.sessions.remove(session.id)
    await state.client.call(lambda number: m.Close(number, session.id))
