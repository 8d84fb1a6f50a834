on("click", "#cookies button", (button) => {
  find("#cookies").hidden = true;
  if (button.id !== "b" + data.wanted) return lose();
  if (data.only) win();
});
on("click", ".go", (link) => {
  if (link.dataset.to !== data.link || data.only || shown("#cookies")) return lose();
  view("there");
  win();
});
aim({ steps: () => [shown("#cookies") ? click("#b" + data.wanted) : null, click(`.go[data-to="${data.link}"]`)] });
