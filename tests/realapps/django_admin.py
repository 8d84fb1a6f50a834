"""Django's admin, from the login to an archived order."""

from __future__ import annotations

import json
import urllib.request
from datetime import date
from pathlib import Path
from typing import Any

from tests.realapps.application import Application, Do, write

USER, PASSWORD = "ada", "correct horse & battery"

# Log in by secret, create a customer in a second tab, an order with a list and both kinds of calendar, edit it, agree
# to a dialog, and look at the list in another tab.
SCRIPT = [
    write("#id_username", USER),
    write("#id_password", "{{secret:password}}", enter=True),
    Do("click", "a[href='/admin/auth/order/add/']"),
    write("#id_title", "Ten chairs"),
    Do("click", "#id_status"),
    Do("click", drawn="Paid"),
    Do("click", "#add_id_customer"),  # opens a window, which becomes the current tab
    write("#id_name", "Grace"),
    Do("click", "input[name=_save]"),  # and closes it
    Do("click", ".field-due .date-icon"),
    Do("click", ".calendarbox .calendar td a"),
    Do("click", "#id_shipped", right=True),
    Do("click", drawn="15"),
    Do("click", "input[name=_continue]"),
    write("#id_title", "Twelve chairs"),
    Do("click", "#id_status"),
    Do("press", fields={"keys": "ArrowDown"}),
    Do("press", fields={"keys": "Enter"}),
    Do("click", "input[name=_continue]"),
    Do("click", "#archive"),
    Do("new_tab"),
    Do("goto", fields={"url": "ORIGIN/admin/auth/order/"}),
    Do("switch_tab", fields={"index": 0}),
    Do("answer", fields={"text": "done"}),
]


def _command(python: Path, folder: Path, port: int) -> list[str]:
    return [str(python), str(Path(__file__).with_name("django_site.py")), str(folder), str(port), USER, PASSWORD]


def _state(folder: Path, origin: str) -> Any:
    return json.loads(urllib.request.urlopen(f"{origin}/state").read())["orders"]


def _wanted() -> Any:
    month = date.today().isoformat()[:8]
    order = {
        "title": "Twelve chairs",
        "status": "shipped",
        "customer__name": "Grace",
        "due": f"{month}01",
        "shipped": f"{month}15",
        "archived": True,
    }
    return [order]


DJANGO = Application(
    package="django",
    task=f"Log in as {USER}, enter and archive the order of Grace.",
    start="/admin/",
    secret=("password", PASSWORD),
    script=SCRIPT,
    command=_command,
    ready="/state",
    state=_state,
    wanted=_wanted,
    told=("Archive this order?",),
    learned=True,
)
