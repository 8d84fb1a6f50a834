"""Event log with a wake-up signal: what happened in a browser since its agent last looked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from holotron.env.environment import Dialog, Download, Refusal

# A page can open dialogs or send requests without end; an observation cannot hold them all.
MOST_OF_A_KIND = 50


class EventLog:
    """Collects what an observation reports. Text is redacted when it comes in, so nothing secret is ever kept."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._changed = asyncio.Event()
        self._kept: dict[str, dict[Any, None]] = {}
        self.last_refusal: Refusal | None = None

    def wake(self) -> None:
        """End the waits for a change, which look again."""
        self._changed.set()

    async def wait_for(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until the condition holds; False if it does not at that time of the event loop's clock."""
        loop = asyncio.get_running_loop()
        while not condition():
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - loop.time()):
                    await self._changed.wait()
            except TimeoutError:
                return condition()
        return True

    def dialog(self, kind: str, message: str, answer: str) -> None:
        # The same dialog twice is two dialogs, unlike everything else here.
        self._keep("dialogs", (Dialog(kind, self._redact(message)[:1000], self._redact(answer)), object()))

    def download(self, url: str, name: str, path: str) -> None:
        self._keep("downloads", Download(self._redact(url), self._redact(name), path))

    def refusal(self, kind: str, target: str, rule: str) -> None:
        self.last_refusal = Refusal(kind, self._redact(target)[:1000], self._redact(rule))
        self._keep("refusals", self.last_refusal)

    def error(self, text: str) -> None:
        self._keep("errors", self._redact(text)[:1000])

    def notice(self, text: str) -> None:
        self._keep("notices", self._redact(text)[:1000])

    def refusals(self) -> list[Refusal]:
        return list(self._kept.get("refusals", {}))

    def take(self, keep: bool = False) -> dict[str, tuple[Any, ...]]:
        """Everything since the last call, by the observation's fields; with `keep` the next call tells it again."""
        kept = self._kept
        if not keep:
            self._kept = {}
        taken = {name: tuple(kept.get(name, {})) for name in ("downloads", "refusals", "errors")}
        dialogs = tuple(dialog for dialog, _ in kept.get("dialogs", {}))
        words = [_told(dialog, times) for dialog, times in Counter(dialogs).items()]
        words += [f"a download of {d.name!r} was {'saved' if d.path else 'refused'}" for d in taken["downloads"]]
        words += [f"{r.kind} to {r.target} was refused: {r.rule}" for r in taken["refusals"]]
        words += [*taken["errors"], *kept.get("notices", {})]
        return taken | {"dialogs": dialogs, "notices": tuple(words)}

    def _keep(self, kind: str, item: Any) -> None:
        kept = self._kept.setdefault(kind, {})
        if len(kept) < MOST_OF_A_KIND:
            kept[item] = None
        self.wake()


def _told(dialog: Dialog, times: int) -> str:
    """A dialog in words, that came so many times."""
    article = "an" if dialog.kind == "alert" else "a"
    again = f" ({times} times)" if times > 1 else ""
    return f"{article} {dialog.kind} said {dialog.message!r} and was answered with {dialog.answer!r}{again}"
