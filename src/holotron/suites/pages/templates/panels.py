"""Pages of several parts, of which one shows at a time: tabs, folds, and views behind links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from holotron.suites.kit.words import SENTENCES, TOPICS
from holotron.suites.pages.behaviour import own_script, shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent, opener, view
from holotron.suites.pages.data import read_data
from holotron.suites.pages.task import template

TABS = ("Overview", "Details", "Reviews", "History", "Files", "Team", "Delivery", "Contact", "Members", "Prices")
TABS_SCRIPT = shared_script("tabs")


def _tabs(s: PageBuilder, names: list[str], inside: dict[str, str]) -> str:
    heads = "".join(f"<div>{name}</div>" for name in names)
    panels = "".join(f'<div data-panel="{name}">{s.prose(2)}{inside.get(name, "")}</div>' for name in names)
    return f'<div class="tabs">{heads}</div>{panels}'


@template()
def tabs_button(s: PageBuilder) -> PageContent:
    """A tab, or a button in one."""
    names = s.some(TABS, s.number(3, 5))
    wanted = s.pick(*names[1:])
    only = s.maybe(0.35)
    label = s.pick("Download", "Print", "Follow", "Share", "Send a copy")
    text = s.wording("tabs_open" if only else "tabs_button", label=label, tab=wanted)
    inside = {name: f'<button type="button" class="main deed" data-tab="{name}">{label}</button>' for name in names}
    title = s.pick("Project", "Course", "Garden tools", "Summer festival")
    data = {"first": names[0], "wanted": wanted, "only": only}
    script = TABS_SCRIPT + own_script("tabs_button")
    return PageContent(text, s.heading(title) + _tabs(s, names, inside), data, title, script)


@template()
def tabs_ask(s: PageBuilder) -> PageContent:
    """What is asked for stands under a tab with a fitting name."""
    facts = {
        "Prices": ("What does a ticket cost?", f"${s.price()}", "A ticket costs <b>{}</b>."),
        "Team": ("Who leads the team?", s.person(), "The team is led by <b>{}</b>."),
        "Contact": ("What is the phone number?", s.phone(), "Phone: <b>{}</b>"),
        "Delivery": ("How many days does delivery take?", str(s.number(2, 21)), "Delivery takes <b>{}</b> days."),
        "Members": ("How many members are there?", str(s.number(20, 900)), "There are <b>{}</b> members."),
        "History": ("In which year was it founded?", str(s.number(1820, 2015)), "Founded in <b>{}</b>."),
    }
    names = s.some(list(facts), s.number(3, 5))
    wanted = s.pick(*names)
    question, answer, _ = facts[wanted]
    text = s.wording("tabs_ask", q=question, lower=question[0].lower() + question[1:], tab=wanted)
    inside = {
        name: f"<p{' id=here' if name == wanted else ''}>{facts[name][2].format(escape(facts[name][1]))}</p>"
        for name in names
    }
    script = TABS_SCRIPT + 'aim({ answer: data.answer, steps: () => [opened(data.wanted), read("#here")] });'
    title = s.pick("Rowing club", "Open-air cinema", "Village theatre")
    data = {"first": names[0], "wanted": wanted, "answer": answer}
    return PageContent(text, s.heading(title) + _tabs(s, names, inside), data, title, script)


FOLD_SCRIPT = shared_script("folds")


def _folds(topics: list[str], texts: list[str], signs: tuple[str, str]) -> str:
    return "".join(
        f'<div class="fold"><div class="head"><span>{signs[0]}</span>{topic}</div>'
        f'<div class="inside" hidden>{text}</div></div>'
        for topic, text in zip(topics, texts, strict=True)
    )


@template()
def accordion_open(s: PageBuilder) -> PageContent:
    topics = s.some(TOPICS, s.number(4, 8))
    index = s.number(0, len(topics) - 1)
    text = s.wording("accordion_open", topic=topics[index], lower=topics[index].lower())
    signs = s.pick(("+ ", "− "), ("▸ ", "▾ "), ("", ""))
    title = s.pick("Questions and answers", "Help", "FAQ", "Good to know")
    body = s.heading(title) + _folds(topics, [" ".join(s.some(SENTENCES, 2)) for _ in topics], signs)
    script = FOLD_SCRIPT + "aim({ solved: () => shown(inside()), steps: () => [unfolded()] });"
    return PageContent(text, body, {"index": index, "signs": signs}, title, script)


@template()
def accordion_ask(s: PageBuilder) -> PageContent:
    facts = {
        "Shipping costs": ("What does shipping cost?", f"${s.price()}", ""),
        "Delivery time": ("How many days until delivery?", str(s.number(2, 14)), " days"),
        "Warranty": ("How many years of warranty are there?", str(s.number(1, 10)), " years"),
        "Student discount": ("How many percent discount do students get?", str(s.number(5, 40)), " percent"),
        "Returns and refunds": ("Within how many days can I return things?", str(s.number(10, 60)), " days"),
        "Opening hours": ("When do you close?", f"{s.number(4, 10)} pm", ""),
        "Parking": ("How many parking places are there?", str(s.number(12, 400)), " places"),
    }
    topics = s.some(list(facts), s.number(4, 6))
    index = s.number(0, len(topics) - 1)
    question, answer, _ = facts[topics[index]]
    text = s.wording("accordion_ask", q=question, lower=question[0].lower() + question[1:])
    said = {topic: f"{topic}: <b>{value}</b>{unit}." for topic, (_, value, unit) in facts.items()}
    texts = [f"{s.pick(*SENTENCES)} {said[topic]}" for topic in topics]
    signs = s.pick(("+ ", "− "), ("▸ ", "▾ "))
    script = FOLD_SCRIPT + "aim({ answer: data.answer, steps: () => [unfolded(), read(inside())] });"
    data = {"index": index, "signs": signs, "answer": answer}
    heading = s.heading(s.pick("FAQ", "Your questions", "Help"))
    return PageContent(text, heading + _folds(topics, texts, signs), data, "FAQ", script)


PLACES: Mapping[str, Sequence[str]] = read_data("choices")["places"]


@template()
def navigate(s: PageBuilder) -> PageContent:
    """Two links deep, with a way back; sometimes with a button at the end."""
    sections = s.some(list(PLACES), s.number(3, 5))
    section = s.pick(*sections)
    place = s.pick(*PLACES[section])
    deed = s.pick("Book", "Add to favourites", "Print") if s.maybe(0.4) else ""
    text = s.wording("navigate", section=section, place=place, deed=f" and click {deed}" if deed else "")
    kind, around = s.pick(
        ("link", "{}"), ("tile", '<div class="grid">{}</div>'), ("button", '<div class="row">{}</div>')
    )

    def links(*places: tuple[str, str]) -> str:
        return around.format("".join(opener(kind, label, "go", f' data-to="{to}"') for to, label in places))

    home = opener("link", s.pick("← Back", "Home", "Back to start"), "go", ' data-to="home"')
    heading = s.heading(s.pick("Welcome", "Start", "Our house"))
    body = view("home", heading, s.prose(2), links(*((name, name) for name in sections)), first=True)
    for name in sections:
        deeper = links(*((f"{name}/{deep}", deep) for deep in PLACES[name]))
        body += view(name, home, s.heading(name), s.prose(1), deeper)
        for deep in PLACES[name]:
            button = f'<button type="button" class="main deed">{deed}</button>' if deed else ""
            body += view(f"{name}/{deep}", home, s.heading(deep), s.prose(2), button)
    data = {"section": section, "place": f"{section}/{place}", "deed": deed}
    return PageContent(text, body, data, "Welcome")
