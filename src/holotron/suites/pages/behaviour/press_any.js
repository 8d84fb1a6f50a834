on("click", ".thing", (part) => {
  if (part.textContent !== data.wanted) return lose();
  tell(data.done, true);
  win();
});
aim({ steps: () => [click(all(".thing").find((part) => part.textContent === data.wanted))] });
