on("click", ".act", (button) => {
  if (button.dataset.is !== data.is) return lose();
  tell(data.done, true);
  win();
});
aim({ steps: () => [click(`[data-is="${data.is}"]`)] });
