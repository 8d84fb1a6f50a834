"""Small things to operate: votes, counters, comments, calendars."""

from __future__ import annotations

from html import escape

from holotron.suites.pages.builder import PageBuilder, PageContent, view
from holotron.suites.pages.task import template
from holotron.suites.pages.words import CITIES, COLOURS, MONTHS, SENTENCES, THINGS


@template()
def poll(s: PageBuilder) -> PageContent:
    question, options = s.pick(
        ("Which colour do you like best?", [colour.title() for colour in s.some(COLOURS, s.number(3, 5))]),
        ("Where shall we go next year?", s.some(s.fresh(CITIES), s.number(3, 6))),
        ("What should we buy first?", [f"A {thing}" for thing in s.some(s.fresh(THINGS), s.number(3, 5))]),
    )
    index = s.number(0, len(options) - 1)
    text = s.phrase(
        "Vote for {option}",
        'Choose "{option}" and vote',
        "My vote goes to {option}",
        "Take part in the poll: {option}",
        "Answer the poll with {option}",
        option=options[index],
    )
    body = view(
        "form",
        s.heading(s.pick("Poll", "Your opinion", "Vote")),
        s.prose(1),
        s.form(s.radios("option", question, options), s.submit("Vote", "Send", "Submit vote")),
        first=True,
    )
    script = """
    on("submit", "form", () => {
      if (!find("input:checked")) return tell("Please choose one.");
      if (!find("#option-" + data.index).checked) return lose();
      hush();
      view("thanks");
      win();
    });
    aim({ steps: () => [tick("#option-" + data.index), click("#submit")] });
    """
    return PageContent(text, body + view("thanks", s.heading("Thank you for voting")), script, {"index": index}, "Poll")


@template()
def stepper(s: PageBuilder) -> PageContent:
    """Numbers that are changed by plus and minus alone."""
    names = s.some(("Adults", "Children", "Rooms", "Tickets", "Nights", "Dogs"), s.number(1, 3))
    before = [s.number(0, 3) for _ in names]
    index = s.number(0, len(names) - 1)
    after = s.pick(*(n for n in range(5) if n != before[index]))
    text = s.phrase(
        "Set {name} to {n}",
        "{name}: {n}",
        "Change the number of {name} to {n}",
        "I need {n} {name}",
        'Make "{name}" {n}',
        name=names[index].lower() if s.maybe() else names[index],
        n=after,
    )
    minus, plus = s.pick(("−", "+"), ("-", "+"), ("◂", "▸"))
    rows = "".join(
        f'<div class="item between"><span>{name}</span><span class="row">'
        f'<button type="button" class="step" data-at="{at}" data-by="-1">{minus}</button>'
        f'<b class="number">{before[at]}</b>'
        f'<button type="button" class="step" data-at="{at}" data-by="1">{plus}</button></span></div>'
        for at, name in enumerate(names)
    )
    script = """
    const numbers = all(".number"), at = (index) => Number(numbers[index].textContent);
    on("click", ".step", ({ dataset }) => {
      numbers[dataset.at].textContent = Math.max(0, at(dataset.at) + Number(dataset.by));
    });
    const step = (wanted, index) => wanted === at(index) ? null
      : click(`.step[data-at="${index}"][data-by="${Math.sign(wanted - at(index))}"]`);
    aim({ solved: () => data.after.every((wanted, index) => wanted === at(index)), steps: () => data.after.map(step) });
    """
    wanted = [after if at == index else number for at, number in enumerate(before)]
    title = s.pick("Your trip", "Booking", "How many?")
    return PageContent(text, s.heading(title) + s.prose(1) + rows, script, {"after": wanted}, title)


@template()
def comment(s: PageBuilder) -> PageContent:
    """A remark below an article."""
    written = s.pick(*SENTENCES)
    text = s.phrase(
        'Comment "{text}"',
        'Leave a comment: "{text}"',
        'Post "{text}" below the article',
        'Write "{text}" as a comment and post it',
        'Add the comment "{text}"',
        text=written,
    )
    others = "".join(
        f'<div class="item"><b>{s.person()}</b><br>{escape(s.pick(*SENTENCES))}</div>' for _ in range(s.number(0, 3))
    )
    form = s.form(
        s.field("text", s.pick("Your comment", "Comment", "Say something"), "area"), s.submit("Post", "Send", "Comment")
    )
    article = s.heading(s.pick("A walk in May", "New bakery", "The old bridge", "Summer reading"))
    article += "".join(s.prose(5) for _ in range(s.number(1, 3)))
    script = """
    on("submit", "form", () => {
      const text = find("#text").value.trim();
      if (!text) return tell("Please write something.");
      if (text !== data.text) return lose();
      find("#all").insertAdjacentHTML("beforeend", `<div class="item"><b>You</b><br>${text}</div>`);
      find("#text").value = "";
      win();
    });
    aim({ steps: () => [fill("#text", data.text), click("#submit")] });
    """
    body = f'{article}<h2>Comments</h2><div id="all">{others}</div>{form}'
    return PageContent(text, body, script, {"text": written}, "Article")


@template(held_out=True)
def calendar(s: PageBuilder) -> PageContent:
    """A day is chosen in a month, which may not be the one that shows."""
    year, month, day = s.number(2025, 2028), s.number(0, 11), s.number(1, 28)
    start = year * 12 + month + s.number(-2, 2)
    text = s.phrase(
        "Choose {day} {month} {year}",
        "Pick {month} {day}, {year} in the calendar",
        "Select the date {day} {month} {year}",
        "Click {month} {day}, {year}",
        "Date: {day} {month} {year}",
        day=day,
        month=MONTHS[month],
        year=year,
    )
    back, forth = s.pick(("‹", "›"), ("«", "»"), ("Previous", "Next"))
    body = (
        f'{s.heading(s.pick("Choose a day", "Appointment", "When?"))}<div class="tile" style="max-width:460px">'
        f'<div class="between">{s.button("back", back)}<b id="month"></b>{s.button("forth", forth)}</div>'
        '<table id="days"></table></div>'
    )
    script = """
    let here = data.start;
    const draw = () => {
      const year = Math.floor(here / 12), month = here % 12;
      find("#month").textContent = `${data.months[month]} ${year}`;
      const first = (new Date(year, month, 1).getDay() + 6) % 7, count = new Date(year, month + 1, 0).getDate();
      const cells = Array.from({ length: Math.ceil((first + count) / 7) * 7 }, (_, at) => at - first + 1)
        .map((day) => (day < 1 || day > count ? "<td></td>" : `<td class="day" style="cursor:pointer">${day}</td>`));
      const week = (_, at) => `<tr>${cells.slice(at * 7, at * 7 + 7).join("")}</tr>`;
      const head = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].map((day) => `<th>${day}</th>`).join("");
      find("#days").innerHTML = `<tr>${head}</tr>` + Array.from({ length: cells.length / 7 }, week).join("");
    };
    on("click", "#back", () => { here -= 1; draw(); });
    on("click", "#forth", () => { here += 1; draw(); });
    on("click", ".day", (cell) => {
      if (here !== data.wanted || cell.textContent !== data.day) return lose();
      tell(`Chosen: ${data.day} ${find("#month").textContent}`, true);
      win();
    });
    draw();
    aim({ steps: () => [
      here === data.wanted ? click(all(".day").find((cell) => cell.textContent === data.day))
        : click(here < data.wanted ? "#forth" : "#back"),
    ] });
    """
    data = {"start": start, "wanted": year * 12 + month, "day": str(day), "months": MONTHS}
    return PageContent(text, body, script, data, "Calendar")
