"""Names, things and sentences the pages are filled with."""

from __future__ import annotations

FIRST_NAMES = (
    "Ada", "Alan", "Amara", "Anna", "Ben", "Carla", "Chen", "Clara", "David", "Diego", "Elena", "Emil", "Farid",
    "Fatima", "Grace", "Hana", "Hugo", "Ines", "Ivan", "Jonas", "Julia", "Kofi", "Lara", "Leo", "Lina", "Luca",
    "Maria", "Marta", "Mina", "Nadia", "Nils", "Nora", "Olga", "Omar", "Paul", "Petra", "Priya", "Rosa", "Ruth",
    "Sam", "Sara", "Sofia", "Tara", "Theo", "Tom", "Vera", "Victor", "Wei", "Yara", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Baker", "Becker", "Bauer", "Brown", "Costa", "Diaz", "Evans", "Fischer", "Garcia", "Green", "Haas",
    "Hall", "Ito", "Jensen", "Khan", "Klein", "Lang", "Lee", "Lopez", "Meyer", "Moreau", "Nowak", "Okafor", "Patel",
    "Price", "Quinn", "Reed", "Rossi", "Sato", "Schmidt", "Silva", "Stone", "Turner", "Vogel", "Walker", "Weber",
    "White", "Young", "Zhang",
)  # fmt: skip
CITIES = (
    "Berlin", "Lisbon", "Oslo", "Vienna", "Madrid", "Dublin", "Paris", "Rome", "Athens", "Prague", "Zurich", "Boston",
    "Denver", "Seattle", "Chicago", "Austin", "Toronto", "Kyoto", "Osaka", "Seoul", "Cairo", "Lagos", "Nairobi",
    "Lima", "Bogota", "Sydney", "Perth", "Delhi", "Mumbai", "Hanoi",
)  # fmt: skip
COUNTRIES = (
    "Austria", "Belgium", "Brazil", "Canada", "Chile", "Denmark", "Egypt", "Finland", "France", "Germany", "Ghana",
    "Greece", "India", "Ireland", "Italy", "Japan", "Kenya", "Mexico", "Norway", "Peru", "Poland", "Portugal", "Spain",
    "Sweden", "Turkey",
)  # fmt: skip
COLOURS = ("blue", "red", "green", "black", "white", "yellow", "grey", "orange", "purple", "brown", "silver", "pink")
THINGS = (
    "kettle", "lamp", "chair", "backpack", "umbrella", "teapot", "notebook", "blanket", "scarf", "jacket", "bottle",
    "clock", "mirror", "pillow", "basket", "candle", "speaker", "keyboard", "camera", "wallet", "vase", "towel",
    "bicycle", "helmet", "guitar", "tent", "toaster", "blender", "fan", "mug",
)  # fmt: skip
TODOS = (
    "Buy milk", "Call the dentist", "Water the plants", "Pay the rent", "Book a flight", "Clean the kitchen",
    "Send the invoice", "Read chapter three", "Fix the bicycle", "Walk the dog", "Order new shoes", "Renew passport",
    "Write to grandma", "Charge the camera", "Return the books", "Bake a cake", "Wash the car", "Plan the party",
    "Back up photos", "Buy stamps", "Pick up the parcel", "Iron the shirts", "Study Spanish", "Sort the mail",
)  # fmt: skip
DEPARTMENTS = ("Sales", "Support", "Finance", "Design", "Research", "Legal", "Marketing", "Logistics")
ROLES = ("Admin", "Editor", "Viewer", "Manager", "Guest", "Owner")
TOPICS = (
    "Opening hours", "Shipping costs", "Returns and refunds", "Gift cards", "Payment methods", "Warranty",
    "Student discount", "Change of address", "Lost password", "Delivery time", "Size guide", "Cancelling an order",
    "Newsletter", "Repairs", "Parking", "Group bookings",
)  # fmt: skip
SUBJECTS = (
    "Meeting on Monday", "Your invoice", "Holiday photos", "Question about the offer", "Lunch tomorrow?",
    "New project plan", "Train tickets", "Minutes of the call", "Happy birthday", "Broken printer", "Budget draft",
    "Garden party", "Contract to sign", "Team outing", "Library reminder", "Flat viewing", "Recipe for you",
    "Weekly report",
)  # fmt: skip
BRANDS = (
    "Northwind", "Bluebird", "Oak & Co", "Pinecone", "Lighthouse", "Marigold", "Harbor", "Juniper", "Cobalt",
    "Foxglove", "Riverside", "Maple", "Sundial", "Copperfield", "Willow", "Beacon", "My page", "Little shop",
    "Club portal", "Team space",
)  # fmt: skip
LINKS = (
    "Home", "About", "News", "Products", "Pricing", "Help", "Contact", "Blog", "Team", "Careers", "Events", "Gallery",
    "Docs", "Forum", "Partners", "Imprint", "Privacy", "Terms",
)  # fmt: skip
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
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
# What coined words are made of.
ONSETS = (
    "b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "r", "s", "st", "t",
    "tr", "v", "w", "z",
)  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
ENDINGS = ("", "", "l", "m", "n", "r", "s", "t", "ck", "nd", "lt", "rk")
