"""Shops: things with prices, put into a cart."""

from __future__ import annotations

from html import escape

from holotron.suites.kit.html import options
from holotron.suites.kit.words import COLOURS, THINGS
from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.task import template

AMOUNTS = [str(number) for number in range(1, 7)]


def _products(s: PageBuilder, count: int) -> list[tuple[str, str]]:
    """Names and prices, each different from the others."""
    prices: set[str] = set()
    while len(prices) < count:
        prices.add(s.price())
    names = [f"{s.pick(*COLOURS)} {thing}".title() for thing in s.some(s.fresh(THINGS), count)]
    return list(zip(names, s.some(sorted(prices), count), strict=True))


def _tile(s: PageBuilder, name: str, price: str, rest: str) -> str:
    colour = f"hsl({s.number(0, 359)} {s.number(20, 60)}% {s.number(55, 80)}%)"
    return (
        f'<div class="tile"><div class="swatch" style="background:{colour}"></div><h3>{escape(name)}</h3>'
        f'<p class="price">${price}</p>{rest}</div>'
    )


@template(wide=True)
def shop_add(s: PageBuilder) -> PageContent:
    products = _products(s, s.number(4, 8))
    index = s.number(0, len(products) - 1)
    label = s.pick("Add to cart", "Buy", "Add", "Add to basket")
    to_cart, strength = s.maybe(0.4), s.pick("main", "")
    text = s.wording("shop_add", item=products[index][0] if s.maybe() else products[index][0].lower())
    if to_cart:
        text = text.rstrip(".") + s.pick(" and go to the cart", " and open the cart", ", then show the cart")
    tiles = "".join(
        _tile(s, name, price, f'<button type="button" class="{strength} add" data-index="{at}">{label}</button>')
        for at, (name, price) in enumerate(products)
    )
    title = s.pick("Shop", "Our products", "Sale", "New in")
    cart = f'<button type="button" id="cart">{s.pick("Cart", "Basket", "My cart")} (<span id="count">0</span>)</button>'
    head = f'<div class="between">{s.heading(title)}{cart}</div>'
    body = view("shop", head, f'<div class="grid">{tiles}</div>', first=True)
    back = '<p><a href="#" id="back">Continue shopping</a></p>'
    body += view("cart", s.heading("Your cart"), '<div id="inside"></div>', back)
    return PageContent(text, body, {"index": index, "to_cart": to_cart}, title)


@template()
def shop_product(s: PageBuilder) -> PageContent:
    """One thing, of which quantity and kind are chosen from lists."""
    name, price = _products(s, 1)[0]
    quantity = str(s.number(2, 6))
    kinds = s.pick(("Size", ("Small", "Medium", "Large", "Extra large")), ("Colour", ("Blue", "Red", "Green", "Black")))
    kind = s.pick(*kinds[1]) if s.maybe(0.6) else ""
    text = s.wording("shop_product", n=quantity, item=name.lower(), kind=f" in {kind.lower()}" if kind else "")
    lists = [s.select("quantity", s.pick("Quantity", "Qty", "Pieces"), [str(n) for n in range(1, 9)], "1")]
    wanted = [["#quantity", quantity]]
    if kind:
        lists.insert(s.number(0, 1), s.select("kind", kinds[0], ["Choose", *kinds[1]], "Choose"))
        wanted.append(["#kind", kind])
    buttons = s.button("add", s.pick("Add to cart", "Add to basket", "Buy now"), "main")
    buttons += s.button("wish", s.pick("Wish list", "Save for later"))
    about = f'<p class="price">${price}</p>{s.prose(2)}'
    body = view("product", s.heading(name), about, *lists, f'<div class="row">{buttons}</div>', first=True)
    item = f'<div class="item">{quantity} × {escape(name)} {kind}</div>'
    body += view("cart", s.heading("Cart"), item, s.button("pay", "Checkout", "main"))
    return PageContent(text, body, {"wanted": wanted}, name)


@template(wide=True)
def shop_ask(s: PageBuilder) -> PageContent:
    products = _products(s, s.number(4, 8))
    mode = s.number(0, 2)
    if mode == 0:
        index = s.number(0, len(products) - 1)
        answer = f"${products[index][1]}"
        text = s.wording("shop_ask_price", item=products[index][0].lower())
    else:
        ordered = sorted(products, key=lambda product: float(product[1]))
        answer = ordered[0 if mode == 1 else -1][0]
        text = s.wording("shop_ask_extreme", how="cheapest" if mode == 1 else "most expensive")
    tiles = "".join(_tile(s, name, price, '<a href="#">Details</a>') for name, price in products)
    script = 'aim({ answer: data.answer, steps: () => [read(all(".price").at(-1))] });'
    if mode == 0:
        script = """
        const price = all(".price").find((tag) => tag.textContent === data.answer);
        aim({ answer: data.answer, steps: () => [read(price)] });
        """
    title = s.pick("Shop", "Products", "Offers")
    return PageContent(text, s.heading(title) + f'<div class="grid">{tiles}</div>', {"answer": answer}, title, script)


@template(wide=True)
def shop_filter(s: PageBuilder) -> PageContent:
    """Boxes beside the products choose which are shown."""
    products = _products(s, 8)
    kinds = s.some(("Kitchen", "Garden", "Office", "Sport", "Travel"), 3)
    placed = [s.pick(*kinds) for _ in products]
    kind = s.pick(*kinds)
    text = s.wording("shop_filter", kind=kind)
    boxes = "".join(
        f'<div class="check"><input type="checkbox" class="kind" id="k{i}"><label for="k{i}">{name}</label></div>'
        for i, name in enumerate(kinds)
    )
    tiles = "".join(
        f'<div data-kind="{kinds.index(where)}">{_tile(s, name, price, f"<span class=soft>{where}</span>")}</div>'
        for (name, price), where in zip(products, placed, strict=True)
    )
    body = s.heading(s.pick("Products", "Everything we have")) + (
        f'<div style="display:flex;gap:2em"><div><h3>{s.pick("Filter", "Category", "Show")}</h3>{boxes}</div>'
        f'<div class="grid" style="flex:1">{tiles}</div></div>'
    )
    return PageContent(text, body, {"wanted": kinds.index(kind)}, "Products")


@template(held_out=True)
def cart_edit(s: PageBuilder) -> PageContent:
    """A full cart, in which something is changed before it is paid."""
    products = _products(s, s.number(2, 4))
    amounts = [str(s.number(1, 4)) for _ in products]
    index = s.number(0, len(products) - 1)
    item = products[index][0]
    remove = s.maybe()
    pay = s.maybe()
    new = s.pick(*(amount for amount in AMOUNTS if amount != amounts[index]))
    text = s.wording("cart_remove" if remove else "cart_change", item=item, n=new)
    if pay:
        text = text.rstrip(".") + s.pick(" and check out", ", then go to checkout", " and go to the checkout")
    word = s.pick("Remove", "Remove", "✕")
    rows = "".join(
        f'<tr data-index="{at}"><td>{escape(name)}</td><td><select>{options(AMOUNTS, amounts[at])}</select></td>'
        f'<td>${price}</td><td><button type="button" class="small remove">{word}</button></td></tr>'
        for at, (name, price) in enumerate(products)
    )
    heading = s.heading(s.pick("Your cart", "Basket", "Cart"))
    checkout = s.button("pay", s.pick("Checkout", "Check out", "To checkout"), "main")
    body = view("cart", heading, f"<table>{rows}</table>", f"<p>{checkout}</p>", first=True)
    body += view("pay", s.heading("Checkout"), s.prose(2))
    data = {"amounts": amounts, "index": index, "new": new, "remove": remove, "pay": pay}
    return PageContent(text, body, data, "Cart")
