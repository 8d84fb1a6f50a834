on("submit", "form", () => {
  if (!find("input:checked")) return tell("Please choose one.");
  if (!find("#option-" + data.index).checked) return lose();
  hush();
  view("thanks");
  win();
});
aim({ steps: () => [tick("#option-" + data.index), click("#submit")] });
