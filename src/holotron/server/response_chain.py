"""Where a response goes on: in a session, or in a new one where the instructions or tools are others than before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from holotron.server.auth import Caller
from holotron.server.errors import ApiError, field_error
from holotron.server.response_schemas import InputItem, InputReference, ResponsesRequest
from holotron.server.schemas import OpenRequest
from holotron.server.session_routes import close, open_for, take_back
from holotron.server.sessions import OpenSession
from holotron.server.state import ServerState
from holotron.server.stored_responses import StoredResponse


@dataclass(frozen=True)
class Before:
    """What a response goes on from: so many turns of a session, or earlier items that are written anew."""

    session: OpenSession | None = None
    turns: int = 0
    earlier: Sequence[InputItem] | None = ()  # None: the session has them


async def read(state: ServerState, body: ResponsesRequest, caller: Caller) -> tuple[ResponsesRequest, Before]:
    """A request with the items that it refers to written out, and what it goes on from."""
    before = Before()
    chain: Sequence[StoredResponse] = ()  # to be written anew
    if (id_ := body.previous_response_id) is not None:
        if body.session_id is not None:
            raise field_error("session_id", "previous_response_id names the session already")
        session, turns = find(state, id_, caller, "previous_response_id")
        is_same_model = body.model is None or state.check_model(body.model) == session.adapter
        if is_same_model and body.head == session.head:
            before = Before(session, turns, None)
        else:
            chain = _whole_chain(state, id_)
            body = body.model_copy(update={"model": body.model or session.adapter})
    given = list(body.items)
    referred = {
        number: _response_of(state, item.id, caller, f"input.{number}", id_)
        for number, item in enumerate(given)
        if isinstance(item, InputReference)
    }
    if needed := {kept.id: kept for kept in (*chain, *referred.values())}:
        items = await state.off_loop(lambda: {kept.id: kept.by_id for kept in needed.values()})
        for number, kept in referred.items():
            item_id = given[number].id or ""
            if item_id not in items[kept.id]:
                raise _no_item(item_id, f"input.{number}")
            given[number] = items[kept.id][item_id]
        if referred:
            body = body.model_copy(update={"input": given})
        if chain:
            before = Before(earlier=[item for kept in chain for item in items[kept.id].values()])
    return body, before


def _whole_chain(state: ServerState, id_: str) -> Sequence[StoredResponse]:
    if (chain := state.responses.chain(id_)) is None:
        message = "not all of this chain is stored any more, so it cannot be written with other instructions, tools or "
        message = f"previous_response_id: {message}another model; keep those that it has, or begin another chain"
        raise ApiError(400, message, param="previous_response_id", code="previous_response_not_found")
    return chain


def _response_of(state: ServerState, item: str, caller: Caller, field: str, previous: str | None) -> StoredResponse:
    """The response whose id an item's has in it."""
    id_ = f"resp_{item.partition('_')[2].rpartition('_')[0]}"
    before = state.responses.get(previous or "")
    if id_ == previous or (before is not None and id_ in before.earlier):
        raise field_error(field, f"the item {item!r} is there already, by previous_response_id; leave it out")
    with suppress(ApiError):
        find(state, id_, caller, field)
        if (kept := state.responses.get(id_)) is not None:
            return kept
    raise _no_item(item, field)


def _no_item(id_: str, field: str) -> ApiError:
    message = f"there is no item {id_[:128]!r}: its response was deleted, has expired, or was not stored"
    return ApiError(404, f"{field}: {message}", param=field, code="item_not_found")


async def session_for(
    state: ServerState, body: ResponsesRequest, caller: Caller, before: Before
) -> tuple[OpenSession | None, bool]:
    """The session that a response goes on in, and whether it was opened for it."""
    if before.session is None:
        if body.store is False or body.session_id is not None:
            return None, False
        if (oldest := state.sessions.oldest_response(caller)) is not None:
            await close(state, oldest)  # what nobody asked to keep makes room
        session = await open_for(state, caller, OpenRequest(model=body.model))
        session.is_response, session.head = True, body.head
        return session, True
    if before.turns == before.session.turns:
        return before.session, False
    branch = await take_back(state, caller, before.session, before.turns)
    branch.not_responses = set(range(1, before.turns + 1))
    return branch, True


async def held_before(state: ServerState, before: Before) -> tuple[int, OpenSession | None]:
    """How many tokens a session holds of what was said before, and the session as it was then."""
    if before.session is None:
        return 0, None
    await before.session.rest()
    turns = (await state.client.call("describe", before.session.id)).turns
    past = before.session.fork(before.session.id)
    if before.turns < past.turns:
        past.rolled_back(before.turns, False)
    return turns[before.turns - 1].end, past


def find(state: ServerState, id_: str, caller: Caller, field: str) -> tuple[OpenSession, int]:
    """The session of a stored response, and the number of turns that it had with it."""
    session_id, _, turns = id_.removeprefix("resp_").rpartition("_")
    try:
        session, count = state.sessions.find(session_id, caller), int(turns)
    except (ApiError, ValueError):
        raise _not_found(id_, field) from None
    if not session.is_response or not 0 < count <= session.turns or count in session.not_responses:
        raise _not_found(id_, field)
    return session, count


def stored(state: ServerState, id_: str, caller: Caller) -> StoredResponse:
    """What is kept of a response."""
    find(state, id_, caller, "response_id")
    if (kept := state.responses.get(id_)) is None:
        raise _not_found(id_, "response_id")
    return kept


def _not_found(id_: str, field: str) -> ApiError:
    message = f"{field}: there is no response {id_[:128]!r}: it was deleted, has expired, or was not stored"
    if field == "previous_response_id":  # as OpenAI's service answers: clients look for it, and begin anew
        return ApiError(400, message, param=field, code="previous_response_not_found")
    return ApiError(404, message, param=field, code="response_not_found")
