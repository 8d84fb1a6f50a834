let open = -1;
on("click", ".mail", (row) => {
  open = Number(row.dataset.index);
  find("#subject").textContent = row.cells[1].textContent;
  find("#from").textContent = "From " + row.cells[0].textContent;
  view("one");
});
on("click", "#back", () => view("all"));
on("click", ".deed", (button) => {
  if (open !== data.index || button.textContent !== data.deed) return lose();
  find(`.mail[data-index="${open}"]`).remove();
  view("all");
  tell(`${data.deed}: done.`, true);
  win();
});
aim({ steps: () => {
  if (now_at("all")) return [click(`.mail[data-index="${data.index}"] td:nth-child(2)`)];
  if (open !== data.index) return [click("#back")];
  return [click(all(".deed").find((button) => button.textContent === data.deed))];
} });
