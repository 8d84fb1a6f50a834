"""Whole pages of the kinds people meet every day; the templates under HELD_OUT are never trained on."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from holotron.suites.kit.words import FIELDS, MENU, MONTHS, OPTIONS, SCREEN_COLOURS, STATUS, TABLE_HEADS
from holotron.suites.screens.blocks import Blocks
from holotron.suites.screens.icons import NAMES, icon
from holotron.suites.screens.words import Words

DrawScreen = Callable[[Words, Blocks], str]


def login(words: Words, blocks: Blocks) -> str:
    fields = [blocks.field(words.pick("Email", "Username")), blocks.field("Password")]
    extra = [blocks.tick(words.pick("Remember me", "Keep me signed in"))] if words.maybe(0.7) else []
    buttons = [blocks.button(words.pick("Log in", "Sign in", "Continue"), main=True)]
    if words.maybe(0.4):
        buttons.append(blocks.button(words.pick("Cancel", "Sign up", "Continue with email", "Help")))
    links = [blocks.link(words.pick("Forgot password?", "Reset password")), blocks.link("Create an account")]
    side = words.pick("center", "flex-start", "flex-end")
    card = (
        f'<div class="card col" style="width:{words.pick(18, 21, 25)}rem"><h2>{escape(words.title(2))}</h2>'
        f'{"".join(fields + extra)}<div class="row">{"".join(buttons)}</div><div class="row">{"".join(links)}'
        f"</div></div>"
    )
    top = blocks.bar() if words.maybe(0.5) else ""
    return f'{top}<div style="display:flex;justify-content:{side};padding:{words.pick(1, 2, 4)}rem">{card}</div>'


def form(words: Words, blocks: Blocks) -> str:
    columns = words.pick(1, 1, 2, 2, 3)
    fields = blocks.fields(words.pick(3, 4, 5, 6, 8))
    grid = f'<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{"".join(fields)}</div>'
    ticks = "".join(blocks.tick(text) for text in words.some(OPTIONS, words.pick(0, 1, 2)))
    group = "".join(blocks.tick(text, kind="radio") for text in words.some(OPTIONS, words.pick(0, 2, 3)))
    buttons = "".join(blocks.button(main=i == 0) for i in range(words.pick(1, 2, 2)))
    top = blocks.bar() if words.maybe(0.6) else blocks.crumbs()
    return (
        f'{top}<div class="pad" style="max-width:{words.pick(26, 36, 50)}rem;margin:{words.pick("0", "0 auto")}">'
        f'<h1>{escape(words.title(2))}</h1><p class="muted">{escape(words.sentence())}</p>'
        f'<div class="card col">{grid}{group}{ticks}<div class="row">{buttons}</div></div></div>'
    )


def search(words: Words, blocks: Blocks) -> str:
    query = words.title(2).lower()
    results = "".join(
        f"<div><h3>{blocks.link(words.title(words.pick(2, 3, 4)))}</h3>"
        f'<div class="muted">{words.noun()}.{words.pick("test", "example")} / {words.noun()}</div>'
        f"<div>{escape(words.paragraph(2))}</div></div>"
        for _ in range(words.pick(3, 4, 5))
    )
    box = (
        f'<input class="in" style="width:{words.pick(14, 20, 28)}rem" value="{query if words.maybe(0.7) else ""}" '
        f'placeholder="Search">'
    )
    go = (
        blocks.button(words.pick("Search", "Go", "Find"), main=True)
        if words.maybe(0.7)
        else blocks.icon_button("search")
    )
    tabs = blocks.tabs(words.some(MENU, words.pick(3, 4))) if words.maybe(0.6) else ""
    return (
        f'<div class="pad col"><div class="row">{box}{go}</div>{tabs}<div class="muted">About {words.figure()} '
        f"results</div>"
        f'<div class="col" style="max-width:{words.pick(34, 46, 60)}rem">{results}</div>{blocks.pagination()}</div>'
    )


def table(words: Words, blocks: Blocks) -> str:
    heads = words.some(TABLE_HEADS, words.pick(3, 4, 5, 6))
    actions = words.pick([], [], ["Edit"], ["Edit", "Delete"], ["View"])
    ticks, linked, icons = words.maybe(0.3), words.maybe(0.4), words.maybe(0.5)
    rows = []
    for _ in range(words.pick(4, 6, 8, 10)):
        cells = [escape(_cell(words, head)) for head in heads]
        if linked:
            cells[0] = f'<a href="#">{cells[0]}</a>'
        if ticks:
            cells.insert(0, f'<input type="checkbox"{" checked" * words.maybe(0.3)}>')
        if actions:
            cells.append(
                " ".join(
                    blocks.icon_button({"Edit": "edit", "Delete": "trash", "View": "eye"}[name])
                    if icons
                    else blocks.button(name)
                    for name in actions
                )
            )
        rows.append(cells)
    heads = ([""] if ticks else []) + heads + ([words.pick("", "Actions")] if actions else [])
    tools = (
        blocks.field("Filter", labels="inside", value="")
        + blocks.select(words.some(STATUS, 4))
        + blocks.button(main=True)
    )
    side = blocks.side() if words.maybe(0.4) else ""
    return (
        f'{blocks.bar()}<div class="split pad">{side}<div class="wide col"><h1>{escape(words.title(2))}</h1>'
        f'<div class="row">{tools}</div>{blocks.table(heads, rows)}'
        f"{blocks.pagination() if words.maybe(0.6) else ''}</div></div>"
    )


def cards(words: Words, blocks: Blocks) -> str:
    columns, shop = words.pick(2, 3, 4), words.maybe(0.6)
    items = []
    for _ in range(columns * words.pick(1, 2, 2)):
        lines = [
            blocks.picture(words.pick("4rem", "6rem", "8rem")) if words.maybe(0.7) else "",
            f"<h3>{words.product()}</h3>",
        ]
        lines.append(
            f"<div>{words.price()}</div>" if shop else f'<div class="muted">{escape(words.sentence(4, 9))}</div>'
        )
        tail = blocks.button(words.pick("Add to cart", "Buy now", "View") if shop else None, main=words.maybe(0.5))
        heart = blocks.icon_button(words.pick("heart", "star", "bookmark", "share")) if words.maybe(0.3) else ""
        items.append(f'<div class="card col">{"".join(lines)}<div class="row">{tail}{heart}</div></div>')
    head = f'<div class="row between"><h1>{escape(words.title(2))}</h1>{blocks.select(words.some(OPTIONS, 4))}</div>'
    grid = f'<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{"".join(items)}</div>'
    return (
        f'{blocks.bar()}<div class="pad col">{blocks.crumbs() if words.maybe(0.4) else ""}{head}{grid}'
        f"{blocks.pagination()}</div>"
    )


def settings(words: Words, blocks: Blocks) -> str:
    toggles = "".join(blocks.switch(text) for text in words.some(OPTIONS, words.pick(3, 4, 5)))
    radios = "".join(blocks.tick(text, kind="radio") for text in words.some(OPTIONS, 3))
    slider = (
        f'<div class="row"><label for="v">{words.pick("Volume", "Brightness", "Font size", "Zoom")}</label>'
        f'<input id="v" type="range" value="{words.chance.randrange(101)}"></div>'
    )
    parts = [
        f'<div class="card col">{toggles}</div>',
        f'<div class="card">{radios}</div>',
        f'<div class="card">{slider}</div>',
    ]
    words.chance.shuffle(parts)
    body = "".join(f"<h3>{escape(words.title(2))}</h3>{part}" for part in parts[: words.pick(2, 3)])
    tabs = blocks.tabs(words.some(MENU, words.pick(3, 4, 5))) if words.maybe(0.5) else ""
    buttons = blocks.button(words.pick("Save", "Save changes", "Apply"), main=True) + blocks.button(
        words.pick("Cancel", "Reset")
    )
    side = blocks.side() if words.maybe(0.6) else ""
    return (
        f'{blocks.bar() if words.maybe(0.6) else ""}<div class="split pad">{side}<div class="col wide" '
        f'style="max-width:'
        f'{words.pick(28, 40, 60)}rem"><h1>Settings</h1>{tabs}{body}<div class="row">{buttons}</div></div></div>'
    )


def article(words: Words, blocks: Blocks) -> str:
    def prose() -> str:
        text = escape(words.paragraph(words.pick(2, 3, 4))).split(" ")
        place = words.chance.randrange(max(1, len(text) - 2))
        text[place : place + 2] = [f'<a href="#">{" ".join(text[place : place + 2])}</a>']
        return f"<p>{' '.join(text)}</p>"

    parts = [f"<h1>{escape(words.title(4))}</h1>", f'<div class="muted">By {words.name()}, {words.date()}</div>']
    for _ in range(words.pick(2, 3)):
        parts += [f"<h2>{escape(words.title(3))}</h2>" if words.maybe(0.6) else "", prose()]
        if words.maybe(0.3):
            parts.append(blocks.picture())
        if words.maybe(0.3):
            parts.append("<ul>" + "".join(f"<li>{escape(words.sentence(2, 6))}</li>" for _ in range(3)) + "</ul>")
    parts.append(f'<div class="row">{blocks.icon_button("share")}{blocks.icon_button("heart")}{blocks.button()}</div>')
    side = blocks.side() if words.maybe(0.5) else ""
    text = f'<div class="wide" style="max-width:{words.pick(30, 42, 60)}rem">{"".join(parts)}</div>'
    both = [text, side] if words.maybe(0.5) else [side, text]
    return f'{blocks.bar() if words.maybe(0.8) else ""}<div class="split pad">{"".join(both)}</div>{blocks.footer()}'


def dashboard(words: Words, blocks: Blocks) -> str:
    figures = "".join(
        f'<div class="card wide"><div class="muted">{escape(words.title(2))}</div><div style="font-size:1.8rem">'
        f"{words.figure()}</div></div>"
        for _ in range(words.pick(2, 3, 4))
    )
    bars = "".join(
        f'<rect x="{i * 34 + 4}" y="{110 - height}" width="26" height="{height}" fill="{words.pick(*SCREEN_COLOURS[:9])}"/>'
        for i, height in enumerate(words.number(15, 100) for _ in range(words.pick(4, 6, 8)))
    )
    chart = (
        f'<div class="card"><h3>{escape(words.title(2))}</h3><svg viewBox="0 0 280 112" style="width:18rem">{bars}'
        f"</svg></div>"
    )
    tasks = "".join(f"<li>{escape(words.sentence(2, 5))}</li>" for _ in range(4))
    todo = f'<div class="card wide"><h3>{escape(words.title(2))}</h3><ul>{tasks}</ul>{blocks.button()}</div>'
    return (
        f'{blocks.bar()}<div class="split pad">{blocks.side()}<div class="wide col"><div class="row between">'
        f'<h1>{words.pick("Dashboard", "Overview", "Today")}</h1><div class="row">{blocks.button()}'
        f"{blocks.button(main=True)}</div></div>"
        f'<div class="row">{figures}</div><div class="split">{chart}{todo}</div></div></div>'
    )


def files(words: Words, blocks: Blocks) -> str:
    kinds = ["txt", "pdf", "png", "csv", "docx", "zip"]
    rows = []
    for _ in range(words.pick(5, 7, 9)):
        folder = words.maybe(0.3)
        name = (
            words.noun()
            if folder
            else f"{words.noun()}{words.pick('', '-' + words.noun(), words.figure())}.{words.pick(*kinds)}"
        )
        picture = icon("folder" if folder else "bookmark", named=False)
        rows.append(
            [
                f"{picture} {escape(name)}",
                f"{words.chance.randrange(1, 999)} KB",
                words.date(),
                blocks.icon_button("more"),
            ]
        )
    tools = "".join(blocks.icon_button(name) for name in words.some(NAMES, words.pick(3, 4, 5)))
    return (
        f'<div class="bar row between"><div class="row">{blocks.icon_button("arrow left")}{blocks.crumbs()}</div>'
        f'<div class="row">{tools}'
        f'</div></div><div class="split pad">{blocks.side()}<div class="wide">'
        f"{blocks.table(['Name', 'Size', 'Modified', ''], rows)}</div></div>"
    )


def menus(words: Words, blocks: Blocks) -> str:
    """A menu bar with one menu open over the page."""
    names = words.some(MENU, words.pick(4, 5, 6))
    bar = "".join(f'<div role="menuitem" style="padding:.2rem .7rem">{name}</div>' for name in names)
    items = "".join(
        f'<div role="menuitem">{escape(text)}</div>'
        for text in dict.fromkeys(words.button() for _ in range(words.pick(4, 6, 8)))
    )
    paint = "background:#eee;border:1px solid #999;" if blocks.theme.bare else ""
    left, top = words.pick(1, 5, 10, 16), words.pick(2.6, 4, 7)
    menu = (
        f'<div class="menu" style="position:absolute;left:{left}rem;top:{top}rem;min-width:10rem;{paint}">{items}</div>'
    )
    body = "".join(f"<p>{escape(words.paragraph(3))}</p>" for _ in range(3))
    buttons = "".join(blocks.button() for _ in range(3))
    return (
        f'<div class="bar" style="display:flex">{bar}</div><div class="pad">{body}<div class="row">{buttons}</div>'
        f"</div>{menu}"
    )


def dialog(words: Words, blocks: Blocks) -> str:
    return words.pick(table, cards, article, settings, form)(words, blocks) + blocks.dialog()


def booking(words: Words, blocks: Blocks) -> str:
    search_row = "".join(
        f'<div class="wide">{blocks.field(name)}</div>'
        for name in ("From", "To", *words.some(FIELDS, words.pick(1, 2)))
    )
    offers = "".join(
        f'<div class="card row between"><div><strong>{words.city()} – {words.city()}</strong><div class="muted">'
        f"{words.time()} to "
        f"{words.time()}, {words.pick('direct', '1 stop', '2 stops')}</div></div><div>{words.price()}</div>"
        f"{blocks.button(words.pick('Select', 'Book now', 'Details'))}</div>"
        for _ in range(words.pick(2, 3, 4))
    )
    filters = "".join(blocks.tick(text) for text in words.some(OPTIONS, words.pick(2, 3, 4)))
    return (
        f'{blocks.bar()}<div class="pad col"><div class="card row">{search_row}'
        f"{blocks.button('Search', main=True)}</div>"
        f'<div class="split"><div class="side card"><h3>Filters</h3>{filters}</div><div class="wide col">{offers}'
        f"</div></div></div>"
    )


def calendar(words: Words, blocks: Blocks) -> str:
    first = words.chance.randrange(7)
    days = ["" for _ in range(first)] + [str(day) for day in range(1, words.pick(28, 30, 31) + 1)]
    days += [""] * (-len(days) % 7)
    cell = '<button class="ghost">{}</button>'
    rows = [[cell.format(day) if day else "" for day in days[week : week + 7]] for week in range(0, len(days), 7)]
    head = (
        f"{blocks.icon_button('arrow left')}<h2>{words.pick(*MONTHS)} {words.number(1990, 2040)}</h2>"
        f"{blocks.icon_button('arrow right')}"
    )
    events = "".join(f"<p>{words.time()} {escape(words.title(2))}</p>" for _ in range(words.pick(2, 3, 4)))
    table = blocks.table(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], rows)
    return (
        f'{blocks.bar()}<div class="split pad"><div class="card wide"><div class="row">{head}</div>{table}</div>'
        f'<div class="card side"><h3>Events</h3>{events}{blocks.button("Add event", main=True)}</div></div>'
    )


def inbox(words: Words, blocks: Blocks) -> str:
    rows = "".join(
        f'<div class="row" style="border-bottom:1px solid #8884;padding:.4rem"><input '
        f'type="checkbox"{" checked" * words.maybe(0.2)}>'
        f"{blocks.icon_button('star')}<strong style='width:9rem'>{words.name()}</strong><span class='wide'>"
        f"{escape(words.sentence(3, 6))}</span>"
        f'<span class="muted">{words.date()}</span></div>'
        for _ in range(words.pick(6, 8, 10))
    )
    tools = "".join(
        blocks.button(name) for name in words.some(["Reply", "Archive", "Delete", "Forward", "Spam", "Mark as read"], 4)
    )
    return (
        f'<div class="bar row between"><strong>{words.pick("Mail", "Inbox", "Post")}</strong><div class="row">'
        f"{tools}</div></div>"
        f'<div class="split pad">{blocks.side()}<div class="wide card">{rows}</div></div>'
    )


def chat(words: Words, blocks: Blocks) -> str:
    people = "".join(f'<a href="#">{words.name()}</a>' for _ in range(words.pick(4, 6)))
    said = "".join(
        f'<div class="card" style="align-self:{words.pick("flex-start", "flex-end")};max-width:26rem"><div '
        f'class="muted">{words.first()}, '
        f"{words.time()}</div>{escape(words.sentence())}</div>"
        for _ in range(words.pick(3, 4, 5))
    )
    return (
        f'<div class="split pad"><div class="side card">{people}</div><div class="wide col">{said}<div class="row">'
        f'<input class="in" style="width:20rem" placeholder="Write a message">{blocks.button("Send", main=True)}'
        f"{blocks.icon_button('camera')}</div></div></div>"
    )


TEMPLATES: dict[str, DrawScreen] = {
    each.__name__: each
    for each in (login, form, search, table, cards, settings, article, dashboard, files, menus, dialog, booking)
}
HELD_OUT: dict[str, DrawScreen] = {each.__name__: each for each in (calendar, inbox, chat)}


def _cell(words: Words, head: str) -> str:
    known: dict[str, Callable[[], str]] = {
        "Name": words.name,
        "Owner": words.first,
        "Email": words.email,
        "City": words.city,
    }
    known |= {"Price": words.price, "Total": words.price, "Amount": words.price, "Date": words.date, "Due": words.date}
    known |= {"Status": lambda: words.pick(*STATUS), "ID": words.code, "Code": words.code, "Time": words.time}
    return known.get(head, words.pick(words.figure, words.label, words.word))()
