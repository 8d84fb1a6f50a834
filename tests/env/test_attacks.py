"""One attack of each kind on the safety policy, and its control. All of them: `make test-attacks`."""

from __future__ import annotations

import asyncio

from holotron.env.browser.launch import LaunchOptions
from tests.attacks.catalogue import catalogue
from tests.attacks.runner import try_all
from tests.suites.miniwob_driver import needs_chromium

QUICK = """element/redirected img
style/selector
script/beacon
socket/web socket in a frame
worker/shared worker: web socket
navigation/opener goes
click/link in a tab
frame/sandboxed goes up
header/status 307
address/http://NAME:PORT/
name/worker
agent/GOOD/hop"""


@needs_chromium
def test_one_attack_of_each_kind() -> None:
    """The forbidden site hears nothing, the attempt is told, and without the rules it would have arrived."""
    chosen = [attack for attack in catalogue() if attack.id in QUICK.splitlines()]
    outcomes = asyncio.run(try_all(chosen, LaunchOptions(), at_once=6, on_done=lambda _: None))
    assert len(outcomes) == 12
    assert [outcome for outcome in outcomes if outcome.arrived] == []
    assert [outcome for outcome in outcomes if not outcome.refused] == []
    assert [outcome for outcome in outcomes if not outcome.control] == []


def test_there_are_enough_attacks() -> None:
    attacks = catalogue()
    assert len(attacks) >= 200
    untried = {attack.kind for attack in attacks} - {name.partition("/")[0] for name in QUICK.splitlines()}
    assert untried == {"datagram"}  # test_bypass.py has those
