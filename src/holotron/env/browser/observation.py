"""What an agent sees of a browser, and what happened in it since it last looked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tab:
    """One open tab."""

    index: int
    url: str
    title: str
    current: bool


@dataclass(frozen=True)
class Dialog:
    """An alert, confirm, prompt or beforeunload that was answered for the agent."""

    kind: str
    message: str
    answer: str


@dataclass(frozen=True)
class Download:
    """A file that a page offered; `path` is empty where downloads are refused."""

    url: str
    name: str
    path: str


@dataclass(frozen=True)
class Refusal:
    """Something the safety policy stopped: what kind of thing, where it wanted to go, and the rule."""

    kind: str
    target: str
    rule: str


@dataclass(frozen=True)
class BrowserObservation:
    """The current tab's viewport as a PNG, and what happened since the observation before.

    errors: navigations that failed, pages that crashed or hung. notices: what else was done for the agent, such as a
    file chooser dismissed. settled: False when the page was still busy at the end of the wait.
    """

    screenshot: bytes
    width: int
    height: int
    url: str
    title: str
    tabs: tuple[Tab, ...]
    dialogs: tuple[Dialog, ...]
    downloads: tuple[Download, ...]
    refusals: tuple[Refusal, ...]
    errors: tuple[str, ...]
    notices: tuple[str, ...]
    load_state: str
    settled: bool
