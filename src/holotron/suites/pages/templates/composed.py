"""Pages of blocks: no two have to be alike in what stands on them or where it is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holotron.suites.kit.words import COLOURS, LINKS, SUBJECTS, THINGS, TODOS, TOPICS
from holotron.suites.pages.builder import PageBuilder, PageContent, capital
from holotron.suites.pages.composed.activities import all_activities
from holotron.suites.pages.composed.blocks import Block, activity_block, any_block
from holotron.suites.pages.composed.parts import Names
from holotron.suites.pages.composed.placing import menu, page_of, place
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template
from holotron.suites.pages.values import quoted, value_of

DEEDS: Sequence[tuple[str, str]] = tuple(read_data("choices")["deeds"].items())
FACTS: Sequence[tuple[str, str]] = tuple(read_data("choices")["facts"].items())


def _said(s: PageBuilder, block: Block, *, hidden: bool, alone: bool, explained: bool) -> str:
    """What is to be done, with the place where it cannot be guessed."""
    if not hidden or s.maybe(0.7 if explained else 0.3 if alone else 0.0):
        return block.said
    return s.saying("composed_place").format(topic=quoted(s, block.topic), said=block.said)


def _page(s: PageBuilder, wanted: Sequence[Block], others: Sequence[Block], explained: bool) -> PageContent:
    blocks = s.some([*wanted, *others], len(wanted) + len(others))
    body, paths, hidden = place(s, blocks)
    alone = len(blocks) == 1
    said = [_said(s, block, hidden=hidden, alone=alone, explained=explained) for block in wanted]
    text = s.pick("; then ", ", then ", ". Then ", " and ").join(said)
    if len(said) > 2:
        text = s.pick("{0}, {1}; after that {2}", "first {0}, then {1}, last {2}", "{0}; {1}; {2}").format(*said)
    title = s.pick("Overview", "My page", "Portal", "Account", "Office")
    data = [block.data(paths[blocks.index(block)]) for block in wanted]
    return page_of(s, s.wording("composed", text=capital(text)), body, data, title)


@template()
def mosaic_theme(s: PageBuilder) -> PageContent:
    """Something people do, with other such things around it."""
    names = Names(s)
    activities = s.some(all_activities(), s.pick(1, 2, 2, 3, 4))
    blocks = [activity_block(s, names, f"b{index}", activity) for index, activity in enumerate(activities)]
    return _page(s, blocks[:1], _distinct(blocks[0], blocks[1:]), explained=True)


def _distinct(wanted: Block, others: Sequence[Block]) -> list[Block]:
    by_topic = {block.topic: block for block in others}
    return [block for topic, block in by_topic.items() if topic != wanted.topic]


@template()
def mosaic_parts(s: PageBuilder) -> PageContent:
    """Some of many controls are to be changed."""
    names = Names(s)
    count = s.pick(1, 1, 2, 3, 4)
    blocks = [any_block(s, names, f"b{index}", wanted=index == 0) for index in range(count)]
    return _page(s, blocks[:1], blocks[1:], explained=False)


@template()
def mosaic_two(s: PageBuilder) -> PageContent:
    """Two things after each other, in two places."""
    names = Names(s)
    activities = s.some(all_activities(), 2)
    wanted = [
        activity_block(s, names, f"b{index}", activities[index])
        if s.maybe()
        else any_block(s, names, f"b{index}", wanted=True)
        for index in range(2)
    ]
    others = [any_block(s, names, "b2", wanted=False)] if s.maybe(0.3) else []
    return _page(s, wanted, others, explained=False)


@template()
def mosaic_three(s: PageBuilder) -> PageContent:
    """Three things one after another, each somewhere else."""
    names = Names(s)
    wanted = [
        activity_block(s, names, f"b{index}", activity) if s.maybe() else any_block(s, names, f"b{index}", wanted=True)
        for index, activity in enumerate(s.some(all_activities(), 3))
    ]
    return _page(s, wanted, [], explained=False)


@template(wide=True)
def mosaic_rows(s: PageBuilder) -> PageContent:
    """Many things, and the same few deeds for each: beside it, in a menu of its own, or below it."""
    count, names = s.number(3, 8), Names(s)
    pool = s.pick(TODOS, SUBJECTS, [thing.title() for thing in THINGS])
    items = [names.new(pool, 0.4) for _ in range(count)]
    notes = [s.pick(value_of(s, "city"), value_of(s, "time"), s.person(), value_of(s, "code")) for _ in range(count)]
    deeds = s.some(DEEDS, s.number(1, 3))
    chosen, deed = s.number(0, count - 1), s.number(0, len(deeds) - 1)
    style = s.pick("list", "table", "tiles")
    in_menu = s.maybe(0.35)

    def buttons(at: int) -> str:
        if in_menu:
            listed = "".join(
                f'<div id="r{at}d{index}" data-press="{after}">{word}</div>'
                for index, (word, after) in enumerate(deeds)
            )
            return menu(f"r{at}", "⋯", listed, leftward=style != "tiles", classes="small")
        kind = "link" if linked else "small"
        return "".join(
            f'<button type="button" class="{kind}" id="r{at}d{index}" data-press="{after}">{word}</button> '
            for index, (word, after) in enumerate(deeds)
        )

    linked, noted = s.maybe(0.3), s.maybe(0.6)
    rows = []
    for at, item in enumerate(items):
        note = f'<span class="soft">{escape(notes[at])}</span>' if noted else ""
        if style == "table":
            rows.append(f"<tr><td>{escape(item)}</td><td>{note}</td><td>{buttons(at)}</td></tr>")
        elif style == "tiles":
            rows.append(f'<div class="tile"><b>{escape(item)}</b><p>{note}</p>{buttons(at)}</div>')
        else:
            between = "between" if s.style.labels != "left" else "row"
            rows.append(
                f'<div class="item {between}"><span>{escape(item)} {note}</span><span>{buttons(at)}</span></div>'
            )
    listed = "".join(rows)
    around = {"table": f"<table>{listed}</table>", "tiles": f'<div class="grid">{listed}</div>', "list": listed}[style]
    word = deeds[deed][0]
    text = s.wording("mosaic_rows", word=word, lower=word.lower(), item=quoted(s, items[chosen]))
    name = f"r{chosen}d{deed}"
    part = {"kind": "press", "id": name, "says": s.pick(f"{word}: done.", "Done.", f"{items[chosen]}: done.")}
    block = {"id": name, "parts": [part], "path": [f"r{chosen}"] if in_menu else [], "button": None}
    title = s.pick("My things", "Entries", "Library", "Collection", "Overview")
    return page_of(s, text, s.heading(title) + around, [block], title)


@template()
def mosaic_press(s: PageBuilder) -> PageContent:
    """A button that stands in one of several places."""
    names = Names(s)
    blocks: list[Block] = []
    for index in range(s.number(1, 4)):
        buttons, count = [], s.number(2, 6)
        for at in range(count):
            label = names.new([*LINKS, *TOPICS, *(deed for deed, _ in DEEDS)], 0.5)
            shape = s.pick('<button type="button" {}>{}</button>', '<a href="#" {}>{}</a>')
            buttons.append((f"b{index}n{at}", label, shape))
        shown = " ".join(
            shape.format(f'id="{name}" data-press="stays"', escape(label)) for name, label, shape in buttons
        )
        html = f'<div id="b{index}">{s.prose(1) if s.maybe(0.4) else ""}<div class="row">{shown}</div></div>'
        topic = names.new((*LINKS, *TOPICS, *SUBJECTS))
        said, parts = "", []
        if not blocks:
            name, label, _ = s.pick(*buttons)
            said = s.pick("click {}", "press {}", "choose {}", "click on {}").format(quoted(s, label))
            parts = [{"kind": "press", "id": name, "says": s.pick("Done.", f"{label}: done.", "Thank you.")}]
        blocks.append(Block(f"b{index}", topic, html, parts, said, button=False))
    return _page(s, blocks[:1], blocks[1:], explained=False)


@template()
def mosaic_ask(s: PageBuilder) -> PageContent:
    """Something stands on the page, perhaps behind something."""
    names = Names(s)
    blocks: list[Block] = []
    asked, answer = "", ""
    for index in range(s.pick(1, 1, 2, 3, 4)):
        topic = names.new(
            (*SUBJECTS, *(f"{colour} {thing}".title() for colour in COLOURS for thing in THINGS[:6])), 0.5
        )
        facts = s.some(FACTS, s.number(1, 5))
        values = [f"{s.price()} €" if kind == "price" else value_of(s, kind) for _, kind in facts]
        lines = [
            (label, value, f"b{index}f{at}") for at, ((label, _), value) in enumerate(zip(facts, values, strict=True))
        ]
        shape = s.pick("dl", "table", "lines", "bold")
        if shape == "dl":
            html = f"<dl>{''.join(f'<dt>{k}</dt><dd id={i}>{escape(v)}</dd>' for k, v, i in lines)}</dl>"
        elif shape == "table":
            html = f"<table>{''.join(f'<tr><td>{k}</td><td id={i}>{escape(v)}</td></tr>' for k, v, i in lines)}</table>"
        else:
            tag = "b" if shape == "bold" else "span"
            html = "".join(f"<p>{k}: <{tag} id={i}>{escape(v)}</{tag}></p>" for k, v, i in lines)
        parts = []
        if not blocks:
            label, answer, name = s.pick(*lines)
            parts = [{"kind": "fact", "id": name}]
            asked = s.wording("mosaic_ask", label=label.lower(), topic=quoted(s, topic))
        blocks.append(Block(f"b{index}", topic, f'<div id="b{index}">{html}</div>', parts, "", button=False))
    shuffled = s.some(blocks, len(blocks))
    body, paths, _ = place(s, shuffled)
    data = [blocks[0].data(paths[shuffled.index(blocks[0])])]
    return page_of(s, asked, body, data, "Facts", answer)
