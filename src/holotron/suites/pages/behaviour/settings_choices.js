on("click", "#save", () => {
  const right = data.lists.every(([id, value]) => find(id).selectedOptions[0].label === value)
    && data.radios.every((id) => find(id).checked);
  if (!right) return lose();
  tell("Saved.", true);
  scrollTo(0, 0);
  win();
});
aim({ steps: () => [
  ...data.order.map((id) => {
    const list = data.lists.find(([name]) => name === id);
    return list ? choose(...list) : tick(data.radios.find((name) => name.startsWith(id + "-")));
  }),
  click("#save"),
] });
