on("submit", "form", () => {
  const text = find("#new").value.trim();
  if (!text) return;
  const item = Object.assign(document.createElement("li"), { className: "item" });
  item.innerHTML = '<label><input type="checkbox"> <span></span></label>';
  item.querySelector("span").textContent = text;
  find(".items").append(item);
  find("#new").value = "";
  if (text !== data.new || all(".item").length > data.wanted.length + 1) lose();
});
const boxes = () => all(".item input");
const added = () => boxes().length > data.wanted.length;
const ticking = () => boxes().map((box, index) => tick(box, !!data.wanted[index]));
const adding = () => (added() ? [] : [fill("#new", data.new, data.by_key), click("#submit")]);
aim({
  solved: () => added() && boxes().every((box, index) => box.checked === !!data.wanted[index]),
  steps: () => (data.adds_first ? [...adding(), ...ticking()] : [...ticking(), ...adding()]),
});
