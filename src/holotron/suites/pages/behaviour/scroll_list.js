on("click", ".pick", (row) => {
  if (row.textContent !== data.item) return lose();
  tell(`Chosen: ${data.item}`, true);
  win();
});
aim({ steps: () => [click(all(".pick").find((row) => row.textContent === data.item))] });
