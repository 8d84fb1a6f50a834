"""How pages behave: a script for each template, and those that several of them begin with.

Scripts reach the page as they are written, so they keep their words: what a seed draws stays the same to the byte.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import indent

# For tasks that ask for what stands in the element with the id "here".
READ_HERE = 'aim({ answer: data.value, steps: () => [read("#here")] });'


@cache
def read_script(name: str) -> str:
    return Path(__file__).with_name(f"{name}.js").read_text()


def shared_script(name: str) -> str:
    """A script that several templates begin with."""
    return f"\n{read_script(name)}"


def own_script(template: str) -> str:
    """The script of one template."""
    return f"\n{indent(read_script(template), '    ')}    "
