"""Tables: rows to be found, acted on, sorted and asked about."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from holotron.suites.kit.html import cells, definitions
from holotron.suites.kit.words import CITIES, DEPARTMENTS, ROLES
from holotron.suites.pages.behaviour import READ_HERE
from holotron.suites.pages.builder import PageBuilder, PageContent, and_list, view
from holotron.suites.pages.task import template


def _people(s: PageBuilder, count: int) -> tuple[list[str], list[dict[str, str]]]:
    """Some columns, and rows of different people."""
    makers: dict[str, Callable[[], str]] = {
        "City": lambda: s.pick(*s.fresh(CITIES)),
        "Department": lambda: s.pick(*DEPARTMENTS),
        "Role": lambda: s.pick(*ROLES),
        "Age": lambda: str(s.number(19, 75)),
        "Phone": s.phone,
        "Amount": lambda: f"${s.number(10, 990)}.{s.pick('00', '50', '90')}",
    }
    columns = ["Name", *s.some(list(makers), s.number(2, 3))]
    rows = [{"Name": name, **{column: makers[column]() for column in columns[1:]}} for name in s.people(count)]
    return columns, rows


def _cells(columns: list[str], row: dict[str, str]) -> str:
    return cells(escape(row[column]) for column in columns)


def _table(columns: list[str], rows: list[str], extra: str = "") -> str:
    return f"<table><thead><tr>{cells(columns, 'th')}{extra}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


@template(wide=True)
def table_button(s: PageBuilder) -> PageContent:
    """A button in the row of a person."""
    columns, rows = _people(s, s.number(4, 9))
    labels = s.some(("Edit", "Delete", "View", "Call", "Block", "Pay"), s.number(1, 3))
    label, index = s.pick(*labels), s.number(0, len(rows) - 1)
    text = s.wording("table_button", label=label, lower=label.lower(), name=rows[index]["Name"])
    small = s.pick("small", "small", "link")
    made = []
    for at, row in enumerate(rows):
        acts = (f'<button type="button" class="{small} act" data-is="{at}/{word}">{word}</button>' for word in labels)
        made.append(f"<tr>{_cells(columns, row)}<td>{' '.join(acts)}</td></tr>")
    title = s.pick("Customers", "Members", "Users", "Employees")
    data = {"is": f"{index}/{label}", "done": f"{label}: {rows[index]['Name']}"}
    return PageContent(text, s.heading(title) + _table(columns, made, "<th></th>"), data, title)


@template(wide=True)
def table_row(s: PageBuilder) -> PageContent:
    """A row told by one of its values, opened by a click."""
    columns, rows = _people(s, s.number(5, 10))
    column = s.pick(*columns[1:])
    index = s.number(0, len(rows) - 1)
    value = rows[index][column]
    for at, row in enumerate(rows):  # no other row may have it
        while at != index and row[column] == value:
            row[column] = _people_value(s, column)
    text = s.wording("table_row", column=column.lower(), value=value)
    made = [
        f'<tr><td><a href="#" class="open" data-index="{at}">{escape(row["Name"])}</a></td>'
        f"{_cells(columns[1:], row)}</tr>"
        for at, row in enumerate(rows)
    ]
    title = s.pick("Contacts", "Staff", "Orders", "Guests")
    body = view("all", s.heading(title), _table(columns, made), first=True)
    body += view("one", s.heading(rows[index]["Name"]), definitions(rows[index]))
    return PageContent(text, body, {"index": index}, title)


def _people_value(s: PageBuilder, column: str) -> str:
    while True:
        columns, rows = _people(s, 1)
        if column in columns:
            return rows[0][column]


@template(wide=True)
def table_ask(s: PageBuilder) -> PageContent:
    columns, rows = _people(s, s.number(4, 10))
    column, row = s.pick(*columns[1:]), s.pick(*rows)
    text = s.wording("table_ask", column=column.lower(), name=row["Name"])
    made = [f"<tr{' id=here' if other is row else ''}>{_cells(columns, other)}</tr>" for other in rows]
    title = s.pick("People", "Club members", "Visitors", "Payroll")
    return PageContent(text, s.heading(title) + _table(columns, made), {"value": row[column]}, title, READ_HERE)


@template(held_out=True, wide=True)
def table_tick(s: PageBuilder) -> PageContent:
    """Rows are ticked, then something is done with them."""
    columns, rows = _people(s, s.number(4, 7))
    chosen = sorted(s.some(range(len(rows)), s.number(1, 3)))
    who = and_list([rows[index]["Name"] for index in chosen])
    deeds = s.some(("Delete", "Archive", "Invite", "Export"), 2)
    deed = s.pick(*deeds)
    text = s.wording("table_tick", deed=deed, who=who, lower=deed.lower())
    made = [
        f'<tr><td><input type="checkbox" id="t{at}" aria-label="select"></td>{_cells(columns, row)}</tr>'
        for at, row in enumerate(rows)
    ]
    buttons = "".join(f'<button type="button" class="deed">{word}</button>' for word in deeds)
    above = s.maybe()
    bar = f'<div class="row" style="margin:1em 0">{buttons}</div>'
    table = _table(["", *columns], made)
    title = s.pick("Subscribers", "Applicants", "Team")
    body = s.heading(title) + (bar + table if above else table + bar)
    return PageContent(text, body, {"deed": deed, "chosen": chosen}, title)


@template(wide=True)
def table_sort(s: PageBuilder) -> PageContent:
    """Sorted by a click on a column's head; a second click turns the order round."""
    names = s.people(s.number(5, 9))
    rows = [{"Name": name, "Points": s.number(1, 999), "Year": s.number(1950, 2020)} for name in names]
    column = s.pick("Name", "Points", "Year")
    down = s.maybe(0.4)
    text = s.wording(
        "table_sort",
        column=column.lower() if s.maybe() else column,
        how=", highest first" if down and column != "Name" else ", Z to A" if down else "",
    )
    title = s.pick("Results", "High scores", "Archive", "Ranking")
    body = s.heading(title) + '<table><thead><tr id="head"></tr></thead><tbody></tbody></table>'
    columns = s.some(("Name", "Points", "Year"), 3)
    return PageContent(text, body, {"rows": rows, "columns": columns, "column": column, "down": down}, title)
