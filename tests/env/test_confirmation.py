"""Whatever a button is made of, a person is asked before it is used; and only then."""

from __future__ import annotations

import asyncio

import pytest

from holotron.env.errors import Refused
from holotron.env.safety.confirm import Confirmation, Question
from tests.env.driver import World
from tests.env.site import Site

STYLE = """<style>body { margin: 0 } .at { position: absolute; left: 0; top: 0; width: 300px; height: 80px; padding: 0 }
  .flex { display: flex } svg, img, span, i { width: 100px; height: 60px; display: inline-block }
  .menu { display: none } .hover:hover .menu { display: block } .css::before { content: "De" }
  .css i::after { content: attr(data-end) }</style>"""
RECTANGLE = "<rect width=100 height=60 />"
DONE = "onclick=\"document.title = 'done'\""
# Each is used by a click at (40, 30).
THINGS = {
    "an icon inside a button": f"<button class=at aria-label='Delete it' {DONE}><svg>{RECTANGLE}</svg></button>",
    "a title of an icon": f"<button class=at {DONE}><svg><title>Delete</title>{RECTANGLE}</svg></button>",
    "words split over spans": f"<button class='at flex' {DONE}><span>De</span><span>lete</span></button>",
    "a label of a box": f"<label class=at for=box>Delete my account</label><input type=checkbox id=box {DONE}>",
    "a box with a label": f"<input class=at type=checkbox id=box {DONE}><label for=box>Delete my account</label>",
    "the query of a link": "<a class=at href='/done?then=%64elete'>Go on</a>",
    "the action of a form": "<form action=/done/delete><button class=at>OK</button></form>",
    "the action of a button": "<form action=/done><button class=at formaction=/delete>OK</button></form>",
    "text of a style sheet": f"<button class='at css' {DONE}><i data-end=lete></i></button>",
    "a picture": "<a class=at href=/done><img alt='Delete' src='data:,'></a>",
    "a name elsewhere": f"<p id=name hidden>Delete</p><button class=at aria-labelledby=name {DONE}>×</button>",
    "a menu under the pointer": f"<div class='at hover'><button class='at menu' {DONE}>Delete</button></div>",
    "a role": f"<div class=at role=button {DONE} title=Delete><span></span></div>",
    "a closed shadow tree": f"""<div class=at><template shadowrootmode=closed><nav><template shadowrootmode=closed>
      <button style='width: 300px; height: 80px' {DONE}>Delete</button></template></nav></template></div>""",
    "a shadow tree": f"""<div class=at id=host {DONE} aria-label=Delete></div><script>
      host.attachShadow({{mode: "open"}}).innerHTML = "<span style='display: block; height: 80px'>x</span>"</script>""",
}


class Person:
    """Answers questions, and keeps them."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> bool:
        self.asked.append(question)
        return self.answers.pop(0)


async def test_what_a_thing_is_made_of_does_not_matter(world: World, good: Site) -> None:
    good.pages["/done"] = "<title>done</title>"
    missed = []
    person = Person(*[False] * len(THINGS))
    async with world.env(good.origin, confirmation=Confirmation(["delete"], person)) as env:
        for number, (name, page) in enumerate(THINGS.items()):
            good.pages["/"] = f"<!doctype html>{STYLE}<title></title>{page}"
            await env.hover(400, 300)
            await env.goto(f"{good.origin}/?{number}")
            try:
                await env.click(40, 30)
                missed.append(name)
            except Refused:
                pass
            assert (await env.observe()).title != "done" or name in missed, name
    assert missed == []


async def test_other_things_are_not_asked_about(world: World, good: Site) -> None:
    """Moving about and emptying a field in a form that deletes; only Enter would send it."""
    good.pages["/"] = f"""{STYLE}<form action=/delete><input class=at name=q value=abc autofocus>
      <button style="margin-top: 100px">Delete</button></form>"""
    person = Person(False, False)
    async with world.at(good.origin, confirmation=Confirmation(["delete"], person)) as env:
        for keys in ("Control+a", "Delete", "Tab", "Shift+Tab", "x"):
            await env.press(keys)
        await env.click(40, 30)
        assert person.asked == []
        with pytest.raises(Refused):
            await env.press("Enter")
        await env.evaluate("document.activeElement.blur()")
        with pytest.raises(Refused):  # outside of a field this key may remove anything
            await env.press("Delete")
    assert set(good.hits) <= {"/", "/favicon.ico"}


async def test_dialogs_are_asked_about(world: World, good: Site) -> None:
    """A page's own question is a person's to answer, who may take longer than a page has to answer."""
    good.pages["/"] = f"""{STYLE}<button class=at onclick="document.title = [confirm('Delete everything?'),
      confirm('Sure?')]">Go on</button>"""
    person = Person(False, True)

    async def slow(question: Question) -> bool:
        if not person.asked:
            await asyncio.sleep(2.5)
        return await person(question)

    options = {"confirmation": Confirmation(["delete"], slow), "call_seconds": 2.0, "settle_seconds": 0.5}
    async with world.env(good.origin, **options) as env:
        for agreed in ("false", "true"):
            await env.goto(f"{good.origin}/")
            await env.click(40, 30)
            seen = await env.observe()
            assert (seen.title, seen.errors) == (f"{agreed},true", ())
            assert [refusal.kind for refusal in seen.refusals] == ["confirmation"] * (agreed == "false")
        assert [question.text for question in person.asked] == ["Delete everything?"] * 2
        assert person.asked[0].action == "agreeing to the page's confirm"
