"""Words, names and sentences that generated pages and screens are filled with.

What a seed draws depends on the length and order of these lists: changing one moves every page that draws from it. So
screens keep their own names, cities, countries and colours.
"""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    """Entries are separated by blanks; a + stands for a blank within one."""
    return tuple(entry.replace("+", " ") for entry in text.split())


FIRST_NAMES = _listed("""
    Ada Alan Amara Anna Ben Carla Chen Clara David Diego Elena Emil Farid Fatima Grace Hana Hugo Ines Ivan Jonas Julia
    Kofi Lara Leo Lina Luca Maria Marta Mina Nadia Nils Nora Olga Omar Paul Petra Priya Rosa Ruth Sam Sara Sofia Tara
    Theo Tom Vera Victor Wei Yara Zoe
""")
LAST_NAMES = _listed("""
    Abbott Baker Becker Bauer Brown Costa Diaz Evans Fischer Garcia Green Haas Hall Ito Jensen Khan Klein Lang Lee Lopez
    Meyer Moreau Nowak Okafor Patel Price Quinn Reed Rossi Sato Schmidt Silva Stone Turner Vogel Walker Weber White
    Young Zhang
""")
CITIES = _listed("""
    Berlin Lisbon Oslo Vienna Madrid Dublin Paris Rome Athens Prague Zurich Boston Denver Seattle Chicago Austin Toronto
    Kyoto Osaka Seoul Cairo Lagos Nairobi Lima Bogota Sydney Perth Delhi Mumbai Hanoi
""")
COUNTRIES = _listed("""
    Austria Belgium Brazil Canada Chile Denmark Egypt Finland France Germany Ghana Greece India Ireland Italy Japan
    Kenya Mexico Norway Peru Poland Portugal Spain Sweden Turkey
""")
COLOURS = _listed("blue red green black white yellow grey orange purple brown silver pink")
SCREEN_FIRST_NAMES = _listed("""
    Ada Ben Carla Dmitri Elena Farid Grace Hugo Ines Jonas Kira Leo Mina Noor Oscar Priya Quentin Rosa Sven Tara Umar
    Vera Wanda Xavier Yara Zoe Alan Beth Cyril Dora Emil Fiona Gus Hana Ivan Julia Karl Lena Marco Nina Otto Paula Remy
    Sara Theo Ursula Victor Wim Yuki Zane Amara Bruno Celia Diego Esther Felix Gita Henry Iris Jack
""")
SCREEN_LAST_NAMES = _listed("""
    Abbott Baker Castillo Dawson Eriksen Fischer Garcia Hughes Ito Jansen Kowalski Larsen Moreau Novak Okafor Petrov
    Quinn Rossi Schmidt Tanaka Underwood Vasquez Weber Xu Young Zimmer Andersson Bianchi Costa Dubois Evans Fontaine
    Greene Haddad Ibrahim Jones Khan Lopez Murphy Nguyen Olsen Park Reyes Singh Taylor Vogel Walsh Wright
""")
SCREEN_CITIES = _listed("""
    Amsterdam Athens Berlin Boston Cairo Chicago Dakar Delhi Dublin Geneva Hanoi Helsinki Istanbul Jakarta Kyoto Lagos
    Lima Lisbon London Lyon Madrid Manila Mexico+City Milan Montreal Mumbai Nairobi Naples New+York Osaka Oslo Paris
    Prague Quito Riga Rome Santiago Seattle Seoul Sofia Sydney Tallinn Tokyo Toronto Tunis Turin Vienna Warsaw Zurich
""")
SCREEN_COUNTRIES = _listed("""
    Argentina Austria Belgium Brazil Canada Chile China Denmark Egypt Estonia Finland France Germany Ghana Greece India
    Ireland Italy Japan Kenya Mexico Morocco Norway Peru Poland Portugal Senegal Spain Sweden Turkey Vietnam
""")
SCREEN_COLOURS = _listed("""
    red blue green yellow orange purple pink black white grey brown cyan magenta teal navy olive maroon gold
""")
ORDINALS = ("first", "second", "third", "fourth", "fifth")
MONTHS = _listed("January February March April May June July August September October November December")

# ---- things and deeds ----

THINGS = _listed("""
    kettle lamp chair backpack umbrella teapot notebook blanket scarf jacket bottle clock mirror pillow basket candle
    speaker keyboard camera wallet vase towel bicycle helmet guitar tent toaster blender fan mug
""")
TODOS = _listed("""
    Buy+milk Call+the+dentist Water+the+plants Pay+the+rent Book+a+flight Clean+the+kitchen Send+the+invoice
    Read+chapter+three Fix+the+bicycle Walk+the+dog Order+new+shoes Renew+passport Write+to+grandma Charge+the+camera
    Return+the+books Bake+a+cake Wash+the+car Plan+the+party Back+up+photos Buy+stamps Pick+up+the+parcel
    Iron+the+shirts Study+Spanish Sort+the+mail
""")
TOPICS = _listed("""
    Opening+hours Shipping+costs Returns+and+refunds Gift+cards Payment+methods Warranty Student+discount
    Change+of+address Lost+password Delivery+time Size+guide Cancelling+an+order Newsletter Repairs Parking
    Group+bookings
""")
SUBJECTS = _listed("""
    Meeting+on+Monday Your+invoice Holiday+photos Question+about+the+offer Lunch+tomorrow? New+project+plan
    Train+tickets Minutes+of+the+call Happy+birthday Broken+printer Budget+draft Garden+party Contract+to+sign
    Team+outing Library+reminder Flat+viewing Recipe+for+you Weekly+report
""")
DEPARTMENTS = _listed("Sales Support Finance Design Research Legal Marketing Logistics")
ROLES = _listed("Admin Editor Viewer Manager Guest Owner")
BRANDS = _listed("""
    Northwind Bluebird Oak+&+Co Pinecone Lighthouse Marigold Harbor Juniper Cobalt Foxglove Riverside Maple Sundial
    Copperfield Willow Beacon My+page Little+shop Club+portal Team+space
""")
LINKS = _listed("""
    Home About News Products Pricing Help Contact Blog Team Careers Events Gallery Docs Forum Partners Imprint Privacy
    Terms
""")
SENTENCES = (
    "We are a small team and answer within a day.",
    "Everything on this page was last checked in spring.",
    "Please have your papers at hand.",
    "Our office is closed on public holidays.",
    "Members get ten percent off all orders.",
    "The workshop starts at nine and ends at noon.",
    "You can change your mind at any time.",
    "Thank you for being with us for so many years.",
    "Bring your friends and stay for a coffee.",
    "The garden is open to everybody from May to September.",
    "Prices include taxes and delivery.",
    "We never share your data with others.",
    "New photos are added every week.",
    "This takes less than a minute.",
    "Questions are welcome, by mail or by phone.",
    "The library has more than two thousand books.",
    "Our bread is baked every morning before six.",
    "The next train leaves from the platform behind the hall.",
    "All our bowls are made by hand from local clay.",
    "Dogs are allowed if they are on a lead.",
    "Rain or shine, the market takes place every Saturday.",
    "The tour lasts about two hours with a break.",
)

# ---- words for texts without meaning ----

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
SMALL_WORDS = _listed("""
    the a of to in for on with from by at and or as under over near after before without this that every some
""")

# ---- captions of controls ----

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
MAIL_DOMAINS = _listed("example.com mail.test post.example corp.test web.example.org shop.test")

# ---- what coined words, passwords and codes are made of ----

PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
ONSETS = _listed("b br c ch d dr f fl g gr h j k l m n p pl r s st t tr v w z")
VOWELS = _listed("a e i o u ai ea ou")
ENDINGS = ("", "", "l", "m", "n", "r", "s", "t", "ck", "nd", "lt", "rk")
