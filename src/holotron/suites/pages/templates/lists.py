"""Lists of things to do, to read and to choose from."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.words import SUBJECTS, THINGS, TODOS
from holotron.suites.pages.builder import PageBuilder, PageContent, and_list, view
from holotron.suites.pages.task import template


def _joined(s: PageBuilder, names: list[str]) -> str:
    quoted = [f'"{name}"' for name in names] if s.maybe() else names
    return and_list(quoted)


@template()
def todo_tick(s: PageBuilder) -> PageContent:
    items = s.some(s.fresh(TODOS), s.number(4, 8))
    done = [s.maybe(0.2) for _ in items]
    open_ones = [index for index, is_done in enumerate(done) if not is_done] or [0]
    done[open_ones[0]] = False
    chosen = sorted(s.some(open_ones, min(len(open_ones), s.number(1, 3))))
    text = s.wording("todo_tick", what=_joined(s, [items[index] for index in chosen]))
    boxes = "".join(
        f'<div class="item">{s.check(f"t{index}", item, done[index])}</div>' for index, item in enumerate(items)
    )
    title = s.pick("To do", "My list", "Today", "Tasks")
    wanted = [is_done or index in chosen for index, is_done in enumerate(done)]
    return PageContent(text, s.heading(title) + boxes, {"wanted": wanted}, title)


@template()
def todo_add(s: PageBuilder) -> PageContent:
    old, new = (picked := s.some(s.fresh(TODOS), 7))[: s.number(2, 5)], picked[5:][: s.number(1, 2)]
    text = s.wording("todo_add", what=_joined(s, new))
    items = "".join(f'<li class="item">{escape(item)}</li>' for item in old)
    field = s.field("new", s.pick("New task", "What needs to be done?", "Add an item"))
    form = s.form_in_row(field, "Add", "Add task", "+", "OK")
    listed = f'<ul class="items">{items}</ul>'
    title = s.pick("To do", "Shopping list", "Tasks", "Notes")
    data = {"wanted": new, "total": len(old) + len(new), "by_key": s.maybe()}
    return PageContent(text, s.heading(title) + (form + listed if s.maybe() else listed + form), data, title)


@template()
def list_button(s: PageBuilder) -> PageContent:
    """Every item has the same few buttons."""
    items = (
        s.some(s.fresh(TODOS), s.number(4, 8))
        if s.maybe()
        else [f"{thing.title()} {s.number(1, 9)}" for thing in s.some(s.fresh(THINGS), s.number(4, 8))]
    )
    words = s.some(
        (("Delete", "✕"), ("Star", "★"), ("Open", "Open"), ("Share", "Share"), ("Pin", "Pin")), s.number(1, 3)
    )
    word, index = s.number(0, len(words) - 1), s.number(0, len(items) - 1)
    deed = words[word][0]
    signs = s.maybe(0.4)
    text = s.wording("list_button", deed=deed, lower=deed.lower(), item=items[index])
    rows = ""
    for at, item in enumerate(items):
        acts = "".join(
            f'<button type="button" class="small act" data-is="{at}/{kind}">{sign if signs else name}</button>'
            for kind, (name, sign) in enumerate(words)
        )
        rows += f'<div class="item between"><span>{escape(item)}</span><span class="row">{acts}</span></div>'
    title = s.pick("Favourites", "Files", "My things", "Bookmarks")
    past = {"Delete": "deleted", "Star": "starred", "Open": "opened", "Share": "shared", "Pin": "pinned"}[deed]
    data = {"is": f"{index}/{word}", "deed": deed, "done": f"{items[index]}: {past}."}
    return PageContent(text, s.heading(title) + rows, data, title)


@template(held_out=True, wide=True)
def inbox(s: PageBuilder) -> PageContent:
    """A mail is opened, and then something is done with it."""
    count = s.number(5, 9)
    names, subjects = s.people(count), s.some(SUBJECTS, count)
    index, deed = s.number(0, count - 1), s.pick("Archive", "Delete", "Mark as spam")
    text = s.wording("inbox", deed=deed, lower=deed.lower(), name=names[index], subject=subjects[index])
    rows = "".join(
        f'<tr class="mail" data-index="{at}" style="cursor:pointer"><td><b>{name}</b></td>'
        f'<td>{subject}</td><td class="soft">{s.number(1, 28)} May</td></tr>'
        for at, (name, subject) in enumerate(zip(names, subjects, strict=True))
    )
    buttons = "".join(
        f'<button type="button" class="deed">{word}</button>'
        for word in s.some(("Archive", "Delete", "Mark as spam"), 3)
    )
    body = view("all", s.heading("Inbox"), f"<table>{rows}</table>", first=True)
    mail = '<p><a href="#" id="back">← Inbox</a></p><h2 id="subject"></h2><p class="soft" id="from"></p>'
    body += view("one", mail, f'<div class="row">{buttons}</div>', s.prose(4))
    return PageContent(text, body, {"index": index, "deed": deed}, "Inbox")
