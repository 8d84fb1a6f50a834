on("click", ".act", (button) => {
  if (button.dataset.is !== data.is) return lose();
  if (data.deed === "Delete") button.closest(".item").remove();
  tell(data.done, true);
  win();
});
aim({ steps: () => [click(`[data-is="${data.is}"]`)] });
