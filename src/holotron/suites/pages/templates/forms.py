"""Forms that are filled in and sent."""

from __future__ import annotations

from holotron.suites.kit.words import DEPARTMENTS, MONTHS, SENTENCES
from holotron.suites.pages.behaviour import shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.task import template

# data.fields: [id, value] of text fields; data.lists: of drop-down lists; data.boxes: [id, on].
# What is missing is said and can be put right; what is wrong is sent.
FORM_SCRIPT = shared_script("forms")
FORM = FORM_SCRIPT + "aim({ steps: filling });"


def thanks(s: PageBuilder, *texts: str) -> str:
    return view("thanks", s.heading(s.pick(*texts)), s.prose(1))


@template()
def contact(s: PageBuilder) -> PageContent:
    name, message = s.person(), s.pick(*SENTENCES[3:])
    mail = s.mail(name)
    parts = [s.field("name", s.pick("Name", "Your name")), s.field("mail", s.pick("E-mail", "Your e-mail", "Email"))]
    fields = [["name", name], ["mail", mail], ["message", message]]
    lists, about = [], ""
    if s.maybe(0.4):
        topics = s.some(DEPARTMENTS, 4)
        chosen = s.pick(*topics)
        lists, about = [["topic", chosen]], f" to {chosen}"
        parts.append(s.select("topic", s.pick("Department", "To", "Send to"), ["-", *topics], "-"))
    parts.append(s.field("message", s.pick("Message", "Your message", "Text"), "area"))
    text = s.wording("contact", about=about, name=name, mail=mail, message=message)
    title = s.pick("Contact us", "Contact", "Write to us", "Get in touch")
    intro = s.optional(0.5, lambda: s.prose(s.number(1, 2)))
    form = s.form(*parts, s.submit("Send", "Send message", "Submit"))
    body = view("form", s.heading(title), intro, form, first=True) + thanks(s, "Thank you", "Your message was sent")
    return PageContent(text, body, {"fields": fields, "lists": lists}, title, FORM)


@template()
def booking(s: PageBuilder) -> PageContent:
    """With a date to be typed, sometimes said in another form than the field wants."""
    name, day, month, year = s.person(), s.number(1, 28), s.number(1, 12), s.number(2026, 2028)
    form, typed = s.pick(
        ("YYYY-MM-DD", f"{year}-{month:02d}-{day:02d}"),
        ("DD.MM.YYYY", f"{day:02d}.{month:02d}.{year}"),
        ("MM/DD/YYYY", f"{month:02d}/{day:02d}/{year}"),
    )
    said = typed if s.maybe(0.65) else f"{day} {MONTHS[month - 1]} {year}"
    guests = str(s.number(1, 8))
    what, title = s.pick(("a table", "Book a table"), ("a room", "Room booking"), ("a tour", "Guided tours"))
    text = s.wording("booking", what=what, guests=guests, said=said, name=name)
    parts = [
        s.field("name", s.pick("Name", "Guest name")),
        s.field("date", f"{s.pick('Date', 'Day', 'Arrival')} ({form})"),
        s.select("guests", s.pick("Guests", "People", "Persons"), [str(n) for n in range(1, 9)], s.pick("1", "2")),
    ]
    sending = s.form(*parts, s.submit("Book", "Reserve", "Book now", "Send request"))
    body = view("form", s.heading(title), sending, first=True) + thanks(s, "Booked!", "We look forward to your visit")
    data = {"fields": [["name", name], ["date", typed]], "lists": [["guests", guests]]}
    return PageContent(text, body, data, title, FORM)


@template(held_out=True)
def newsletter(s: PageBuilder) -> PageContent:
    """One field among a page's text."""
    mail = s.mail(s.person())
    text = s.wording("newsletter", mail=mail)
    offer = s.pick("Newsletter", "Stay up to date", "News by mail")
    form = s.form(s.field("mail", s.pick("E-mail", "Your e-mail address")), s.submit("Subscribe", "Sign up", "OK"))
    box = f'<div class="tile"><h2>{offer}</h2>{form}</div>'
    heading = s.heading(s.pick("News", "Our farm", "The observatory"))
    body = view("form", heading, s.prose(3), box, s.prose(2), first=True)
    body += thanks(s, "You are subscribed", "Thank you")
    return PageContent(text, body, {"fields": [["mail", mail]], "by_key": s.maybe()}, "News", FORM)
