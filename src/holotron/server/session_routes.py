"""The sessions API: open, take turns, fork, roll back, look at, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holotron.engine.info import SessionInfo
from holotron.server.answer import respond
from holotron.server.auth import Caller
from holotron.server.bodies import BodyRoute
from holotron.server.chat import begin_chat
from holotron.server.errors import field_error
from holotron.server.response_models import ERRORS, ChatCompletion, Deleted, SessionAnswer, SessionList
from holotron.server.schemas import ChatRequest, ForkRequest, OpenRequest, RollbackRequest
from holotron.server.sessions import OpenSession
from holotron.server.state import CallerDep, ServerState, StateDep

router = APIRouter(prefix="/v1/sessions", responses=ERRORS, route_class=BodyRoute)


async def _own(session_id: str, state: StateDep, caller: CallerDep) -> OpenSession:
    return state.sessions.find(session_id, caller)


SessionDep = Annotated[OpenSession, Depends(_own)]


async def _idle(session: SessionDep) -> OpenSession:
    await session.rest()
    return session


IdleSessionDep = Annotated[OpenSession, Depends(_idle)]


def _told(session: OpenSession, info: SessionInfo | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": session.id,
        "object": "session",
        "adapter": session.adapter,
        "created": int(session.created),
        "ttl": session.ttl,
        "expires_in": round(session.expires_in, 3),
        "busy": session.busy,
    }
    if info is not None:
        told |= {key: getattr(info, key) for key in ("tokens", "computed", "device_bytes", "running")}
        told |= {"residency": info.residency.value, "weight_epoch": info.epoch, "turns": list(map(asdict, info.turns))}
    return told


async def _described(state: ServerState, session: OpenSession) -> dict[str, Any]:
    info = await state.client.call("describe", session.id)
    return _told(session, info) | {"policy_format": state.policy_format}


@router.post("", response_model=SessionAnswer)
async def open_session(state: StateDep, caller: CallerDep, body: OpenRequest | None = None) -> Any:
    """Open an empty session. It is closed when it was not used for `ttl` seconds."""
    session = await open_for(state, caller, body or OpenRequest())
    return _told(session) | {"policy_format": state.policy_format}


@router.get("", response_model=SessionList)
async def list_sessions(state: StateDep, caller: CallerDep) -> Any:
    """The caller's own sessions."""
    return {"object": "list", "data": [_told(session) for session in state.sessions.owned_by(caller)]}


@router.get("/{session_id}", response_model=SessionAnswer)
async def inspect_session(state: StateDep, session: SessionDep) -> Any:
    """Its tokens and turns, its bytes on the device, and where its memory is: gpu, host, disk or none."""
    return await _described(state, session)


@router.delete("/{session_id}", response_model=Deleted)
async def delete_session(state: StateDep, session: SessionDep) -> Any:
    """Forget a session; a turn that runs in it is cancelled."""
    await close(state, session)
    return {"id": session.id, "deleted": True}


@router.post("/{session_id}/turns", responses={200: {"model": ChatCompletion}}, response_model=None)
async def take_turn(session_id: str, http: Request, state: StateDep, caller: CallerDep, body: ChatRequest) -> Response:
    """A chat completion in this session: the messages are only the new ones."""
    if body.session_id not in (None, session_id):
        raise field_error("session_id", "the path names another session")
    return await respond(http, begin_chat(state, body.model_copy(update={"session_id": session_id}), caller))


@router.post("/{session_id}/fork", response_model=SessionList)
async def fork_session(
    state: StateDep, caller: CallerDep, session: IdleSessionDep, body: ForkRequest | None = None
) -> Any:
    """So many sessions that go on from here. What they have in common is computed and kept once."""
    count = (body or ForkRequest()).n
    state.sessions.check_room(caller, count)
    with session.working():
        forks = [session.fork(id_) for id_ in await state.client.call("fork", session.id, count)]
        for fork in forks:
            state.sessions.add(fork)
    return {"object": "list", "data": [_told(fork) for fork in forks]}


@router.post("/{session_id}/rollback", response_model=SessionAnswer)
async def roll_back(state: StateDep, session: IdleSessionDep, body: RollbackRequest | None = None) -> Any:
    """Forget turns from the end; with `keep_prompt` the last question stays, to be answered anew."""
    body = body or RollbackRequest()
    with session.working():
        turns = session.turns
        if not -turns <= body.turn < turns:
            raise field_error("turn", f"there is no turn {body.turn}; the session has {turns}")
        await state.client.call("rollback", session.id, body.turn, keep_prompt=body.keep_prompt)
        session.rolled_back(body.turn, body.keep_prompt)
        info: SessionInfo = await state.client.call("describe", session.id)
        session.tokens = info.tokens
    return _told(session, info)


@router.post("/{session_id}/park", response_model=SessionAnswer)
async def park_session(state: StateDep, session: IdleSessionDep) -> Any:
    """Send its memory off the device now; the next turn brings it back."""
    with session.working():
        await state.client.call("park", session.id)
        return await _described(state, session)


@router.post("/{session_id}/resume", response_model=SessionAnswer)
async def resume_session(state: StateDep, session: IdleSessionDep) -> Any:
    """Bring its memory back ahead of its next turn."""
    with session.working():
        await state.client.call("resume", session.id)
        return await _described(state, session)


async def close(state: ServerState, session: OpenSession) -> None:
    """Forget a session here and in the engine."""
    state.sessions.remove(session.id)
    await state.client.call("close", session.id)


async def open_for(state: ServerState, caller: Caller, wanted: OpenRequest) -> OpenSession:
    """An empty session."""
    state.sessions.check_room(caller)
    adapter = state.check_model(wanted.model)
    id_ = await state.client.call("open", on_update=wanted.on_update, keep_images=wanted.keep_images, adapter=adapter)
    ttl = wanted.ttl or state.settings.session_seconds
    session = OpenSession(id_, caller.name, ttl, state.texts.prompts.start(), adapter)
    state.sessions.add(session)
    return session


async def take_back(state: ServerState, caller: Caller, session: OpenSession, turns: int) -> OpenSession:
    """A session as this one was after its first so many turns."""
    await session.rest()
    state.sessions.check_room(caller)
    with session.working():
        fork = session.fork(await state.client.call("fork_after", session.id, turns))
    fork.rolled_back(turns, False)
    state.sessions.add(fork)
    return fork
