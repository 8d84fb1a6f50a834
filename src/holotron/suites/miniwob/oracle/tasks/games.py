"""Tasks that answer back: a game, a market, a search."""

from __future__ import annotations

import random
from functools import cache

from holotron.actions.action import Action, Wait
from holotron.suites.miniwob.oracle.acts import click, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
ORDER = (4, 0, 2, 6, 8, 1, 3, 5, 7)  # middle, corners, edges: which of equally good squares is taken
ME, OTHER = 1, -1
OTHERS_LUCK = 0.55  # how often the opponent takes any square; otherwise it wins or blocks where it can
BETWEEN_LOOKS = 1.0  # seconds: ten looks then last as long as the prices do

Board = tuple[int, ...]


@teaches("tic-tac-toe")
async def play_tic_tac_toe(eyes: PageInspector, chance: random.Random) -> Action | None:
    board: Board = tuple(await eyes.read("gameState"))
    free = [square for square in ORDER if board[square] == 0]
    if not free:
        return None
    best = max(free, key=lambda square: round(_after_mine(_put(board, square, ME)), 9))
    return click(await eyes.one(f"#ttt-{best}"))


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
async def buy_low(eyes: PageInspector, chance: random.Random) -> Action | None:
    limit = float(eyes.said(r"less than \$([\d.]+\d)")[1])
    shown = (await eyes.one("#stock-price")).text.removeprefix("$")
    if shown.startswith("undefined"):
        return None
    if shown and float(shown) <= limit:
        return click(await eyes.one("#buy"))
    return Wait(seconds=BETWEEN_LOOKS)


@teaches("terminal")
async def remove_file(eyes: PageInspector, chance: random.Random) -> Action | None:
    screen = await eyes.one("#terminal-contents")
    junk: str = await eyes.read("document.querySelector('#active-input').textContent")
    files: list[str] = await eyes.read("currentFiles")
    listed = any(line.text == " ".join(files) for line in await eyes.all(".terminal-output .output"))
    # A wrong line is sent off: the terminal only complains. A removal must not be what it holds.
    if junk:
        return write(screen, "x", enter=True)
    if not listed:
        return write(screen, "ls", enter=True)
    wanted = [name for name in files if _fits(name, eyes.utterance)]
    return write(screen, f"rm {wanted[0]}", enter=True) if wanted else None


def _fits(name: str, said: str) -> bool:
    if "no file extension" in said:
        return "." not in name
    extension = said.split("extension .")[1].strip()
    # The task takes the first place where the letters occur for the extension, so shark.sh does not count.
    return name.endswith(f".{extension}") and name.index(extension) + len(extension) == len(name)
