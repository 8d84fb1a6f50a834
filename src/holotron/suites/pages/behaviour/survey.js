const at = () => data.wanted.findIndex((_, index) => now_at("q" + index));
on("click", ".go", () => {
  const here = at();
  if (!find(`input[name=r${here}]:checked`)) return tell("Please choose an answer.");
  hush();
  if (!find(`#r${here}-${data.wanted[here]}`).checked) return lose();
  if (here + 1 < data.wanted.length) return view("q" + (here + 1));
  view("thanks");
  win();
});
aim({ steps: () => [tick(`#r${at()}-${data.wanted[at()]}`), click(`[data-view="q${at()}"] .go`)] });
