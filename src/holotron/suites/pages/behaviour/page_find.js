on("click", ".open", (link) => {
  if (link.textContent !== data.item) return lose();
  view("one");
  win();
});
const wanted = Math.floor(data.items.indexOf(data.item) / data.size) + 1;
aim({ steps: () => [turn(wanted), click(all(".open").find((link) => link.textContent === data.item))] });
