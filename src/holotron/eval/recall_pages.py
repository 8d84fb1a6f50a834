"""The pages of a memory test: one that shows a code, many that do not matter, and one that asks for the code.

All is drawn from a seed, so that a trial is the same on every machine that has the same fonts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import TracebackType
from typing import Literal, Self, get_args


def _words(text: str) -> list[str]:
    return text.split()


Condition = Literal["remembered", "visible", "absent"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
SHOWN_AT = 3
TITLES = _words(
    "copper northern silent harvest marble coastal velvet winter amber hollow crimson distant granite lunar meadow "
    "orchard painted quiet rustic saffron timber upland violet western"
)
THINGS = _words("archive depot ledger workshop register garage kitchen library office studio terminal vault")
WORDS = _words(
    "anchor basil canyon dolphin ember falcon ginger harbor island jasmine kettle lantern magnet nectar olive pepper "
    "quartz ribbon saddle tunnel umbrella valley walnut yonder zephyr bamboo castle drizzle engine fossil goblet hazel "
    "ivory jungle koala lemon mosaic needle oyster puzzle"
)
NAMES = _words("Ada Boris Chen Dora Emil Farah Goran Hana Ines Jonas Kira Luis Mara Nils Olga Pavel")
GOODS = _words("bolts cables crates drills filters gloves hinges lamps pumps ropes screws valves")
SENTENCES = (
    "The delivery of {a} {goods} was moved to the {b}th because the road was closed.",
    "{name} counted {a} {goods} in hall {b} and found {c} missing.",
    "Since spring the price of {goods} has risen from {a} to {c} per case.",
    "Room {c} is locked; {name} has the key until the {b}th.",
    "A survey of {a} visitors says that {b} of a hundred would come again.",
    "Order {c} was returned by {name}, who had asked for {goods}.",
)
STYLE = """<style>* { box-sizing: border-box } body { margin: 0; font: 16px/1.5 sans-serif; color: #222 }
header { padding: 14px 24px; color: #fff } h1 { margin: 0; font-size: 26px } main { padding: 18px 24px }
table { border-collapse: collapse; width: 100% } td, th { border: 1px solid #bbb; padding: 5px 9px; text-align: left }
.cards { display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px }
.card { border: 1px solid #bbb; padding: 12px }
.code { font: bold 30px monospace; border: 3px solid #333; display: inline-block; padding: 8px 18px; margin: 10px 0 }
label { display: block; margin: 9px 0 } input, select { font-size: 16px; padding: 4px; margin-left: 10px }
button { font-size: 16px; padding: 7px 20px } p { margin: 0 0 11px }</style>"""
COLOURS = ("#234e70", "#6b2737", "#2f5d3a", "#5b3f8c", "#7a5c1e", "#36454f")


@dataclass(frozen=True)
class RecallPage:
    """One page: its title, the code on it if there is one, and its HTML."""

    title: str
    code: str | None
    html: str


@dataclass(frozen=True)
class RecallTrial:
    """The pages in order. The last asks for the code of the page with that title; `others` are codes of other pages."""

    condition: Condition
    asked_at: int
    number: int
    title: str
    code: str
    others: tuple[str, ...]
    pages: tuple[RecallPage, ...]

    @property
    def key(self) -> str:
        return f"{self.condition}/{self.asked_at}/{self.number}"


def make_trial(condition: Condition, asked_at: int, number: int, seed: int) -> RecallTrial:
    """A trial. Under another condition the same one differs in one page: the first control repeats the code on the page
    that asks, the second never shows it.
    """
    most = len(TITLES) * len(THINGS)
    if not SHOWN_AT < asked_at <= most:
        raise ValueError(f"a code shown at step {SHOWN_AT} cannot be asked for at step {asked_at}; 4 to {most} can")
    random = Random(f"{seed}/{asked_at}/{number}")
    titles = random.sample([f"{first.capitalize()} {thing}" for first in TITLES for thing in THINGS], asked_at)
    digits = random.sample(range(1000, 10000), asked_at)
    codes = [f"{number} {random.choice(WORDS)}" for number in digits]
    shown = SHOWN_AT - 1
    fillers = _fillers(random)
    pages = [
        (_record if index == shown else next(fillers))(random, titles[index], codes[index])
        for index in range(asked_at - 1)
    ]
    title, code = titles[shown], codes[shown]
    others = tuple(page.code for page in pages if page.code not in (None, code))
    if condition == "absent":
        html = pages[shown].html.replace(code, "withdrawn")
        pages[shown] = RecallPage(title, None, html)
    pages.append(_question(random, title, code if condition == "visible" else None))
    return RecallTrial(condition, asked_at, number, title, code, tuple(filter(None, others)), tuple(pages))


# ---- kinds of pages ----

Draw = Callable[[Random, str, str], RecallPage]  # from a title and a code, which most kinds do not show


def _page(random: Random, title: str, body: str, code: str | None = None) -> RecallPage:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{STYLE}'
    bar = f'<header style="background: {random.choice(COLOURS)}"><h1>{title}</h1></header>'
    return RecallPage(title, code, f"{head}{bar}<main>{body}</main></html>")


def _record(random: Random, title: str, code: str) -> RecallPage:
    facts = "".join(
        f"<tr><th>{name}</th><td>{value}</td></tr>"
        for name, value in (
            ("Keeper", random.choice(NAMES)),
            ("Shelf", random.randint(100, 999)),
            ("Opened", f"{random.randint(1, 28)} May {random.randint(1990, 2024)}"),
        )
    )
    return _page(
        random, title, f'<p>The code of this page is</p><div class="code">{code}</div><table>{facts}</table>', code
    )


def _table(random: Random, title: str, _: str) -> RecallPage:
    rows = "".join(
        f"<tr><td>{random.choice(NAMES)}</td><td>{random.choice(GOODS)}</td><td>{random.randint(1, 99)}</td>"
        f"<td>{random.randint(1000, 9999)}</td></tr>"
        for _ in range(random.randint(6, 10))
    )
    return _page(random, title, f"<table><tr><th>Name<th>Goods<th>Count<th>Number</tr>{rows}</table>")


def _article(random: Random, title: str, _: str) -> RecallPage:
    return _page(random, title, "".join(f"<p>{_sentence(random)} {_sentence(random)}</p>" for _ in range(5)))


def _cards(random: Random, title: str, _: str) -> RecallPage:
    cards = "".join(
        f'<div class="card"><b>{random.choice(WORDS)}</b><br>{random.choice(GOODS)}'
        f"<br>{random.randint(1000, 9999)}</div>"
        for _ in range(6)
    )
    return _page(random, title, f'<div class="cards">{cards}</div>')


def _form(random: Random, title: str, _: str) -> RecallPage:
    options = "".join(f"<option>{name}</option>" for name in random.sample(GOODS, 4))
    fields = "".join(
        f'<label>{name} <input value="{value}"></label>'
        for name, value in (
            ("Name", random.choice(NAMES)),
            ("Customer number", random.randint(1000, 9999)),
            ("Amount", random.randint(1, 500)),
        )
    )
    return _page(random, title, f"{fields}<label>Goods <select>{options}</select></label><button>Save</button>")


def _question(random: Random, title: str, code: str | None) -> RecallPage:
    shown = "" if code is None else f'<p>The code of the page titled “{title}” is</p><div class="code">{code}</div>'
    asked = f"<p><b>Which code was shown on the page titled “{title}”?</b></p><label>Code <input></label>"
    return _page(random, "Question", f"{shown}{asked}<button>Send</button>", code)


def _sentence(random: Random) -> str:
    return random.choice(SENTENCES).format(
        name=random.choice(NAMES),
        goods=random.choice(GOODS),
        a=random.randint(20, 900),
        b=random.randint(4, 20),
        c=random.randint(1000, 9999),
    )


def _fillers(random: Random) -> Iterator[Draw]:
    """Kinds of pages that do not matter, without end. One in five has a code too, the first one early on."""
    while True:
        kinds: list[Draw] = random.sample([_table, _article, _cards, _form], 4)
        kinds.insert(random.randint(0, 1), _record)
        yield from kinds


# ---- serving them ----


class PageServer:
    """Serves pages on loopback, each at the path it was put under, while the `with` block lasts."""

    def __init__(self) -> None:
        self._pages: dict[str, bytes] = {}
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self._pages))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def put(self, path: str, html: str) -> str:
        """Serve a page and return its address."""
        self._pages[path] = html.encode()
        return self.origin + path

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # browsers leave when they like


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, pages: dict[str, bytes], *rest: object) -> None:
        self._pages = pages
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        page = self._pages.get(self.path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page or b"")))
        self.end_headers()
        self.wfile.write(page or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass
