"""Logging in and signing up."""

from __future__ import annotations

from holotron.suites.kit.words import COUNTRIES
from holotron.suites.pages.behaviour import own_script, shared_script
from holotron.suites.pages.builder import PageBuilder, PageContent, dialog, view
from holotron.suites.pages.task import template
from holotron.suites.pages.templates.forms import FORM, thanks

WHO = ("User name", "Username", "E-mail", "Login", "User", "E-mail or user name", "Account")
ENTER = ("Log in", "Sign in", "Login", "Enter", "Continue", "Go")
# A wrong name or password is said, and can be put right.
LOGIN_SCRIPT = shared_script("logins")
LOGIN = LOGIN_SCRIPT + "aim({ steps: entering });"


def _login_form(s: PageBuilder, *, remember: bool = False) -> str:
    box = s.check("remember", s.pick("Remember me", "Keep me signed in", "Stay logged in")) if remember else ""
    more = s.pick(
        "", "", '<p><a href="#">Forgot password?</a></p>', '<p>New here? <a href="#">Create an account</a></p>'
    )
    return s.form(
        s.field("user", s.pick(*WHO)),
        s.field("password", s.pick("Password", "Pass", "Your password"), "password"),
        box,
        f'<div class="row">{s.submit(*ENTER)}</div>',
        more,
    )


def _welcome(s: PageBuilder, user: str) -> str:
    greeting = s.pick("Welcome, {}!", "Hello {}", "You are logged in as {}", "Good to see you, {}").format(user)
    return view("inside", s.heading(greeting), s.prose(2), '<p><a href="#">Log out</a></p>')


@template()
def login(s: PageBuilder) -> PageContent:
    user, password = s.pick(s.user, s.user, s.mail)(), s.password()
    intro = s.optional(0.4, lambda: s.prose(1))
    heading = s.heading(s.pick("Log in", "Sign in", "Welcome back", "Members", "Login"))
    body = view("form", heading, intro, _login_form(s), first=True)
    text = s.wording("login", user=user, password=password)
    body += _welcome(s, user)
    return PageContent(text, body, {"user": user, "password": password, "by_key": s.maybe()}, "Log in", LOGIN)


@template()
def login_remember(s: PageBuilder) -> PageContent:
    user, password = s.user(), s.password()
    text = s.wording("login_remember", user=user, password=password)
    heading = s.heading(s.pick("Log in", "Sign in", "Your account"))
    body = view("form", heading, _login_form(s, remember=True), first=True)
    data = {"user": user, "password": password, "remember": True, "by_key": False}
    return PageContent(text, body + _welcome(s, user), data, "Sign in", LOGIN)


@template(held_out=True)
def login_popup(s: PageBuilder) -> PageContent:
    """The form appears only after a click on a link of the start page."""
    user, password = s.user(), s.password()
    opener = s.pick("Log in", "Sign in", "Members' area", "My account")
    heading = s.heading(s.pick("Welcome", "Our club", "The village choir", "Photo archive"))
    buttons = f'<div class="row">{s.button("open", opener, "main")}{s.button("other", "Join us")}</div>'
    start = view("form", heading, s.prose(3), buttons, s.prose(2), first=True)
    inside = f"<h2>{opener}</h2>{_login_form(s)}{s.button('close', 'Cancel')}"
    popup = dialog(inside, "popup", hidden=True)
    text = s.wording("login", user=user, password=password)
    body = start + popup + _welcome(s, user)
    data = {"user": user, "password": password, "by_key": s.maybe()}
    return PageContent(text, body, data, "Welcome", LOGIN_SCRIPT + own_script("login_popup"))


@template()
def signup(s: PageBuilder) -> PageContent:
    name, password = s.person(), s.password()
    mail = s.mail(name)
    fields = [["name", name], ["mail", mail], ["password", password]]
    parts = [
        s.field("name", s.pick("Name", "Full name", "Your name")),
        s.field("mail", s.pick("E-mail", "Email address")),
        s.field("password", s.pick("Password", "Choose a password"), "password"),
    ]
    if s.maybe(0.3):
        parts.append(s.field("again", s.pick("Repeat password", "Confirm password"), "password"))
        fields.append(["again", password])
    lists, country = [], ""
    if s.maybe(0.4):
        choices = sorted(s.some(COUNTRIES, 6))
        chosen = s.pick(*choices)
        country, lists = f" from {chosen}", [["country", chosen]]
        parts.append(s.select("country", "Country", ["Please choose", *choices], "Please choose"))
    boxes = []
    if s.maybe(0.4):
        parts.append(s.check("terms", s.pick("I accept the terms", "I agree to the terms of use")))
        boxes = [["terms", True]]
    text = s.wording("signup", name=name, mail=mail, password=password, country=country)
    title = s.pick("Sign up", "Create account", "Register", "Join us")
    if boxes:
        text = text.rstrip(".") + s.pick(", accept the terms", " and accept the terms", " and agree to the terms")
    form = s.form(*parts, s.submit("Sign up", "Create account", "Register", "Join", "Submit"))
    body = view("form", s.heading(title), form, first=True) + thanks(s, "Your account is ready", f"Welcome, {name}")
    return PageContent(text, body, {"fields": fields, "lists": lists, "boxes": boxes}, title, FORM)
