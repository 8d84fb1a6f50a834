"""Whole pages of the kinds people meet every day; the templates under HELD_OUT are never trained on."""

from __future__ import annotations

from collections.abc import Callable

from holotron.suites.kit.html import link
from holotron.suites.kit.words import FIELDS, MENU, MONTHS, OPTIONS, SCREEN_COLOURS, STATUS, TABLE_HEADS
from holotron.suites.screens.builder import ScreenBuilder
from holotron.suites.screens.icons import NAMES, icon

BAR_COLOURS = SCREEN_COLOURS[:9]
# Buttons in the rows of a table, and their icons.
ACTIONS = {"Edit": "edit", "Delete": "trash", "View": "eye"}
DrawScreen = Callable[[ScreenBuilder], str]


def login(s: ScreenBuilder) -> str:
    fields = s.field(s.pick("Email", "Username")) + s.field("Password")
    fields += s.optional(0.7, lambda: s.tick(s.pick("Remember me", "Keep me signed in")))
    buttons = s.button(s.pick("Log in", "Sign in", "Continue"), main=True)
    buttons += s.optional(0.4, lambda: s.button(s.pick("Cancel", "Sign up", "Continue with email", "Help")))
    links = link(s.pick("Forgot password?", "Reset password")) + link("Create an account")
    side = s.pick("center", "flex-start", "flex-end")
    card = (
        f'<div class="card col" style="width:{s.pick(18, 21, 25)}rem"><h2>{s.title(2)}</h2>{fields}'
        f'<div class="row">{buttons}</div><div class="row">{links}</div></div>'
    )
    top = s.optional(0.5, s.bar)
    return f'{top}<div style="display:flex;justify-content:{side};padding:{s.pick(1, 2, 4)}rem">{card}</div>'


def form(s: ScreenBuilder) -> str:
    columns = s.pick(1, 1, 2, 2, 3)
    grid = s.grid(columns, s.fields(s.pick(3, 4, 5, 6, 8)))
    ticks = s.ticks(s.pick(0, 1, 2))
    group = s.ticks(s.pick(0, 2, 3), "radio")
    buttons = s.buttons(s.pick(1, 2, 2))
    top = s.bar() if s.maybe(0.6) else s.crumbs()
    return (
        f'{top}<div class="pad" style="max-width:{s.pick(26, 36, 50)}rem;margin:{s.pick("0", "0 auto")}">'
        f'<h1>{s.title(2)}</h1><p class="muted">{s.sentence()}</p>'
        f'<div class="card col">{grid}{group}{ticks}<div class="row">{buttons}</div></div></div>'
    )


def search(s: ScreenBuilder) -> str:
    query = s.title(2).lower()
    results = "".join(
        f"<div><h3>{link(s.title(s.pick(2, 3, 4)))}</h3>"
        f'<div class="muted">{s.noun()}.{s.pick("test", "example")} / {s.noun()}</div>'
        f"<div>{s.paragraph(2)}</div></div>"
        for _ in range(s.pick(3, 4, 5))
    )
    about = f'style="width:{s.pick(14, 20, 28)}rem" value="{query if s.maybe(0.7) else ""}"'
    box = f'<input class="in" {about} placeholder="Search">'
    go = s.button(s.pick("Search", "Go", "Find"), main=True) if s.maybe(0.7) else s.icon_button("search")
    tabs = s.optional(0.6, lambda: s.tabs(s.pick(3, 4)))
    return (
        f'<div class="pad col"><div class="row">{box}{go}</div>{tabs}'
        f'<div class="muted">About {s.figure()} results</div><div class="col" '
        f'style="max-width:{s.pick(34, 46, 60)}rem">{results}</div>{s.pagination()}</div>'
    )


def table(s: ScreenBuilder) -> str:
    heads = s.some(TABLE_HEADS, s.pick(3, 4, 5, 6))
    actions = s.pick([], [], ["Edit"], ["Edit", "Delete"], ["View"])
    ticks, linked, icons = s.maybe(0.3), s.maybe(0.4), s.maybe(0.5)
    rows = []
    for _ in range(s.pick(4, 6, 8, 10)):
        cells = [_cell(s, head) for head in heads]
        if linked:
            cells[0] = link(cells[0])
        if ticks:
            cells.insert(0, f'<input type="checkbox"{" checked" * s.maybe(0.3)}>')
        if actions:
            cells.append(" ".join(s.icon_button(ACTIONS[name]) if icons else s.button(name) for name in actions))
        rows.append(cells)
    heads = ([""] if ticks else []) + heads + ([s.pick("", "Actions")] if actions else [])
    tools = s.field("Filter", labels="inside", value="") + s.select(s.some(STATUS, 4)) + s.button(main=True)
    side = s.optional(0.4, s.side)
    return (
        f'{s.bar()}<div class="split pad">{side}<div class="wide col"><h1>{s.title(2)}</h1>'
        f'<div class="row">{tools}</div>{s.table(heads, rows)}{s.optional(0.6, s.pagination)}</div></div>'
    )


def cards(s: ScreenBuilder) -> str:
    columns, shop = s.pick(2, 3, 4), s.maybe(0.6)
    items = []
    for _ in range(columns * s.pick(1, 2, 2)):
        picture = s.optional(0.7, lambda: s.picture(s.pick("4rem", "6rem", "8rem")))
        name = f"<h3>{s.product()}</h3>"
        about = f"<div>{s.price()}</div>" if shop else f'<div class="muted">{s.sentence(4, 9)}</div>'
        tail = s.button(s.pick("Add to cart", "Buy now", "View") if shop else None, main=s.maybe(0.5))
        heart = s.optional(0.3, lambda: s.icon_button(s.pick("heart", "star", "bookmark", "share")))
        items.append(f'<div class="card col">{picture}{name}{about}<div class="row">{tail}{heart}</div></div>')
    head = f'<div class="row between"><h1>{s.title(2)}</h1>{s.select(s.some(OPTIONS, 4))}</div>'
    grid = s.grid(columns, "".join(items))
    return f'{s.bar()}<div class="pad col">{s.optional(0.4, s.crumbs)}{head}{grid}{s.pagination()}</div>'


def settings(s: ScreenBuilder) -> str:
    toggles = "".join(s.switch(text) for text in s.some(OPTIONS, s.pick(3, 4, 5)))
    radios = s.ticks(3, "radio")
    slider = (
        f'<div class="row"><label for="v">{s.pick("Volume", "Brightness", "Font size", "Zoom")}</label>'
        f'<input id="v" type="range" value="{s.chance.randrange(101)}"></div>'
    )
    parts = [f'<div class="card{kind}">{part}</div>' for kind, part in ((" col", toggles), ("", radios), ("", slider))]
    s.chance.shuffle(parts)
    body = "".join(f"<h3>{s.title(2)}</h3>{part}" for part in parts[: s.pick(2, 3)])
    tabs = s.optional(0.5, lambda: s.tabs(s.pick(3, 4, 5)))
    buttons = s.button(s.pick("Save", "Save changes", "Apply"), main=True) + s.button(s.pick("Cancel", "Reset"))
    row, side = f'<div class="row">{buttons}</div>', s.optional(0.6, s.side)
    return (
        f'{s.optional(0.6, s.bar)}<div class="split pad">{side}<div class="col wide" '
        f'style="max-width:{s.pick(28, 40, 60)}rem"><h1>Settings</h1>{tabs}{body}{row}</div></div>'
    )


def article(s: ScreenBuilder) -> str:
    def prose() -> str:
        text = s.paragraph(s.pick(2, 3, 4)).split(" ")
        place = s.chance.randrange(max(1, len(text) - 2))
        text[place : place + 2] = [link(" ".join(text[place : place + 2]))]
        return f"<p>{' '.join(text)}</p>"

    parts = [f"<h1>{s.title(4)}</h1>", f'<div class="muted">By {s.name()}, {s.date()}</div>']
    for _ in range(s.pick(2, 3)):
        parts += [s.optional(0.6, lambda: f"<h2>{s.title(3)}</h2>"), prose(), s.optional(0.3, s.picture)]
        parts.append(s.optional(0.3, lambda: _points(s, 3, 6)))
    parts.append(f'<div class="row">{s.icon_button("share")}{s.icon_button("heart")}{s.button()}</div>')
    side = s.optional(0.5, s.side)
    text = f'<div class="wide" style="max-width:{s.pick(30, 42, 60)}rem">{"".join(parts)}</div>'
    both = [text, side] if s.maybe(0.5) else [side, text]
    return f'{s.optional(0.8, s.bar)}<div class="split pad">{"".join(both)}</div>{s.footer()}'


def _points(s: ScreenBuilder, count: int, longest: int) -> str:
    return f"<ul>{''.join(f'<li>{s.sentence(2, longest)}</li>' for _ in range(count))}</ul>"


def dashboard(s: ScreenBuilder) -> str:
    figures = "".join(
        f'<div class="card wide"><div class="muted">{s.title(2)}</div>'
        f'<div style="font-size:1.8rem">{s.figure()}</div></div>'
        for _ in range(s.pick(2, 3, 4))
    )
    bars = "".join(
        f'<rect x="{i * 34 + 4}" y="{110 - height}" width="26" height="{height}" fill="{s.pick(*BAR_COLOURS)}"/>'
        for i, height in enumerate(s.number(15, 100) for _ in range(s.pick(4, 6, 8)))
    )
    chart = f'<div class="card"><h3>{s.title(2)}</h3><svg viewBox="0 0 280 112" style="width:18rem">{bars}</svg></div>'
    tasks = _points(s, 4, 5)
    todo = f'<div class="card wide"><h3>{s.title(2)}</h3>{tasks}{s.button()}</div>'
    return (
        f'{s.bar()}<div class="split pad">{s.side()}<div class="wide col"><div class="row between">'
        f"<h1>{s.pick('Dashboard', 'Overview', 'Today')}</h1>"
        f'<div class="row">{s.button()}{s.button(main=True)}</div></div><div class="row">{figures}</div>'
        f'<div class="split">{chart}{todo}</div></div></div>'
    )


def files(s: ScreenBuilder) -> str:
    kinds = ["txt", "pdf", "png", "csv", "docx", "zip"]
    rows = []
    for _ in range(s.pick(5, 7, 9)):
        folder = s.maybe(0.3)
        name = s.noun() if folder else f"{s.noun()}{s.pick('', '-' + s.noun(), s.figure())}.{s.pick(*kinds)}"
        picture = icon("folder" if folder else "bookmark", named=False)
        rows.append([f"{picture} {name}", f"{s.number(1, 998)} KB", s.date(), s.icon_button("more")])
    tools = "".join(s.icon_button(name) for name in s.some(NAMES, s.pick(3, 4, 5)))
    top = s.top(s.icon_button("arrow left") + s.crumbs(), tools)
    table = s.table(["Name", "Size", "Modified", ""], rows)
    return f'{top}<div class="split pad">{s.side()}<div class="wide">{table}</div></div>'


def menus(s: ScreenBuilder) -> str:
    """A menu bar with one menu open over the page."""
    names = s.some(MENU, s.pick(4, 5, 6))
    bar = "".join(f'<div role="menuitem" style="padding:.2rem .7rem">{name}</div>' for name in names)
    items = "".join(
        f'<div role="menuitem">{text}</div>' for text in dict.fromkeys(s.caption() for _ in range(s.pick(4, 6, 8)))
    )
    paint = "background:#eee;border:1px solid #999;" if s.theme.bare else ""
    left, top = s.pick(1, 5, 10, 16), s.pick(2.6, 4, 7)
    style = f"position:absolute;left:{left}rem;top:{top}rem;min-width:10rem;{paint}"
    body = "".join(f"<p>{s.paragraph(3)}</p>" for _ in range(3))
    body += f'<div class="row">{"".join(s.button() for _ in range(3))}</div>'
    return (
        f'<div class="bar" style="display:flex">{bar}</div><div class="pad">{body}</div>'
        f'<div class="menu" style="{style}">{items}</div>'
    )


def dialog(s: ScreenBuilder) -> str:
    return s.pick(table, cards, article, settings, form)(s) + s.dialog()


def booking(s: ScreenBuilder) -> str:
    search_row = "".join(
        f'<div class="wide">{s.field(name)}</div>' for name in ("From", "To", *s.some(FIELDS, s.pick(1, 2)))
    )
    offers = "".join(
        f'<div class="card row between"><div><strong>{s.city()} – {s.city()}</strong>'
        f'<div class="muted">{s.time()} to {s.time()}, {s.pick("direct", "1 stop", "2 stops")}</div></div>'
        f"<div>{s.price()}</div>{s.button(s.pick('Select', 'Book now', 'Details'))}</div>"
        for _ in range(s.pick(2, 3, 4))
    )
    filters = s.ticks(s.pick(2, 3, 4))
    return (
        f'{s.bar()}<div class="pad col"><div class="card row">{search_row}{s.button("Search", main=True)}</div>'
        f'<div class="split"><div class="side card"><h3>Filters</h3>{filters}</div>'
        f'<div class="wide col">{offers}</div></div></div>'
    )


def calendar(s: ScreenBuilder) -> str:
    first = s.chance.randrange(7)
    days = [""] * first + [str(day) for day in range(1, s.pick(28, 30, 31) + 1)]
    days += [""] * (-len(days) % 7)
    cell = '<button class="ghost">{}</button>'
    rows = [[cell.format(day) if day else "" for day in days[week : week + 7]] for week in range(0, len(days), 7)]
    head = f"{s.icon_button('arrow left')}<h2>{s.pick(*MONTHS)} {s.number(1990, 2040)}</h2>"
    head += s.icon_button("arrow right")
    events = "".join(f"<p>{s.time()} {s.title(2)}</p>" for _ in range(s.pick(2, 3, 4)))
    table = s.table(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], rows)
    return (
        f'{s.bar()}<div class="split pad"><div class="card wide"><div class="row">{head}</div>{table}</div>'
        f'<div class="card side"><h3>Events</h3>{events}{s.button("Add event", main=True)}</div></div>'
    )


def inbox(s: ScreenBuilder) -> str:
    rows = "".join(
        f'<div class="row" style="border-bottom:1px solid #8884;padding:.4rem">'
        f'<input type="checkbox"{" checked" * s.maybe(0.2)}>{s.icon_button("star")}'
        f"<strong style='width:9rem'>{s.name()}</strong><span class='wide'>{s.sentence(3, 6)}</span>"
        f'<span class="muted">{s.date()}</span></div>'
        for _ in range(s.pick(6, 8, 10))
    )
    tools = "".join(
        s.button(name) for name in s.some(["Reply", "Archive", "Delete", "Forward", "Spam", "Mark as read"], 4)
    )
    return (
        f'<div class="bar row between"><strong>{s.pick("Mail", "Inbox", "Post")}</strong>'
        f'<div class="row">{tools}</div></div>'
        f'<div class="split pad">{s.side()}<div class="wide card">{rows}</div></div>'
    )


def chat(s: ScreenBuilder) -> str:
    people = "".join(link(s.name()) for _ in range(s.pick(4, 6)))
    said = "".join(
        f'<div class="card" style="align-self:{s.pick("flex-start", "flex-end")};max-width:26rem">'
        f'<div class="muted">{s.first()}, {s.time()}</div>{s.sentence()}</div>'
        for _ in range(s.pick(3, 4, 5))
    )
    return (
        f'<div class="split pad"><div class="side card">{people}</div><div class="wide col">{said}<div class="row">'
        f'<input class="in" style="width:20rem" placeholder="Write a message">{s.button("Send", main=True)}'
        f"{s.icon_button('camera')}</div></div></div>"
    )


TEMPLATES: dict[str, DrawScreen] = {
    each.__name__: each
    for each in (login, form, search, table, cards, settings, article, dashboard, files, menus, dialog, booking)
}
HELD_OUT: dict[str, DrawScreen] = {each.__name__: each for each in (calendar, inbox, chat)}


def _cell(s: ScreenBuilder, head: str) -> str:
    known: dict[str, Callable[[], str]] = {"Name": s.name, "Owner": s.first, "Email": s.email, "City": s.city}
    known |= {"Price": s.price, "Total": s.price, "Amount": s.price, "Date": s.date, "Due": s.date}
    known |= {"Status": lambda: s.pick(*STATUS), "ID": s.code, "Code": s.code, "Time": s.time}
    return known.get(head, s.pick(s.figure, s.label, s.word))()
