const clean = (text) => text.trim().toLowerCase();
let right = false;
on("submit", "form", () => {
  const asked = clean(find("#query").value);
  if (!asked) return;
  right = asked === clean(data.query);
  const hits = right ? data.hits : [];
  find("#count").textContent = data.count.replace("{}", hits.length);
  find("#hits").replaceChildren(...hits.map((hit, index) => {
    const row = Object.assign(document.createElement("div"), { className: "item between" });
    row.innerHTML = "<span></span>" + (data.linked ? "" : '<button type="button" class="small hit"></button>');
    const text = row.querySelector("span");
    text.textContent = hit;
    if (data.linked) text.innerHTML = `<a href="#" class="hit">${text.innerHTML}</a>`;
    else row.querySelector("button").textContent = data.word;
    row.querySelector(".hit").dataset.index = index;
    return row;
  }));
  view("found");
});
on("click", ".hit", (hit) => {
  if (Number(hit.dataset.index) !== data.wanted) return lose();
  find("#title").textContent = data.hits[data.wanted];
  view("end");
  win();
});
aim({ steps: () => (now_at("found") && right
  ? [click(`.hit[data-index="${data.wanted}"]`)]
  : [fill("#query", data.query, data.by_key), click("#submit")]) });
