on("submit", "form", () => {
  const text = find("#new").value.trim();
  if (!text) return;
  const item = Object.assign(document.createElement("li"), { className: "item", textContent: text });
  find(".items").append(item);
  find("#new").value = "";
  if (!data.wanted.includes(text)) lose();
});
const missing = () => data.wanted.filter((text) => !all(".item").some((item) => item.textContent === text));
aim({
  solved: () => !missing().length && all(".item").length === data.total,
  steps: () => missing().slice(0, 1).flatMap((text) => [fill("#new", text, data.by_key), click("#submit")]),
});
