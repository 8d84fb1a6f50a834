const right = (id) => find("#" + id).value.trim() === data[id];
on("click", "#next-one", () => (find("#name").value ? (hush(), view("two")) : tell("Please enter a name.")));
on("click", "#next-two", () =>
  find("#street").value && find("#city").value ? (hush(), view("three")) : tell("Please enter the address."));
on("click", "#back-two", () => view("one"));
on("click", "#back-three", () => view("two"));
on("click", "#finish", () => {
  if (!find("input[name=way]:checked")) return tell("Please choose a way of delivery.");
  if (!["name", "street", "city"].every(right) || !find("#way-" + data.way).checked) return lose();
  hush();
  view("thanks");
  win();
});
aim({ steps: () => {
  if (now_at("one")) return [fill("#name", data.name), click("#next-one")];
  if (now_at("two")) {
    if (!right("name")) return [click("#back-two")];
    return [fill("#street", data.street), fill("#city", data.city), click("#next-two")];
  }
  if (!["name", "street", "city"].every(right)) return [click("#back-three")];
  return [tick("#way-" + data.way), click("#finish")];
} });
