on("click", "#yes, #no", (button) => {
  if (button.textContent !== data.wanted) return lose();
  view("end");
  win();
});
aim({ steps: () => [click(all("#yes, #no").find((button) => button.textContent === data.wanted))] });
