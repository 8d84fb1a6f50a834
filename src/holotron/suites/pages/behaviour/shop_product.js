on("click", "#add", () => {
  if (find("#kind")?.selectedIndex === 0) return tell("Please choose one first.");
  if (data.wanted.some(([id, value]) => find(id).selectedOptions[0].label !== value)) return lose();
  hush();
  view("cart");
  win();
});
on("click", "#wish", lose);
on("click", "#pay", lose);
aim({ steps: () => [...data.wanted.map(([id, value]) => choose(id, value)), click("#add")] });
