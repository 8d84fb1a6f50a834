"""What generated pages say: plausible words and strings, drawn from a seed."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def _listed(text: str) -> tuple[str, ...]:
    """Entries are separated by blanks; a + stands for a blank within one."""
    return tuple(entry.replace("+", " ") for entry in text.split())


FIRST = _listed("""
    Ada Ben Carla Dmitri Elena Farid Grace Hugo Ines Jonas Kira Leo Mina Noor Oscar Priya Quentin Rosa Sven Tara Umar
    Vera Wanda Xavier Yara Zoe Alan Beth Cyril Dora Emil Fiona Gus Hana Ivan Julia Karl Lena Marco Nina Otto Paula Remy
    Sara Theo Ursula Victor Wim Yuki Zane Amara Bruno Celia Diego Esther Felix Gita Henry Iris Jack
""")
LAST = _listed("""
    Abbott Baker Castillo Dawson Eriksen Fischer Garcia Hughes Ito Jansen Kowalski Larsen Moreau Novak Okafor Petrov
    Quinn Rossi Schmidt Tanaka Underwood Vasquez Weber Xu Young Zimmer Andersson Bianchi Costa Dubois Evans Fontaine
    Greene Haddad Ibrahim Jones Khan Lopez Murphy Nguyen Olsen Park Reyes Singh Taylor Vogel Walsh Wright
""")
CITIES = _listed("""
    Amsterdam Athens Berlin Boston Cairo Chicago Dakar Delhi Dublin Geneva Hanoi Helsinki Istanbul Jakarta Kyoto Lagos
    Lima Lisbon London Lyon Madrid Manila Mexico+City Milan Montreal Mumbai Nairobi Naples New+York Osaka Oslo Paris
    Prague Quito Riga Rome Santiago Seattle Seoul Sofia Sydney Tallinn Tokyo Toronto Tunis Turin Vienna Warsaw Zurich
""")
COUNTRIES = _listed("""
    Argentina Austria Belgium Brazil Canada Chile China Denmark Egypt Estonia Finland France Germany Ghana Greece India
    Ireland Italy Japan Kenya Mexico Morocco Norway Peru Poland Portugal Senegal Spain Sweden Turkey Vietnam
""")
COLORS = _listed("""
    red blue green yellow orange purple pink black white grey brown cyan magenta teal navy olive maroon gold
""")
NOUNS = _listed("""
    account album anchor apple archive arrow article artist atlas autumn balance balloon banner basket battery beacon
    bicycle blanket board bottle bridge bucket budget butter button cabin camera candle canvas captain carpet castle
    chapter cherry circle clock cloud coffee collar column comet contract copper corner cotton coupon cradle crystal
    curtain cushion desert device dinner document dollar dragon drawer engine evening event fabric factory feather field
    filter finger flower folder forest fountain garden ginger glacier guitar hammer harbor helmet honey hotel island
    jacket journal jungle kettle kitchen ladder lantern leather lemon letter library lizard machine magnet market meadow
    meeting melody member message meteor mirror monitor morning mountain museum needle network notebook number object
    ocean office orange orchard order package paper parcel partner pepper photo piano picture pillow planet pocket poem
    portrait printer profile project pumpkin puzzle rabbit radio record report ribbon river rocket sailor sample school
    season server shadow shelter silver singer sister socket spider spring station story street sugar summer table
    teacher temple thunder ticket tiger timber tomato tower travel tunnel turtle valley vessel village violin voyage
    wagon wallet water weather window winter wizard writer yellow
""")
ADJECTIVES = _listed("""
    able bold brave bright broad calm central cheap clean clear cold common cool curious daily dark deep early easy
    empty exact extra fair fast final fine flat free fresh gentle global golden grand great happy hidden hollow ideal
    large late light little local long lucky main major merry minor modern narrow neat new noble old open perfect plain
    proud public pure quick quiet rapid rare ready recent rich rough round secret sharp short simple slow small smart
    smooth soft solid strong sudden sweet tall thin tiny total urban useful warm weekly whole wide wild wise young
""")
VERBS = _listed("""
    add allow answer arrive ask begin bring build buy carry catch change choose clean climb close collect compare
    complete contain continue copy count cover create cross decide deliver describe draw drive enjoy enter explain
    follow gather give grow handle help hold improve include join keep learn leave listen look make measure meet move
    need offer open order paint pass pick place plan play prepare produce protect provide pull push reach read receive
    remember remove repair repeat reply return review save search select send serve share show sing speak start stay
    stop study support take teach think touch train travel turn understand use visit wait walk want wash watch write
""")
SMALL = _listed("""
    the a of to in for on with from by at and or as under over near after before without this that every some
""")
BUTTONS = _listed("""
    OK Cancel Submit Save Delete Next Back Close Apply Reset Continue Search Login Sign+in Sign+up Log+out Send Reply
    Edit Add Remove Update Confirm Yes No Accept Decline Done Finish Start Stop Pause Play Open View Download Upload
    Share Copy Print Refresh Retry Help More Less Filter Sort Export Import Create New Add+to+cart Buy+now Checkout
    Subscribe Follow Unfollow Book+now Learn+more Read+more Show+all Get+started Try+again Save+changes Add+item
    Select+all Clear Undo Redo Archive Publish Preview Register Join Invite Verify Change Discard Details Go
""")
FIELDS = _listed("""
    Name First+name Last+name Email E-mail+address Phone Username Password City Country Street Address Postcode Zip+code
    Company Job+title Website Date+of+birth Age Message Subject Comment Title Description Amount Quantity Card+number
    Promo+code Search From To Departure Return Guests Budget Notes Keyword Nickname State Department Reference Order+no.
    Account Language Currency Topic Feedback Tags Location Start+date End+date Price Weight Height Reason Category
""")
MENU = _listed("""
    Home About Products Services Pricing Blog Contact Support Docs Team News Events Gallery Careers Shop Account Orders
    Settings Profile Messages Dashboard Reports Calendar Tasks Files Projects Users Billing Help Overview Analytics
    Activity Inbox Archive Library Explore Community Downloads Partners Forum FAQ Privacy Terms Security Status Updates
    File Edit View Insert Format Tools Window Favourites Recent Shared Trash History Notifications Integrations
""")
TABLE_HEADS = _listed("""
    Name ID Price Qty Date City Status Type Owner Size Total Stock Rating Code Email Country Amount Due Phone Team Score
    Rank Year Version Region Role Updated Items Points Wins Speed Level Floor Gate Time
""")
STATUS = _listed("""
    Open Closed Pending Active Paid Draft Done Failed New Shipped Blocked Late Ready Sent Overdue Approved
""")
OPTIONS = _listed("""
    Weekly+newsletter Remember+me I+agree+to+the+terms Send+me+a+copy Express+shipping Gift+wrap Dark+mode Auto-save
    Show+hidden+files Email+alerts Push+notifications Public+profile Two-step+login Spell+check Sound Location+access
    Share+usage+data Compact+view Keep+me+signed+in Offline+mode Small Medium Large Standard Priority Economy Business
    Credit+card Bank+transfer Cash Monthly Yearly Beginner Advanced Morning Afternoon Evening Vegan Breakfast+included
""")
MONTHS = _listed("""
    January February March April May June July August September October November December
""")
DOMAINS = ("example.com", "mail.test", "post.example", "corp.test", "web.example.org", "shop.test")


class Words:
    """A source of text; everything it says follows from its random generator."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, options: Sequence[T]) -> T:
        return self.chance.choice(options)

    def some(self, options: Sequence[str], count: int) -> list[str]:
        """Different entries of a list, fewer where it has no more."""
        return self.chance.sample(list(options), min(count, len(options)))

    def maybe(self, probability: float) -> bool:
        return self.chance.random() < probability

    def first(self) -> str:
        return self.pick(FIRST)

    def name(self) -> str:
        return f"{self.pick(FIRST)} {self.pick(LAST)}"

    def city(self) -> str:
        return self.pick(CITIES)

    def email(self) -> str:
        return f"{self.pick(FIRST)}{self.pick(['.', '_', ''])}{self.pick(LAST)}@{self.pick(DOMAINS)}".lower()

    def string(self, shortest: int = 2, longest: int = 8) -> str:
        """Letters that mean nothing, as reading must not rely on guessing."""
        letters = self.pick([string.ascii_lowercase, string.ascii_letters, string.ascii_letters + string.digits])
        return "".join(self.pick(letters) for _ in range(self.chance.randint(shortest, longest)))

    def number(self) -> str:
        value = self.chance.randrange(10 ** self.chance.randint(1, 5))
        return self.pick([f"{value}", f"{value}", f"{value:,}", f"{value / 10:.1f}", f"{self.chance.randrange(101)}%"])

    def price(self) -> str:
        value = self.chance.randrange(100, 10 ** self.chance.randint(3, 6)) / 100
        return self.pick(["${:,.2f}", "${:.0f}", "€{:.2f}", "£{:.2f}", "{:.2f} EUR"]).format(value)

    def date(self) -> str:
        year, month, day = self.chance.randint(1960, 2034), self.chance.randint(1, 12), self.chance.randint(1, 28)
        name = MONTHS[month - 1]
        return self.pick(
            [
                f"{year}-{month:02d}-{day:02d}",
                f"{month:02d}/{day:02d}/{year}",
                f"{day} {name[:3]} {year}",
                f"{name} {day}, {year}",
                f"{name[:3]} {day}",
            ]
        )

    def time(self) -> str:
        hour, minute = self.chance.randrange(24), self.chance.randrange(0, 60, 5)
        return f"{hour}:{minute:02d}" if self.maybe(0.5) else f"{hour % 12 or 12}:{minute:02d} {'AP'[hour // 12]}M"

    def code(self) -> str:
        return f"{self.string(2, 3).upper()}-{self.chance.randrange(10000)}"

    def word(self) -> str:
        return self.pick(self.pick([NOUNS, NOUNS, ADJECTIVES, VERBS]))

    def noun(self) -> str:
        return self.pick(NOUNS)

    def label(self) -> str:
        """A short caption of any sort."""
        draw = self.chance.random()
        if draw < 0.35:
            return self.word().capitalize()
        if draw < 0.5:
            return self.string()
        if draw < 0.6:
            return self.first()
        if draw < 0.75:
            return self.title(2)
        return self.pick([self.city, self.number, self.date, self.code, self.price, self.word])()

    def title(self, words: int = 3) -> str:
        parts = [self.pick(ADJECTIVES) for _ in range(words - 1)] + [self.noun()]
        return " ".join(part.capitalize() for part in parts) if self.maybe(0.5) else " ".join(parts).capitalize()

    def product(self) -> str:
        return (
            f"{self.pick(ADJECTIVES).capitalize()} {self.noun().capitalize()}{self.pick(['', '', ' ' + self.code()])}"
        )

    def sentence(self, shortest: int = 4, longest: int = 12) -> str:
        parts: list[str] = []
        for index in range(self.chance.randint(shortest, longest)):
            parts.append(self.pick(SMALL) if index % 3 == 1 or (index % 3 == 2 and self.maybe(0.3)) else self.word())
        return " ".join(parts).capitalize() + self.pick([".", ".", ".", "!", "?"])

    def paragraph(self, sentences: int) -> str:
        return " ".join(self.sentence() for _ in range(sentences))

    def button(self) -> str:
        return self.pick(BUTTONS) if self.maybe(0.8) else self.label()

    def value(self) -> str:
        """Something typed into a field."""
        makers = [
            self.word,
            self.name,
            self.city,
            self.number,
            self.date,
            self.email,
            self.string,
            self.code,
            self.first,
        ]
        return self.pick(makers)()
