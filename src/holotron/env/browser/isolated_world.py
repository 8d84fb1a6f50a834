"""A place in a page to run scripts that the page can neither see nor tamper with."""

from __future__ import annotations

from typing import Any

from playwright.async_api import CDPSession, Error

NAME = "holotron"
STALE = "Cannot find context"


class IsolatedWorldGone(Exception):
    """The document a script ran in was replaced meanwhile."""


class IsolatedWorld:
    """The isolated world of one frame, reached over a session of the process it lives in."""

    def __init__(self, session: CDPSession, frame_id: str) -> None:
        self.session = session
        self.frame_id = frame_id
        self._context: int | None = None

    def forget(self) -> None:
        """The document changes; the next script goes to the new one."""
        self._context = None

    async def run(self, script: str, *arguments: Any, again: bool = True) -> Any:
        """What a function expression returns. Raises `IsolatedWorldGone` if a navigation came in between.

        again: whether the script may as well run in the document that came after the last one.
        """
        if self._context is not None:
            try:
                return await self._call(self._context, script, arguments)
            except IsolatedWorldGone as gone:
                self._context = None
                # A script that had begun may have done its work.
                if not again or STALE not in str(gone):
                    raise
        elif not again:
            raise IsolatedWorldGone
        return await self._call(await self._enter(), script, arguments)

    async def closed_root(self, script: str, find: list[Any], keep: str) -> bool:
        """Call a function with an element and its closed shadow root; whether it has one.

        The element is what the function returns for `find`; it is called again with the name `keep` and both. No script
        finds such a root by itself; the browser's protocol does.
        """
        context = self._context
        if context is None:
            return False
        host = (await self._ask(context, script, [{"value": value} for value in find])).get("objectId")
        if host is None:
            return False
        try:
            node = (await self.session.send("DOM.describeNode", {"objectId": host}))["node"]
            closed = [root for root in node.get("shadowRoots", ()) if root["shadowRootType"] == "closed"]
            if not closed:
                return False
            where = {"backendNodeId": closed[0]["backendNodeId"], "executionContextId": context}
            root = (await self.session.send("DOM.resolveNode", where))["object"]["objectId"]
        except Error as error:
            raise _gone(error) from error
        await self._ask(context, script, [{"value": keep}, {"objectId": host}, {"objectId": root}])
        return True

    async def _enter(self) -> int:
        try:
            created = await self.session.send("Page.createIsolatedWorld", {"frameId": self.frame_id, "worldName": NAME})
        except Error as error:
            raise _gone(error) from error
        context: int = created["executionContextId"]
        self._context = context
        return context

    async def _call(self, context: int, script: str, arguments: tuple[Any, ...]) -> Any:
        given = [{"value": argument} for argument in arguments]
        return (await self._ask(context, script, given, returnByValue=True, awaitPromise=True)).get("value")

    async def _ask(self, context: int, script: str, arguments: list[dict[str, Any]], **how: bool) -> dict[str, Any]:
        """What a function expression returns, as the protocol has it."""
        call = {"functionDeclaration": script, "executionContextId": context, "arguments": arguments, **how}
        try:
            answer = await self.session.send("Runtime.callFunctionOn", call)
        except Error as error:
            raise _gone(error) from error
        if "exceptionDetails" in answer:
            # The script is ours, so this is about the page, and its text may hold anything.
            raise Error("a script failed in the page")
        return answer["result"]


def _gone(error: Error) -> Exception:
    """Whether an error only says that the document is another one now."""
    signs = ("context", "No frame", "navigated", "Frame with the given id")
    # A closed target also mentions its context; that is for the caller to judge.
    closed = "has been closed" in error.message or "Connection closed" in error.message
    return IsolatedWorldGone(error.message) if not closed and any(sign in error.message for sign in signs) else error
