on("click", ".deed", (button) => {
  const ticked = all("tbody input").flatMap((box, index) => (box.checked ? [index] : []));
  if (!ticked.length) return tell("Nothing is selected.");
  if (button.textContent !== data.deed || String(ticked) !== String(data.chosen)) return lose();
  tell(`${data.deed}: ${ticked.length} done.`, true);
  win();
});
aim({ steps: () => [
  ...all("tbody input").map((box, index) => tick(box, data.chosen.includes(index))),
  click(all(".deed").find((button) => button.textContent === data.deed)),
] });
