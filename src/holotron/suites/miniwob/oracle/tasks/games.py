"""Tasks that answer back: a game, a market, a terminal, numbers to try, a hidden spot."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from holotron.actions.action import Action, Wait
from holotron.suites.miniwob.oracle.acts import QUERY_HEIGHT, click, click_on, double_click, hover, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
ORDER = (4, 0, 2, 6, 8, 1, 3, 5, 7)  # middle, corners, edges: which of equally good squares is taken
ME, OTHER = 1, -1
OTHERS_LUCK = 0.55  # how often the opponent takes any square; otherwise it wins or blocks where it can
BETWEEN_LOOKS = 1.0  # seconds: ten looks then last as long as the prices do
Board = tuple[int, ...]

SIGNALS = ("HOT", "WARM", "COLD", "ICE COLD")
LIMITS = (5, 10, 40)  # pixels from the spot at which one signal gives way to the next
# The page shows only its last signal; earlier ones are noted from the first question on.
RECORD = """(() => {
  if (window.signals === undefined) {
    window.signals = [];
    window.addEventListener('mousemove', event => {
      const signal = document.querySelector('#signal');
      if (signal) window.signals.push([event.pageX, event.pageY, signal.textContent]);
    });
  }
  return window.signals;
})()"""
Seen = tuple[tuple[int, int, str], ...]


@teaches("tic-tac-toe")
async def play_tic_tac_toe(page: PageInspector) -> Action | None:
    board: Board = tuple(await page.read("gameState"))
    free = [square for square in ORDER if board[square] == 0]
    if not free:
        return None
    best = max(free, key=lambda square: round(_after_mine(_put(board, square, ME)), 9))
    return await click_on(page, f"#ttt-{best}")


@cache
def _chance(board: Board) -> float:
    """How probably this board, with me to move, is won."""
    return max(_after_mine(_put(board, square, ME)) for square in _free(board))


@cache
def _after_mine(board: Board) -> float:
    if _won(board, ME):
        return 1.0
    free = _free(board)
    if not free:
        return 0.0
    anywhere = sum(_after_other(_put(board, square, OTHER)) for square in free) / len(free)
    forced = _completes(board, OTHER) or _completes(board, ME)
    clever = sum(_after_other(_put(board, square, OTHER)) for square in forced) / len(forced) if forced else anywhere
    return OTHERS_LUCK * anywhere + (1 - OTHERS_LUCK) * clever


def _after_other(board: Board) -> float:
    return 0.0 if _won(board, OTHER) or not _free(board) else _chance(board)


def _put(board: Board, square: int, mark: int) -> Board:
    return (*board[:square], mark, *board[square + 1 :])


def _free(board: Board) -> list[int]:
    return [square for square in range(9) if board[square] == 0]


def _won(board: Board, mark: int) -> bool:
    return any(all(board[square] == mark for square in line) for line in LINES)


def _completes(board: Board, mark: int) -> list[int]:
    return [square for square in _free(board) if _won(_put(board, square, mark), mark)]


@teaches("stock-market")
async def buy_low(page: PageInspector) -> Action | None:
    limit = float(page.said(r"less than \$([\d.]+\d)")[1])
    shown = (await page.one("#stock-price")).text.removeprefix("$")
    if shown.startswith("undefined"):
        return None
    if shown and float(shown) <= limit:
        return await click_on(page, "#buy")
    return Wait(seconds=BETWEEN_LOOKS)


@teaches("terminal")
async def remove_file(page: PageInspector) -> Action | None:
    screen = await page.one("#terminal-contents")
    (junk,) = await page.texts("#active-input")
    files: list[str] = await page.read("currentFiles")
    listed = any(line.text == " ".join(files) for line in await page.all(".terminal-output .output"))
    # A wrong line is sent off: the terminal only complains. A removal must not be what it holds.
    if junk:
        return write(screen, "x", enter=True)
    if not listed:
        return write(screen, "ls", enter=True)
    wanted = [name for name in files if _fits(name, page.utterance)]
    return write(screen, f"rm {wanted[0]}", enter=True) if wanted else None


def _fits(name: str, said: str) -> bool:
    if "no file extension" in said:
        return "." not in name
    extension = said.split("extension .")[1].strip()
    # The task takes the first place where the letters occur for the extension, so shark.sh does not count.
    return name.endswith(f".{extension}") and name.index(extension) + len(extension) == len(name)


@teaches("find-greatest")
async def find_greatest(page: PageInspector) -> Action | None:
    """Turn the cards over one by one, then pick the greatest by a double click.

    A card that is turned over hides the one before. That the double click leaves a card's number marked tells the card
    that was picked from one that was only looked at.
    """
    cards, numbers = await page.all(".card"), await page.texts(".card")
    greatest = max(range(len(cards)), key=lambda index: int(numbers[index]))
    opened = [index for index, card in enumerate(cards) if "hidden" not in card.attributes["class"]]
    last = len(cards) - 1
    picked = await page.read("getSelection().type === 'Range'")
    if opened == [greatest] and (picked or greatest == last):
        return await click_on(page, "#submit")
    if opened == [last]:
        return double_click(cards[greatest])
    return click(cards[opened[0] + 1 if opened else 0])


@teaches("generate-number")
async def generate_number(page: PageInspector) -> Action | None:
    shown = (await page.one("#display-number")).text
    return await click_on(page, "#submit" if shown.isdigit() and _is_wanted(page, int(shown)) else "#generate")


def _is_wanted(page: PageInspector, number: int) -> bool:
    if "odd" in page.utterance or "even" in page.utterance:
        return number % 2 == ("odd" in page.utterance)
    kind, bound = page.said(r"(less|greater) than (\d+)").groups()
    return number < int(bound) if kind == "less" else number > int(bound)


@teaches("guess-number")
async def guess_number(page: PageInspector) -> Action | None:
    guess = 4
    for direction in ("higher", "lower"):
        said = await page.one(f"#{direction}")
        if said.height > 0:
            guess = _next_guess(int((await page.one(f"#{direction} span")).text), direction == "higher")
    field = await page.one("#tt")
    # The right half of the field is two arrows.
    return write((field.left + field.width / 4, field.center[1]), str(guess), clear=bool(field.value), enter=True)


def _next_guess(last: int, higher: bool) -> int:
    """Halving: each number stands at one place in the tree of guesses, so the last one tells which came before."""
    low, high = 0, 9
    if not low <= last <= high:
        return (low + high) // 2
    while (middle := (low + high) // 2) != last:
        low, high = (middle + 1, high) if last > middle else (low, middle - 1)
    low, high = (last + 1, high) if higher else (low, last - 1)
    return (low + high) // 2 if low <= high else last + 1 if higher else last - 1


@teaches("hot-cold")
async def find_hot_spot(page: PageInspector) -> Action:
    seen: Seen = tuple((int(x), int(y), str(signal)) for x, y, signal in await page.read(RECORD))
    for x, y, signal in seen:
        if signal == "HOT":
            return click((x, y))
    x, y = _next_probe(seen)
    return hover((x, y + QUERY_HEIGHT))


@cache
def _probes() -> NDArray[np.float64]:
    return np.array([(x, y) for y in range(8, 120, 6) for x in range(8, 152, 6)], dtype=np.float64)


@cache
def _spots() -> NDArray[np.float64]:
    return np.array([(x, y) for y in range(5, 120) for x in range(5, 155)], dtype=np.float64)


@cache
def _answers() -> NDArray[np.int8]:
    """What each probe would be told for each spot, as an index of SIGNALS."""
    return np.stack([_told(probe[0], probe[1]) for probe in _probes()])


def _told(x: float, y: float) -> NDArray[np.int8]:
    away = np.hypot(_spots()[:, 0] - x, _spots()[:, 1] - y)
    return np.digitize(away, LIMITS).astype(np.int8)


@cache
def _next_probe(seen: Seen) -> tuple[int, int]:
    """Where the answer tells most about the spot, given all that was seen; the middle of what is left, if little is."""
    possible = np.ones(len(_spots()), dtype=bool)
    for x, y, signal in seen:
        possible &= _told(x, y - QUERY_HEIGHT) == SIGNALS.index(signal)
    if not possible.any():
        return 80, 60
    left = _spots()[possible]
    middle = np.round(left.mean(axis=0))
    if (np.hypot(*(left - middle).T) < LIMITS[0]).all():
        return int(middle[0]), int(middle[1])
    answers = _answers()[:, possible]
    shares = np.stack([(answers == index).mean(axis=1) for index in range(len(SIGNALS))], axis=1)
    told = -(shares * np.log2(np.maximum(shares, 1e-12))).sum(axis=1)
    best = _probes()[int(told.argmax())]
    return int(best[0]), int(best[1])
