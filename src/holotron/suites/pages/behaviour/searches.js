const escaped = (text) => Object.assign(document.createElement("i"), { textContent: text }).innerHTML;
const clean = (text) => text.trim().toLowerCase();
let asked = "";
on("submit", "form", () => {
  asked = clean(find("#query").value);
  if (!asked) return;
  const right = asked === clean(data.query);
  find("#results").innerHTML = (right ? data.results : data.others).map(([title, text], index) =>
    `<div class="item"><a href="#" class="result" data-index="${index}">${escaped(title)}</a>
      <div class="soft">${escaped(text)}</div></div>`).join("");
  find("#count").textContent = `${data.results.length} results for "${find("#query").value}"`;
  view("found");
});
const searching = () => [fill("#query", data.query, data.by_key), click("#submit")];
const found = () => now_at("found") && asked === clean(data.query);
