on("click", ".open", (link) => {
  if (Number(link.dataset.index) !== data.index) return lose();
  view("one");
  win();
});
aim({ steps: () => [click(`.open[data-index="${data.index}"]`)] });
