"""How a command fails: one line on stderr, and an exit code that says whose turn it is."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holotron.cli.terminal import visible

DONE, FAILED, MISUSED = 0, 1, 2
DEBUG_VARIABLE = "HOLOTRON_DEBUG"


class Misuse(ValueError):
    """The command was asked for something that cannot be: a wrong name, a value out of range."""


def choose(option: str, value: str, known: Iterable[str]) -> None:
    """Misuse where the option's value is none of those known."""
    if value not in known:
        raise Misuse(f"{option} is {value!r}; choose one of {', '.join(known)}")


def listed(text: str | None) -> list[str]:
    """The entries of an option's value, which has commas between them."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """The same of numbers; Misuse where one is none."""
    try:
        return tuple(map(int, listed(text)))
    except ValueError:
        raise Misuse(f"{option} is {text!r}; it must be whole numbers with commas between") from None


def no_episodes(folder: Path) -> Misuse:
    """A folder without episodes: where there are some, or how to make them."""
    if folder.name == "episodes":
        return Misuse(f"there are no episodes in {folder}; give the folder above it, {folder.parent}")
    below = [child for child in folder.glob("*") if (child / "episodes").is_dir()]
    if below:
        newest = max(below, key=lambda child: child.stat().st_mtime)
        more = f" (and {len(below) - 1} more)" if len(below) > 1 else ""
        return Misuse(f"there are no episodes in {folder} itself; give {newest}{more}")
    return Misuse(f"there are no episodes in {folder}; make some with: holotron run … --record {folder}")


@contextmanager
def misuse(*kinds: type[ValueError]) -> Iterator[None]:
    """Inside, errors of these kinds are about what the user typed."""
    try:
        yield
    except kinds as error:
        raise Misuse(str(error)) from error


@contextmanager
def failure(*kinds: type[Exception]) -> Iterator[None]:
    """Inside, errors of these kinds are told in a line: they are neither misuse nor a bug."""
    try:
        yield
    except kinds as error:
        raise OSError(str(error)) from error


def fail_if_all_lost(played: int, lost: int, problem: str) -> None:
    """OSError where episodes were lost and none was played: nothing was found out."""
    if lost and not played:
        raise OSError(f"no episode could be played: {problem or 'the reason is not known'}")


def debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def report(error: Exception) -> int:
    """Print the error in one line and return the exit code for it."""
    # Errors of the command line parser carry their own code and wording. They are recognised by shape because their
    # class lives in click or inside typer, depending on typer's version.
    format_message = getattr(error, "format_message", None)
    if callable(format_message):
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        return _say(f"{_one_line(str(format_message()))}{hint}", int(getattr(error, "exit_code", FAILED)))
    if isinstance(error, ExceptionGroup):
        return report(error.exceptions[0])  # the others are the same, or came of it
    if isinstance(error, Misuse):
        return _say(_one_line(str(error)), MISUSED)
    if isinstance(error, re.error):
        return _say(_one_line(f"{error.pattern!r} is no regular expression: {error.msg}"), MISUSED)
    if isinstance(error, ImportError) and not error.name:  # a library's own words about what it lacks
        return _say(_one_line(str(error)), FAILED)
    if isinstance(error, ImportError) and error.name and not error.name.startswith("holotron"):
        package = error.name.partition(".")[0]
        return _say(f"the package {package!r} is missing; `holotron doctor` says how to install it", FAILED)
    # What this package raises under a name of its own is meant to be read as it is.
    if type(error).__module__.startswith("holotron."):
        return _say(_one_line(str(error)) or type(error).__name__, FAILED)
    if _full_disk(error):
        return _say(f"the disk is full: {told(error)}", FAILED)
    if isinstance(error, NotADirectoryError) and error.filename:
        place = Path(os.fsdecode(error.filename))
        file = next((each for each in (*reversed(place.parents), place) if each.is_file()), place)
        return _say(f"{file} is a file, so that {place} cannot be; name another folder", FAILED)
    if isinstance(error, ValueError | OSError):
        return _say(_one_line(str(error)) or type(error).__name__, FAILED)
    return _say(f"{told(error)} (a bug; {DEBUG_VARIABLE}=1 shows where)", FAILED)


def _full_disk(error: BaseException) -> bool:
    """Whether a full disk is behind an error: libraries tell it in words of their own, torch in these."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(words in str(error) for words in ("No space left on device", "PytorchStreamWriter failed writing"))


def told(error: Exception) -> str:
    """An error with its kind, in one line."""
    return _one_line(f"{type(error).__name__}: {error}")


def _say(message: str, code: int) -> int:
    print(f"error: {visible(message)}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    """In one line, and without the numbers that Python writes before the system's own words."""
    return " ".join(re.sub(r"\[Errno -?\d+\] ", "", text).split())
