on("click", ".deed", (button) => {
  if (data.only || button.dataset.tab !== data.wanted) return lose();
  tell("Done.", true);
  win();
});
if (data.only) aim({ solved: () => shown(`[data-panel="${data.wanted}"]`), steps: () => [opened(data.wanted)] });
else aim({ steps: () => [opened(data.wanted), click(`.deed[data-tab="${data.wanted}"]`)] });
